"""A job that began anew finds the keys of before that did not come again, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from postgres import Database
from unit.connectors.jdbc.bench import Run, sink_of
from unit.connectors.tables import TableMaker, table

from everfold.connectors.again import Past
from everfold.types import BIGINT, INT, STRING

TOTALS = table("totals", k=STRING, n=BIGINT)
Start = Callable[..., Run]


def anew(epoch: int, origin: int | None = None) -> Past:
    """The past of a job that began anew in this epoch, or in an earlier one."""
    first = epoch if origin is None else origin
    return Past(job="job", epoch=epoch, last={epoch: None, first: None}, origin=first, sinks={})


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Starts runs of a job in an epoch; a later run is the next start."""
    with ExitStack() as stack:

        def run(past: Past | None, of: TableMaker = TOTALS, *key: str) -> Run:
            sink = sink_of(of, database, *(key or ("k",)))
            if past is not None:
                sink.go_back(past)
            made = Run(sink, epoch=0 if past is None else past.epoch)
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
    """The tables with keys of before."""
    return [name for (name,) in database.run("SELECT relname FROM pg_class WHERE relname ~ '^everfold_before_[0-9a-f_]+$' AND relkind = 'r'")]  # fmt: skip


def test_keys_that_do_not_come_again_are_counted_and_pruned(written: Start, database: Database) -> None:
    run = written(anew(1))
    run.write(0, [("+I", "k0", 10), ("+I", "new", 1)])
    said = "table `totals`: keys that did not come again: 7 (k1, k2, k3, k4, k5, …); --prune deletes their rows"
    assert run.sink.left_over(prune=False) == said
    assert content(database) == {**{f"k{at}": at for at in range(8)}, "k0": 10, "new": 1}
    again = written(anew(1))  # after a stop: what has come stays struck off
    again.write(1, [("+U", "k1", 11), ("-D", "k2", 2)])
    assert again.sink.left_over(prune=True) == "table `totals`: keys that did not come again, now deleted: 5"
    assert content(database) == {"k0": 10, "k1": 11, "new": 1}
    assert again.sink.left_over(prune=True) is None
    again.write(2, [("+I", "k7", 7)])
    assert content(database)["k7"] == 7
    written(anew(1))
    assert kept(database) == []


def test_nothing_is_left_over_when_all_come_again(written: Start) -> None:
    run = written(anew(1))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert run.sink.left_over(prune=False) is None


def test_a_change_of_what_was_rebuilt_goes_on_with_it(written: Start, database: Database) -> None:
    written(anew(1)).write(0, [("+I", "k0", 0)])
    changed = written(anew(2, origin=1))
    changed.write(1, [("+U", "k1", 1)])
    assert "6 (k2, k3" in str(changed.sink.left_over(prune=False))
    assert len(kept(database)) == 1


def test_a_sink_that_has_another_name_since_does_not_take_rows_for_left_over(
    written: Start, database: Database
) -> None:
    written(anew(1)).write(0, [("+I", f"k{at}", at) for at in range(8)])
    database.run("UPDATE everfold_commits SET sink = 'of another place'")
    changed = written(anew(2, origin=1))
    assert changed.sink.left_over(prune=True) is None
    assert len(content(database)) == 8


def test_a_second_rebuild_begins_with_what_is_there_then(written: Start, database: Database) -> None:
    written(anew(1)).write(0, [("+I", "k0", 0), ("+I", "more", 0)])
    run = written(anew(2))
    run.write(0, [("+I", f"k{at}", at) for at in range(8)])
    assert "1 (more)" in str(run.sink.left_over(prune=False))
    assert len(kept(database)) == 1


def test_a_rollback_forgets_them(written: Start, database: Database) -> None:
    written(anew(1)).write(0, [("+I", "k0", 0)])
    run = written(Past(job="job", epoch=2, last={2: None, 0: 0}, origin=0, sinks={}))
    assert run.sink.left_over(prune=True) is None
    assert kept(database) == []
    assert len(content(database)) == 8


def test_a_batch_that_failed_strikes_nothing_off(written: Start, database: Database) -> None:
    run = written(anew(1))
    reports = run.stage(0, [("+I", "k0", 0)])
    database.run("ALTER TABLE t ADD CHECK (n > 0) NOT VALID")
    with pytest.raises(Exception, match="check constraint"):
        run.take(0, reports)
    assert "8 (k0" in str(run.sink.left_over(prune=False))


def test_keys_of_several_columns_in_any_order(start: Start, database: Database) -> None:
    database.run('CREATE TABLE t (b int, "a%" int, c text, UNIQUE ("a%", b))')
    database.run("INSERT INTO t VALUES (1, 1, 'x'), (1, 2, 'x'), (2, 1, 'x')")
    of = table("t", **{"a%": INT, "b": INT, "c": STRING})
    run = start(anew(1), of, "b", "a%")
    run.write(0, [("+I", 2, 1, "y")])
    assert "2 ((1, 1), (2, 1))" in str(run.sink.left_over(prune=False))
    assert run.sink.left_over(prune=True) == "table `t`: keys that did not come again, now deleted: 2"
    assert database.run("SELECT * FROM t") == [(1, 2, "y")]
