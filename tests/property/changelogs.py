"""Make changelogs for property tests, feed them to queries, and fold them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Submit
from everfold.types import physical_name

T = TypeVar("T")
Row = tuple[str | None, int | None]
Change = tuple[RowKind, Row]


class ChangingQuery:
    """A query over `t (k STRING, v INT)`, whose rows are inserts only or any changes."""

    def __init__(self, select: str, mode: ChangelogMode, *, buckets: int = 1) -> None:
        session = Session()
        list(session.run("CREATE TABLE t (k STRING, v INT)"))
        entry = session.catalog.find(("t",))
        assert isinstance(entry, CatalogTable)
        session.catalog.replace(replace(entry, table=replace(entry.table, changelog=mode)))
        (submit,) = session.run(select)
        assert isinstance(submit, Submit)
        self._columns = [column.name for table in submit.sources for column in table.columns]
        self.pipeline = MemoryPipeline(submit.roots[0], submit.settings, buckets=buckets)
        self._changing = mode is not ChangelogMode.INSERT_ONLY

    def feed(self, changes: Sequence[Change]) -> list[tuple[RowKind, tuple[Any, ...]]]:
        """Feed a batch. Return the changes that it emits."""
        rows = {
            "k": pa.array([row[0] for _, row in changes], pa.string()),
            "v": pa.array([row[1] for _, row in changes], pa.int32()),
        }
        table = pa.table({physical_name(at): rows[name] for at, name in enumerate(self._columns)})
        if self._changing:
            table = table.append_column(KIND, pa.array([kind.value for kind, _ in changes], pa.int8()))
        found = self.pipeline.feed({"t": table}, now_ms=0)
        kinds = found[KIND].to_pylist() if KIND in found.column_names else [0] * found.num_rows
        columns = [name for name in found.column_names if name != KIND]
        return [
            (RowKind(kind), tuple(freeze(row[name]) for name in columns))
            for kind, row in zip(kinds, found.to_pylist(), strict=True)
        ]


def freeze(value: Any) -> Any:
    """Make a value hashable."""
    return tuple(value) if isinstance(value, list) else value


class FoldedRows:
    """The rows that remain of emitted changes.

    A row that was never emitted cannot be retracted. With one row per key (the first column), a
    batch emits at most one retraction and one new row for each key.
    """

    def __init__(self, *, per_key: bool = True) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self._per_key = per_key

    def take(self, changes: Sequence[tuple[RowKind, tuple[Any, ...]]]) -> None:
        per_key: Counter[tuple[Any, bool]] = Counter()
        for kind, row in changes:
            back = kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
            per_key[row[0], back] += 1
            self.rows[row] += -1 if back else 1
            assert self.rows[row] >= 0, f"{row} is retracted and was never emitted"
            if not self.rows[row]:
                del self.rows[row]
        assert not self._per_key or all(count == 1 for count in per_key.values()), per_key


class UpsertedRows:
    """The rows of a table with one row per key (the first column), to which the changes are
    applied one by one.
    """

    def __init__(self) -> None:
        self.rows: dict[Any, tuple[Any, ...]] = {}

    def take(self, changes: Sequence[tuple[RowKind, tuple[Any, ...]]]) -> None:
        for kind, row in changes:
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                self.rows[row[0]] = row
            elif kind is RowKind.DELETE:
                del self.rows[row[0]]


keys = st.sampled_from(["a", "b", None])
values = st.one_of(st.none(), st.integers(-4, 4))


@st.composite
def changelogs(draw: st.DrawFn) -> list[Change]:
    """Insert, update and delete rows; only existing rows are updated or deleted."""
    alive: list[Row] = []
    found: list[Change] = []
    for choice, key, value in draw(st.lists(st.tuples(st.integers(0, 9), keys, values), max_size=40)):
        if alive and choice >= 5:
            gone = alive.pop(choice * 7 % len(alive))
            if choice == 9:  # an update
                alive.append((gone[0], value))
                found += [(RowKind.UPDATE_BEFORE, gone), (RowKind.UPDATE_AFTER, alive[-1])]
            else:
                found.append((RowKind.DELETE, gone))
        else:
            alive.append((key, value))
            found.append((RowKind.INSERT, alive[-1]))
    return found


@st.composite
def unfounded_changes(draw: st.DrawFn) -> list[Change]:
    """Changes of which some retract rows that are not there, as in a changelog that is read from
    the middle.
    """
    kinds = st.sampled_from([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE, RowKind.DELETE])
    rows = st.tuples(st.sampled_from(["a", None]), st.sampled_from([None, 1, 2]))
    return draw(st.lists(st.tuples(kinds, rows), max_size=20))


@st.composite
def inserts(draw: st.DrawFn) -> list[Change]:
    return [(RowKind.INSERT, row) for row in draw(st.lists(st.tuples(keys, values), max_size=40))]


def cut(changes: Sequence[T], cuts: Sequence[int]) -> list[list[T]]:
    positions = sorted({0, len(changes), *(each % (len(changes) + 1) for each in cuts)})
    return [list(changes[start:end]) for start, end in pairwise(positions)]


cuts = st.lists(st.integers(0, 40), max_size=6)
"""The positions at which a changelog is cut into batches."""
