"""A rewound job finds the earlier keys that did not reappear, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from postgres import Database
from unit.connectors.jdbc.bench import Run, sink_of
from unit.connectors.lineages import lineage_after_change, lineage_after_rebuild, lineage_after_rollback
from unit.connectors.tables import TableMaker, table

from everfold.connectors.replay import JobLineage
from everfold.types import BIGINT, INT, STRING

TOTALS = table("totals", k=STRING, n=BIGINT)
Start = Callable[..., Run]


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Return a function that starts a run of a job in an epoch. A later run is the next start."""
    with ExitStack() as stack:

        def run(lineage: JobLineage | None, of: TableMaker = TOTALS, *key: str, sink: str = "s") -> Run:
            opened = sink_of(of, database, *(key or ("k",)))
            if lineage is not None:
                opened.undo_discarded_batches(lineage)
            made = Run(opened, name=sink, epoch=0 if lineage is None else lineage.epoch)
            stack.callback(made.close)
            return made

        yield run


@pytest.fixture
def restart(start: Start, database: Database) -> Start:
    """Return `start` for a job that has written eight keys."""
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    start(None).write(0, [("+I", f"k{at}", at) for at in range(8)])
    return start


def content(database: Database) -> dict[str, int]:
    return dict(database.run("SELECT k, n FROM t"))


