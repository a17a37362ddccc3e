"""What a job calls its operators and sources in Spark's checkpoint.

Spark numbers operators as they stand, topmost first, one INSERT after the other: their places. An operator keeps its name, w1, w2, …, as long as the job has it,
wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everfold.compat.matching import matched
from everfold.compat.shape import QueryShape
from everfold.plan.nodes import Join, Plan, Root, Scan, StatefulNode, children, is_stateful, streamed
from everfold.spark.stream import source_name


def operators_of(roots: Sequence[Root]) -> list[StatefulNode]:
    """The operators of a job, by their places."""
    return [node for root in roots for node in streamed(root.input) if is_stateful(node)]


def first_names(shapes: Sequence[QueryShape]) -> tuple[str, ...]:
    """The names that the operators of a new job get, by their places: numbered as rows come by them."""
    found: list[str] = []
    for shape in shapes:
        before = len(found)
        rising = [each for top in shape.tops for each in _rising(shape, top)]
        found += [f"w{before + rising.index(at) + 1}" for at in range(len(rising))]
    return tuple(found)


def _rising(shape: QueryShape, at: int) -> Iterator[int]:
    """An operator behind those below it."""
    for below in shape.operators[at].below:
        yield from _rising(shape, below)
    yield at


def moves(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> list[int] | None:
    """The old place of the operator at each new one; None where one has come, or one has gone from a query that is still there."""
    left = list(range(len(old)))
    found: list[int] = []
    for shape in new:
        at = next((at for at in left if old[at].sink == shape.sink), None)
        if at is None:
            if shape.operators:
                return None
            continue
        left.remove(at)
        before = sum(len(each.operators) for each in old[:at])
        twins = matched(old[at], shape).old
        if not len(twins) == len(shape.operators) == len(old[at].operators):
            return None
        found += [before + twins[place] for place in range(len(shape.operators))]
    return found


def source_names(roots: Sequence[Root]) -> dict[int, str]:
    """The names under which tables are opened, by the identity of their scans: a table that is read again gets a number."""
    seen: dict[str, int] = {}
    found: dict[int, str] = {}
    for node in (node for root in roots for node in _upwards(root.input)):
        if isinstance(node, Scan):
            name = source_name(node.table.name)
            nth = seen.get(name, 0)
            seen[name] = nth + 1
            found[id(node)] = name if nth == 0 else f"{name}_{nth}"
    return found


def _upwards(node: Plan) -> Iterator[Plan]:
    """The nodes that flow, in the order in which they are lowered."""
    for child in children(node)[: 1 if isinstance(node, Join) else None]:
        yield from _upwards(child)
    yield node
