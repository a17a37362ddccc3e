"""The names of operators and sources in Spark's checkpoint.

Spark numbers operators by their positions, topmost first, one INSERT after the other. An operator
keeps its name (w1, w2, …) as long as the job has it, at any position. So does a source, which Spark
knows by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, count

from everfold.compat.shape import QueryShape
from everfold.plan.nodes import Plan, Root, Scan, Sink, is_stateful
from everfold.plan.parts import streamed_children


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


SourceNote = dict[str, str]
"""What a job records about a source.

`name`: its name. `table`: the table. `reader`: the operator that receives its rows first or,
without one, the table that they are written to. Once the source was opened also its `connector`,
its `location` (`Source.location`) and `spark_name`, its name in Spark's checkpoint, and its
`identity` (`Source.identify`), if its data has one.
"""


def source_notes(roots: Sequence[Root], before: Sequence[Sequence[SourceNote]] = ()) -> tuple[SourceNote, ...]:
    """Return the sources of a job, in the order of `scans_of`.

    A source that reads a table for the same reader as before keeps its name; others are named after
    their table, with a number that no source has had. roots: with named operators. before: the
    sources of earlier versions, the latest first.
    """
    taken = {each["name"] for notes in before for each in notes}
    found: dict[str, SourceNote] = {}
    for table, reader in _reads(roots):
        alike = {"table": table, "reader": reader}
        known = (each for notes in before for each in notes if each | alike == each and each["name"] not in found)
        name = source_name(table)
        names = chain([name], map(f"{name}_{{}}".format, count(1)))
        fresh = (alike | {"name": each} for each in names if each not in taken | found.keys())
        note = next(chain(known, fresh))
        found[note["name"]] = note
    return tuple(found.values())


def _reads(roots: Sequence[Root]) -> Iterator[tuple[str, str]]:
    """Yield the tables that a job reads, in the order of `scans_of`, each with its reader."""

    def below(node: Plan, reader: str) -> Iterator[tuple[str, str]]:
        if isinstance(node, Scan):
            yield node.table.identity, reader
        for child in streamed_children(node):
            yield from below(child, node.operator_id if is_stateful(node) else reader)

    for root in roots:
        yield from below(root.input, root.table.name if isinstance(root, Sink) else "")


def source_name(table: str) -> str:
    """Return a table's name in the form that Spark allows for a source."""
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in table)