def snapshot_tables(database: Database) -> list[str]:
    """Return the tables with keys that have not reappeared."""
    return [name for (name,) in database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_before_[0-9a-f_]+$' AND relkind = 'r'")]  # fmt: skip


def test_keys_that_do_not_reappear_are_counted_and_pruned(restart: Start, database: Database) -> None:
    run = restart(lineage_after_rebuild(1))
    run.write(0, [("+I", "k0", 10), ("+I", "new", 1)])
    message = "table `totals`: keys that did not reappear: 7 (k1, k2, k3, k4, k5, …); --prune deletes their rows"
    assert run.sink.report_leftovers(prune=False) == message
    assert content(database) == {**{f"k{at}": at for at in range(8)}, "k0": 10, "new": 1}
    again = restart(lineage_after_rebuild(1))  # after a restart, keys that reappeared stay removed from the snapshot
    again.write(1, [("+U", "k1", 11), ("-D", "k2", 2)])
    assert again.sink.report_leftovers(prune=True) == "table `totals`: keys that did not reappear, now deleted: 5"
    assert content(database) == {"k0": 10, "k1": 11, "new": 1}
    assert again.sink.report_leftovers(prune=True) is None
    again.write(2, [("+I", "k7", 7)])
    assert content(database)["k7"] == 7
    restart(lineage_after_rebuild(1))
    assert snapshot_tables(database) == []


def test_no_keys_are_left_over_when_all_reappear(restart: Start) -> None:
    run = restart(lineage_after_rebuild(1))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert run.sink.report_leftovers(prune=False) is None


def test_a_change_after_a_rebuild_continues_its_count(restart: Start, database: Database) -> None:
    restart(lineage_after_rebuild(1)).write(0, [("+I", "k0", 0)])
    again = restart(lineage_after_rebuild(2, origin=1))
    again.write(1, [("+U", "k1", 1)])
    assert "6 (k2, k3" in str(again.sink.report_leftovers(prune=False))
    assert len(snapshot_tables(database)) == 1


def test_a_renamed_sink_does_not_count_its_rows_as_left_over(restart: Start, database: Database) -> None:
    restart(lineage_after_rebuild(1)).write(0, [("+I", f"k{at}", at) for at in range(8)])
    database.run("UPDATE everfold_commits SET sink = 'of another place'")
    again = restart(lineage_after_rebuild(2, origin=1))
    assert again.sink.report_leftovers(prune=True) is None
    assert len(content(database)) == 8


def test_a_second_rebuild_takes_a_new_snapshot(restart: Start, database: Database) -> None:
    restart(lineage_after_rebuild(1)).write(0, [("+I", "k0", 0), ("+I", "more", 0)])
    run = restart(lineage_after_rebuild(2))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert "1 (more)" in str(run.sink.report_leftovers(prune=False))
    assert len(snapshot_tables(database)) == 1


def test_keys_that_only_later_versions_wrote_are_counted_and_pruned(restart: Start, database: Database) -> None:
    restart(lineage_after_change(1)).write(
        0, [("+U", "k0", 10), ("-D", "k7", 7), ("+I", "new", 1), ("+I", "more", 1), ("+I", "most", 1)]
    )
    restart(lineage_after_change(2)).write(1, [("+I", "last", 1), ("+I", "gone", 1)])
    run = restart(lineage_after_rollback(3, to=0))
    run.write(1, [("+I", "more", 2), ("-D", "gone", 1)])
    words = "table `totals`: keys that only later versions wrote and that did not reappear"
    assert run.sink.report_leftovers(prune=False) == f"{words}: 3 (last, most, new); --prune deletes their rows"
    again = restart(lineage_after_rollback(4, to=0, since=3))  # a change after the rollback
    again.write(2, [("+I", "most", 2)])
    assert again.sink.report_leftovers(prune=True) == f"{words}, now deleted: 2"
    assert content(database) == {**{f"k{at}": at for at in range(1, 7)}, "k0": 10, "more": 2, "most": 2}
    assert again.sink.report_leftovers(prune=True) is None


def test_keys_from_before_a_version_are_not_counted_as_its_own(restart: Start) -> None:
    restart(lineage_after_change(1)).write(0, [("+I", "new", 1)])
    restart(lineage_after_change(2)).write(1, [("+I", "last", 1)])
    run = restart(lineage_after_rollback(3, to=1))
    assert "1 (last)" in str(run.sink.report_leftovers(prune=False))


def test_without_a_snapshot_nothing_is_reported(restart: Start, database: Database) -> None:
    """The version is older than snapshots, or a user has dropped the snapshot."""
    restart(lineage_after_change(1)).write(0, [("+I", "new", 1)])
    for (name,) in database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_noted_[0-9a-f_]+$'"):
        database.run(f"DROP TABLE {name}")
    run = restart(lineage_after_rollback(2, to=0))
    assert run.sink.report_leftovers(prune=True) is None
    assert snapshot_tables(database) == []


def test_snapshots_of_expired_versions_are_dropped(restart: Start, database: Database) -> None:
    for epoch in (1, 2, 3):
        restart(lineage_after_change(epoch)).write(epoch, [("+I", f"new {epoch}", 1)])
    restart(replace(lineage_after_change(4), oldest_epoch=3)).write(4, [("+I", "last", 1)])
    found = database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_noted_[0-9a-f_]+$' ORDER BY 1")
    assert [name.rpartition("_")[2] for (name,) in found] == ["3", "4"]
    run = restart(replace(lineage_after_rollback(5, to=3), oldest_epoch=3))
    assert "1 (last)" in str(run.sink.report_leftovers(prune=False))


def test_a_rollback_over_a_rebuild_keeps_earlier_keys(restart: Start, database: Database) -> None:
    restart(lineage_after_rebuild(1)).write(0, [("+I", "k0", 0), ("+I", "new", 0)])
    run = restart(lineage_after_rollback(2, to=0))
    assert (
        run.sink.report_leftovers(prune=True)
        == "table `totals`: keys that only later versions wrote and that did not reappear, now deleted: 1"
    )
    assert sorted(content(database)) == [f"k{at}" for at in range(8)]


def test_two_sinks_of_one_table_share_what_is_left_over(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    start(None).write(0, [("+I", "a", 1), ("+I", "b", 1), ("+I", "c", 1)])
    first = start(lineage_after_rebuild(1))
    first.write(0, [("+I", "a", 2)])
    second = start(lineage_after_rebuild(1), of=TOTALS, sink="another")
    second.write(0, [("+I", "b", 2)])
    for run in (first, second):
        assert "1 (c)" in str(run.sink.report_leftovers(prune=False))


def test_a_failed_batch_removes_no_key_from_the_snapshot(restart: Start, database: Database) -> None:
    run = restart(lineage_after_rebuild(1))
    reports = run.stage(0, [("+I", "k0", 0)])
    database.run("ALTER TABLE t ADD CHECK (n > 0) NOT VALID")
    with pytest.raises(Exception, match="check constraint"):
        run.take(0, reports)
    assert "8 (k0" in str(run.sink.report_leftovers(prune=False))


def test_a_key_may_have_several_columns_in_any_order(start: Start, database: Database) -> None:
    database.run('CREATE TABLE t (b int, "a%" int, c text, UNIQUE ("a%", b))')
    database.run("INSERT INTO t VALUES (1, 1, 'x'), (1, 2, 'x'), (2, 1, 'x')")
    of = table("t", **{"a%": INT, "b": INT, "c": STRING})
    run = start(lineage_after_rebuild(1), of, "b", "a%")
    run.write(0, [("+I", 2, 1, "y")])
    assert "2 ((1, 1), (2, 1))" in str(run.sink.report_leftovers(prune=False))
    assert run.sink.report_leftovers(prune=True) == "table `t`: keys that did not reappear, now deleted: 2"
    assert database.run("SELECT * FROM t") == [(1, 2, "y")]
