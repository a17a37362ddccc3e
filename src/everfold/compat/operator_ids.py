"""The names of operators and sources in Spark's checkpoint.

Spark numbers operators by their positions, topmost first, one INSERT after the other. An operator
keeps its name (w1, w2, …) as long as the job has it, at any position. So does a source, which Spark
knows by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from everfold.compat.matching import match_operators
from everfold.compat.shape import QueryShape
from everfold.plan.nodes import (
    Join,
    Plan,
    Root,
    Scan,
    Sink,
    StatefulNode,
    children,
    is_stateful,
    number_table_name,
    walk_streamed,
)


def operators_of(roots: Sequence[Root]) -> list[StatefulNode]:
    """Return the operators of a job, by position."""
    return [node for root in roots for node in walk_streamed(root.input) if is_stateful(node)]


def first_names(shapes: Sequence[QueryShape]) -> tuple[str, ...]:
    """Return the names of the operators of a new job, by position.

    They are numbered in the order in which rows reach them.
    """
    found: list[str] = []
    for shape in shapes:
        before = len(found)
        rising = [each for top in shape.tops for each in _bottom_up(shape, top)]
        found += [f"w{before + rising.index(at) + 1}" for at in range(len(rising))]
    return tuple(found)


def _bottom_up(shape: QueryShape, at: int) -> Iterator[int]:
    """Yield the position of an operator after those below it."""
    for below in shape.operators[at].below:
        yield from _bottom_up(shape, below)
    yield at


def fresh_names(taken: Collection[str]) -> Iterator[str]:
    """Yield names that no operator of the job has ever had."""
    return (name for name in map("w{}".format, count(1)) if name not in taken)


def map_old_positions(old: Sequence[QueryShape], new: Sequence[QueryShape]) -> list[int | None]:
    """Return the old position of the operator at each new position, None for an operator that is
    new.
    """
    left = list(range(len(old)))
    found: list[int | None] = []
    for shape in new:
        at = next((at for at in left if old[at].sink == shape.sink), None)
        if at is None:
            found += [None] * len(shape.operators)
            continue
        left.remove(at)
        before = sum(len(each.operators) for each in old[:at])
        twins = match_operators(old[at], shape).old
        found += [before + twins[place] if place in twins else None for place in range(len(shape.operators))]
    return found


SourceNote = dict[str, str]
"""What a job records about a source.

`name`: its name. `table`: the table. `reader`: the operator that receives its rows first or,
without one, the table that they are written to. Once the source was opened also its `connector`,
its `location` (`Source.location`) and `spark_name`, its name in Spark's checkpoint.
"""


def source_notes(
    roots: Sequence[Root], operators: Sequence[str], before: Sequence[Sequence[SourceNote]] = ()
) -> tuple[SourceNote, ...]:
    """Return the sources of a job, in the order in which they are lowered.

    A source that reads a table for the same reader as before keeps its name; others are named after
    their table, with a number that no source has had. operators: their names, by position. before:
    the sources of earlier versions, the latest first.
    """
    taken = {each["name"] for notes in before for each in notes}
    seen: dict[str, int] = {}
    found: list[SourceNote] = []
    for scan, reader in _reads(roots, operators):
        alike = {"table": scan.table.name, "reader": reader}
        known = (each for notes in before for each in notes if each | alike == each)
        note = next((each for each in known if each["name"] not in [one["name"] for one in found]), None)
        while note is None:
            name = number_table_name(source_name(scan.table.name), seen)
            note = alike | {"name": name} if name not in taken else None
        found.append(note)
    return tuple(found)


def map_source_names(roots: Sequence[Root], notes: Sequence[SourceNote]) -> dict[int, str]:
    """Return the names under which tables are opened, by the identity of their scans."""
    return {id(scan): note["name"] for scan, note in zip(scans_of(roots), notes, strict=True)}


def scans_of(roots: Sequence[Root]) -> list[Scan]:
    """Return the scans of a job in the order in which they are lowered."""
    return [scan for root in roots for scan, _ in _read(root.input, "", {})]


def _reads(roots: Sequence[Root], operators: Sequence[str]) -> Iterator[tuple[Scan, str]]:
    """Yield the scans of a job in the order in which they are lowered, each with its reader."""
    names = {id(node): name for node, name in zip(operators_of(roots), operators, strict=True)}
    for root in roots:
        yield from _read(root.input, root.table.name if isinstance(root, Sink) else "", names)


def _read(node: Plan, reader: str, names: Mapping[int, str]) -> Iterator[tuple[Scan, str]]:
    if isinstance(node, Scan):
        yield node, reader
    for child in children(node)[: 1 if isinstance(node, Join) else None]:
        yield from _read(child, names.get(id(node), reader), names)


def source_name(table: str) -> str:
    """Return a table's name in the form that Spark allows for a source."""
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in table)
