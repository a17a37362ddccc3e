"""Pair the statements of a script with the jobs that they continue: those that write their tables.

So statements may stand in any order, and one that is added or removed changes no other job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.compat.matching import compare_jobs, continues_job, pair_alike
from everfold.compat.serde import from_json
from everfold.compat.shape import QueryShape, shape_of
from everfold.jobs.sink_tables import SinkNote, may_share_location, sink_notes
from everfold.plan.nodes import Root, Sink

if TYPE_CHECKING:
    from everfold.jobs.manifest import Manifest
    from everfold.sql.planner import Submit


@dataclass(frozen=True, kw_only=True)
class JobOutline:
    """What tells a job from the others of its script.

    sinks: the tables that it writes, none for a bare SELECT; undeclared ones, and those of an
    earlier release, have only a name. read_shapes: returns the shapes of its queries.
    """

    sinks: Sequence[SinkNote]
    read_shapes: Callable[[], Sequence[QueryShape]] = field(repr=False)

    @classmethod
    def of_statement(cls, submit: Submit, base_folder: Path) -> JobOutline:
        """Return the outline of the job that a statement starts. base_folder: of relative paths."""
        roots = submit.roots
        return cls(sinks=_describe_sinks(roots, base_folder), read_shapes=lambda: [shape_of(root) for root in roots])

    @classmethod
    def of_job(cls, manifest: Manifest) -> JobOutline:
        """Return the outline of a job with a manifest."""
        version = manifest.version
        names = (from_json(shape).sink for shape in version.shapes) if version.sinks is None else ()
        sinks = version.sinks if version.sinks is not None else [_note_name(name) for name in names if name]
        return cls(sinks=sinks, read_shapes=version.read_shapes)

    @cached_property
    def shapes(self) -> Sequence[QueryShape]:
        """The shapes of its queries."""
        return self.read_shapes()

    @property
    def tables(self) -> str:
        """The names of its tables for people, empty for a bare SELECT."""
        return ", ".join(f"`{name}`" for name in dict.fromkeys(note["table"] for note in self.sinks))


def _describe_sinks(roots: Sequence[Root], base_folder: Path) -> list[SinkNote]:
    notes: list[SinkNote] = []
    for root in roots:
        if isinstance(root, Sink):
            is_declared = root.table.connector is not None
            notes += sink_notes([root], base_folder) if is_declared else [_note_name(root.table.name)]
    return notes


def _note_name(table: str) -> SinkNote:
    """Return the note of a table of which only the name is known."""
    return {"table": table, "connector": ""}


def pair_jobs(old: Sequence[JobOutline], new: Sequence[JobOutline], *, is_first_old: bool = True) -> dict[int, int]:
    """Return the position of the old job that each new statement continues, by that of the
    statement.

    A statement continues a job that writes one of its tables: at the same location rather than
    under the same name alone, and of several the one with the most similar queries. Of those that
    are left, it continues one that computes the same for other tables. The only INSERT of a script
    continues the first job that writes tables in any case, and the only statement the first job.
    is_first_old: whether the first job is `old[0]`.
    """

    def compare_queries(position: int, number: int) -> tuple[float, ...]:
        return compare_jobs(old[position].shapes, new[number].shapes)

    same_tables = {
        (position, number): closeness
        for number, statement in enumerate(new)
        for position, job in enumerate(old)
        if (closeness := _compare_tables(job.sinks, statement.sinks)) is not None
    }
    pairs = pair_alike(same_tables, lambda *pair: (*same_tables[pair], *compare_queries(*pair)))
    same_queries = [
        (position, number)
        for number, statement in enumerate(new)
        for position, job in enumerate(old)
        if not (number in pairs or position in pairs.values())
        and (job.sinks and statement.sinks and continues_job(job.shapes, statement.shapes))
    ]
    pairs |= pair_alike(same_queries, compare_queries)
    old_writers, new_writers = ([position for position, job in enumerate(jobs) if job.sinks] for jobs in (old, new))
    if is_first_old and old_writers and len(new_writers) == 1:
        pairs.setdefault(new_writers[0], old_writers[0])
    elif is_first_old and old and len(new) == 1:
        pairs.setdefault(0, 0)
    return pairs


def _compare_tables(old: Sequence[SinkNote], new: Sequence[SinkNote]) -> tuple[int, int] | None:
    """Compare the tables that two jobs write; return None if none is the same.

    Return the closest level of two tables (`_compare_table`), and how many are the same.
    """
    if not old and not new:
        return 0, 0
    levels = [level for note in old for other in new if (level := _compare_table(note, other)) > 0]
    return (max(levels), len(levels)) if levels else None


def _compare_table(old: SinkNote, new: SinkNote) -> int:
    """Return 3 for the same table, 2 with another name, 1 at another location, 0 for another."""
    is_named_alike = old["table"] == new["table"]
    if not (old.get("location") and new.get("location")):
        return 3 * is_named_alike
    return 2 * may_share_location(old, new) + is_named_alike
