"""A job that went back in its input finds the earlier keys that did not reappear, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from postgres import Database
from unit.connectors.jdbc.bench import Run, sink_of
from unit.connectors.tables import TableMaker, table

from everfold.connectors.replay import JobLineage
from everfold.types import BIGINT, INT, STRING

TOTALS = table("totals", k=STRING, n=BIGINT)
Start = Callable[..., Run]


def past_from(epoch: int, origin: int | None = None) -> JobLineage:
    """Return the past of a job that started over in this epoch, or in the epoch `origin`."""
    first = epoch if origin is None else origin
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches={epoch: None, first: None},
        rewind_epoch=first,
        first_discarded_epoch=None,
        sinks={},
    )


def changed(epoch: int) -> JobLineage:
    """The past of a job whose query was changed and that has never gone back."""
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches=dict.fromkeys(range(epoch + 1)),
        rewind_epoch=None,
        first_discarded_epoch=None,
        sinks={},
    )


def back(epoch: int, to: int, since: int | None = None) -> JobLineage:
    """The past of a job that went back to an epoch with this one, or with an earlier one."""
    return JobLineage(
        job="job",
        epoch=epoch,
        last_batches={epoch: None, to: 0},
        rewind_epoch=since or epoch,
        first_discarded_epoch=to + 1,
        sinks={},
    )


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Starts runs of a job in an epoch; a later run is the next start."""
    with ExitStack() as stack:

        def run(past: JobLineage | None, of: TableMaker = TOTALS, *key: str, sink: str = "s") -> Run:
            opened = sink_of(of, database, *(key or ("k",)))
            if past is not None:
                opened.undo_discarded_batches(past)
            made = Run(opened, name=sink, epoch=0 if past is None else past.epoch)
            stack.callback(made.close)
            return made

        yield run


@pytest.fixture
def written(start: Start, database: Database) -> Start:
    """A job that has written eight keys."""
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    start(None).write(0, [("+I", f"k{at}", at) for at in range(8)])
    return start


def content(database: Database) -> dict[str, int]:
    return dict(database.run("SELECT k, n FROM t"))


def kept(database: Database) -> list[str]:
    """The tables with keys that have not come again."""
    return [name for (name,) in database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_before_[0-9a-f_]+$' AND relkind = 'r'")]  # fmt: skip


def test_keys_that_do_not_come_again_are_counted_and_pruned(written: Start, database: Database) -> None:
    run = written(past_from(1))
    run.write(0, [("+I", "k0", 10), ("+I", "new", 1)])
    said = "table `totals`: keys that did not reappear: 7 (k1, k2, k3, k4, k5, …); --prune deletes their rows"
    assert run.sink.report_leftovers(prune=False) == said
    assert content(database) == {**{f"k{at}": at for at in range(8)}, "k0": 10, "new": 1}
    again = written(past_from(1))  # after a stop: what has come stays struck off
    again.write(1, [("+U", "k1", 11), ("-D", "k2", 2)])
    assert again.sink.report_leftovers(prune=True) == "table `totals`: keys that did not reappear, now deleted: 5"
    assert content(database) == {"k0": 10, "k1": 11, "new": 1}
    assert again.sink.report_leftovers(prune=True) is None
    again.write(2, [("+I", "k7", 7)])
    assert content(database)["k7"] == 7
    written(past_from(1))
    assert kept(database) == []


def test_nothing_is_left_over_when_all_come_again(written: Start) -> None:
    run = written(past_from(1))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert run.sink.report_leftovers(prune=False) is None


def test_a_change_of_what_was_rebuilt_goes_on_with_it(written: Start, database: Database) -> None:
    written(past_from(1)).write(0, [("+I", "k0", 0)])
    again = written(past_from(2, origin=1))
    again.write(1, [("+U", "k1", 1)])
    assert "6 (k2, k3" in str(again.sink.report_leftovers(prune=False))
    assert len(kept(database)) == 1


def test_a_sink_that_has_another_name_since_does_not_take_rows_for_left_over(
    written: Start, database: Database
) -> None:
    written(past_from(1)).write(0, [("+I", f"k{at}", at) for at in range(8)])
    database.run("UPDATE everfold_commits SET sink = 'of another place'")
    again = written(past_from(2, origin=1))
    assert again.sink.report_leftovers(prune=True) is None
    assert len(content(database)) == 8


def test_a_second_rebuild_begins_with_what_is_there_then(written: Start, database: Database) -> None:
    written(past_from(1)).write(0, [("+I", "k0", 0), ("+I", "more", 0)])
    run = written(past_from(2))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert "1 (more)" in str(run.sink.report_leftovers(prune=False))
    assert len(kept(database)) == 1


def test_keys_that_only_later_versions_wrote(written: Start, database: Database) -> None:
    written(changed(1)).write(
        0, [("+U", "k0", 10), ("-D", "k7", 7), ("+I", "new", 1), ("+I", "more", 1), ("+I", "most", 1)]
    )
    written(changed(2)).write(1, [("+I", "last", 1), ("+I", "gone", 1)])
    run = written(back(3, to=0))
    run.write(1, [("+I", "more", 2), ("-D", "gone", 1)])
    words = "table `totals`: keys that only later versions wrote and that did not reappear"
    assert run.sink.report_leftovers(prune=False) == f"{words}: 3 (last, most, new); --prune deletes their rows"
    again = written(back(4, to=0, since=3))  # changed since
    again.write(2, [("+I", "most", 2)])
    assert again.sink.report_leftovers(prune=True) == f"{words}, now deleted: 2"
    assert content(database) == {**{f"k{at}": at for at in range(1, 7)}, "k0": 10, "more": 2, "most": 2}
    assert again.sink.report_leftovers(prune=True) is None


def test_what_was_there_when_a_version_began_is_no_later_ones(written: Start) -> None:
    written(changed(1)).write(0, [("+I", "new", 1)])
    written(changed(2)).write(1, [("+I", "last", 1)])
    run = written(back(3, to=1))
    assert "1 (last)" in str(run.sink.report_leftovers(prune=False))


def test_nothing_is_said_where_nothing_was_noted(written: Start, database: Database) -> None:
    """A version of before there were notes, or whose notes somebody has removed."""
    written(changed(1)).write(0, [("+I", "new", 1)])
    for (name,) in database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_noted_[0-9a-f_]+$'"):
        database.run(f"DROP TABLE {name}")
    run = written(back(2, to=0))
    assert run.sink.report_leftovers(prune=True) is None
    assert kept(database) == []


def test_a_rollback_over_a_rebuild_keeps_what_was_there_before_it(written: Start, database: Database) -> None:
    written(past_from(1)).write(0, [("+I", "k0", 0), ("+I", "new", 0)])
    run = written(back(2, to=0))
    assert (
        run.sink.report_leftovers(prune=True)
        == "table `totals`: keys that only later versions wrote and that did not reappear, now deleted: 1"
    )
    assert sorted(content(database)) == [f"k{at}" for at in range(8)]


def test_two_sinks_of_one_table(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    start(None).write(0, [("+I", "a", 1), ("+I", "b", 1), ("+I", "c", 1)])
    first = start(past_from(1))
    first.write(0, [("+I", "a", 2)])
    second = start(past_from(1), of=TOTALS, sink="another")
    second.write(0, [("+I", "b", 2)])
    for run in (first, second):
        assert "1 (c)" in str(run.sink.report_leftovers(prune=False))


def test_a_batch_that_failed_strikes_nothing_off(written: Start, database: Database) -> None:
    run = written(past_from(1))
    reports = run.stage(0, [("+I", "k0", 0)])
    database.run("ALTER TABLE t ADD CHECK (n > 0) NOT VALID")
    with pytest.raises(Exception, match="check constraint"):
        run.take(0, reports)
    assert "8 (k0" in str(run.sink.report_leftovers(prune=False))


def test_keys_of_several_columns_in_any_order(start: Start, database: Database) -> None:
    database.run('CREATE TABLE t (b int, "a%" int, c text, UNIQUE ("a%", b))')
    database.run("INSERT INTO t VALUES (1, 1, 'x'), (1, 2, 'x'), (2, 1, 'x')")
    of = table("t", **{"a%": INT, "b": INT, "c": STRING})
    run = start(past_from(1), of, "b", "a%")
    run.write(0, [("+I", 2, 1, "y")])
    assert "2 ((1, 1), (2, 1))" in str(run.sink.report_leftovers(prune=False))
    assert run.sink.report_leftovers(prune=True) == "table `t`: keys that did not reappear, now deleted: 2"
    assert database.run("SELECT * FROM t") == [(1, 2, "y")]
