"""The sink on a real PostgreSQL: each batch is applied exactly once, wherever the job is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import psycopg
import pytest
from postgres import PASSWORD, Database
from unit.connectors.jdbc.bench import Run, rows_of, sink_of
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import AppliedBatch
from everfold.connectors.jdbc import client
from everfold.connectors.jdbc.sink import JdbcSink
from everfold.errors import ConnectorError, StateError
from everfold.storage import local
from everfold.types import BIGINT, INT, STRING

TOTALS = table("totals", k=STRING, n=BIGINT)


Start = Callable[..., Run]


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    """Return a function that starts a run of a job. By default it writes totals by key."""
    with ExitStack() as stack:

        def run(of: TableMaker = TOTALS, *key: str, epoch: int = 0, job: str = "job", read: str = "") -> Run:
            made = Run(sink_of(of, database, *key), epoch=epoch, job=job, read=read)
            stack.callback(made.close)
            return made

        yield run


@pytest.fixture
def totals(start: Start, database: Database) -> Start:
    """Return a function that starts a run of a job that writes totals by key."""
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    return partial(start, TOTALS, "k")


def content(database: Database) -> list[tuple[object, ...]]:
    return sorted(database.run("SELECT * FROM t"))


def test_the_last_row_of_a_key_wins(totals: Start, database: Database) -> None:
    run = totals()
    run.write(0, [("+I", "a", 1), ("+I", "b", 2), ("-U", "b", 2), ("+U", "b", 3), ("+I", "c", 4), ("-D", "c", 4)])
    assert content(database) == [("a", 1), ("b", 3)]
    run.write(1, [("-D", "a", 1), ("-U", "b", 3), ("+I", "d", 5)])  # a lone -U is a delete
    assert content(database) == [("d", 5)]


def test_a_new_row_in_one_part_wins_over_a_retraction_in_another(totals: Start, database: Database) -> None:
    run = totals()
    run.write(0, [("+I", "a", 1), ("+I", "b", 1)])
    run.write(1, [("+U", "a", 2), ("-D", "b", 1)], [("-U", "a", 1), ("+I", "b", 7)], [])
    assert content(database) == [("a", 2), ("b", 7)]


def test_a_task_of_several_batches_keeps_their_order(totals: Start, database: Database) -> None:
    run = totals()
    of = run.sink.table
    first, then = (
        rows_of(of, ("+I", "a", 1), ("+I", "b", 1)),
        rows_of(of, ("-U", "a", 1), ("+U", "a", 2), ("-D", "b", 1)),
    )
    [report] = [run.task(0).stage(iter([*first.to_batches(), *then.to_batches()]), 0)]
    assert (report.came, report.staged, report.back) == (5, 4, 1)
    run.take(0, [report])
    assert content(database) == [("a", 2)]


def test_a_replayed_batch_changes_nothing(totals: Start, database: Database) -> None:
    run = totals()
    run.write(0, [("+I", "a", 1)])
    database.run("UPDATE t SET n = 100")  # a second application would undo this
    assert run.is_applied(0)
    run.write(0, [("+I", "a", 1)])
    again = totals()  # as after a crash
    assert again.is_applied(0)
    again.write(0, [("+I", "a", 1)])
    assert content(database) == [("a", 100)]
    again.write(1, [("+U", "a", 2)])
    assert content(database) == [("a", 2)]
    assert database.run("SELECT job, sink, epoch, batch, rows FROM everfold_commits") == [
        ("job", "s", 0, 0, 1), ("job", "s", 0, 1, 1),
    ]  # fmt: skip


def test_a_new_epoch_is_not_a_replay_and_ends_the_old_one(totals: Start, database: Database) -> None:
    old = totals()
    old.write(0, [("+I", "a", 1)])
    old.write(1, [("+U", "a", 2)])
    new = totals(epoch=1)
    assert not new.is_applied(0)
    new.write(0, [("+U", "a", 3)])
    assert content(database) == [("a", 3)]
    other = totals(job="another")
    assert not other.is_applied(0)
    other.write(0, [("+I", "b", 1)])
    with pytest.raises(StateError, match="another run of this job writes to it now"):
        old.take(2, [])
    assert content(database) == [("a", 3), ("b", 1)]


def test_rows_staged_before_a_crash_are_discarded(totals: Start, database: Database) -> None:
    first = totals()
    first.write(0, [("+I", "a", 1)])
    first.stage(1, [("+U", "a", 5)], [("+I", "zombie", 1)])  # the driver is killed here
    again = totals()
    again.stage(1, [("+I", "attempt that failed", 1)])
    again.write(1, [("+U", "a", 2)])
    assert content(database) == [("a", 2)]
    staging = again.merge.staging.as_string()
    assert database.run(f"SELECT count(*) FROM {staging}") == [(0,)]
    again.sink.close()
    assert database.run("SELECT count(*) FROM pg_class WHERE relname LIKE 'everfold_staging%'") == [(0,)]


def test_missing_staged_rows_are_detected(totals: Start, database: Database) -> None:
    run = totals()
    reports = run.stage(0, [("+I", "a", 1)])
    database.run(f"TRUNCATE {run.merge.staging.as_string()}")
    with pytest.raises(ConnectorError) as caught:
        run.take(0, reports)
    assert caught.value.code == "staging-lost"
    assert content(database) == []
    assert not run.is_applied(0)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_unreachable_server_is_retried(
    totals: Start, database: Database, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    server = database.server
    waits: list[float] = []

    def start_after_two_waits(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            server.start()

    monkeypatch.setattr(client, "_pause", start_after_two_waits)
    run = totals()
    run.write(0, [("+I", "a", 1)])
    getattr(server, end)()
    reports = run.stage(1, [("+U", "a", 2)], [("+I", "b", 1)])
    assert waits == [1, 2]
    waits.clear()
    getattr(server, end)()
    run.take(1, reports)
    assert waits == [1, 2]
    assert content(database) == [("a", 2), ("b", 1)]


def test_a_server_that_stays_down_stops_the_job_without_loss(
    totals: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client, "_pause", waits.append)
    run = totals()
    run.write(0, [("+I", "a", 1)])
    reports = run.stage(1, [("+U", "a", 2)])
    database.server.kill()
    with pytest.raises(psycopg.OperationalError) as gone:
        run.take(1, reports)
    assert waits == [1, 2, 4]
    error = client.explain_error(gone.value, "totals", run.sink.address)
    assert (error.code, PASSWORD in str(error)) == ("jdbc-unreachable", False)
    assert "no row is lost" in str(error)
    run.sink.close()
    database.server.start()
    again = totals()
    assert content(database) == [("a", 1)]
    assert not again.is_applied(1)
    again.write(1, [("+U", "a", 2)])
    assert content(database) == [("a", 2)]


def test_a_commit_without_an_answer_is_detected(
    totals: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut after the commit, before the client receives the answer. The second try
    finds the record.
    """
    monkeypatch.setattr(client, "_pause", lambda _: None)
    run = totals()
    reports = run.stage(0, [("+I", "a", 1)])
    tries = []

    def take(connection: client.Connection) -> None:
        tries.append(1)
        run.merge.apply(connection, run.id(0), reports)
        if len(tries) == 1:
            database.run("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
            connection.execute("SELECT 1")

    run.link.run(take)
    assert len(tries) == 2
    assert content(database) == [("a", 1)]


def test_a_copy_without_an_answer_is_repeated(
    totals: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_pause", lambda _: None)
    run = totals()
    copies = []
    plain = client.Link._open

    def record_connection(link: client.Link) -> client.Connection:
        connection = plain(link)
        copies.append(connection.info.backend_pid)
        return connection

    monkeypatch.setattr(client.Link, "_open", record_connection)
    from everfold.connectors.jdbc import staging

    copy = staging._Copy.__call__

    def copy_and_cut(self: staging._Copy, connection: client.Connection) -> None:
        known = self.tried
        copy(self, connection)
        if not known:
            database.run("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
            connection.execute("SELECT 1")

    monkeypatch.setattr(staging._Copy, "__call__", copy_and_cut)
    reports = run.stage(0, [("+I", "a", 1), ("+I", "b", 2)])
    assert len(set(copies)) == 2
    run.take(0, reports)
    assert content(database) == [("a", 1), ("b", 2)]


def test_without_a_key_rows_are_appended(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (id serial, k text, n numeric(20, 0))")
    run = start()
    run.write(0, [("+I", "a", 1), ("+I", "a", 1)], [("+I", None, None)])
    run.write(0, [("+I", "a", 1)])
    assert sorted(database.run("SELECT k, n FROM t"), key=str) == [("a", Decimal(1)), ("a", Decimal(1)), (None, None)]


def test_a_value_of_some_megabytes_is_written(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (k text, n bigint)")
    values = ["a" * (3 << 20), '"\n' * (1 << 20), "é" * (5 << 20)]
    start().write(0, [("+I", value, number) for number, value in enumerate(values)])
    assert [value for value, _ in database.run("SELECT k, n FROM t ORDER BY n")] == values


def test_a_table_may_consist_of_its_key_only(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (b int, a int, UNIQUE (a, b))")
    run = start(table("t", a=INT, b=INT), "b", "a")
    run.write(0, [("+I", 1, 2), ("+I", 1, 3), ("+I", 1, 2)])
    run.write(1, [("-D", 1, 3), ("+U", 1, 2)])
    assert database.run("SELECT a, b FROM t") == [(1, 2)]


def test_a_row_that_postgres_refuses_is_reported(start: Start, database: Database) -> None:
    database.run("CREATE TABLE t (k varchar(3) PRIMARY KEY, n bigint CHECK (n > 0))")
    run = start(TOTALS, "k")

    def write_refused(*rows: tuple[object, ...]) -> str:
        with pytest.raises((RuntimeError, psycopg.Error)) as caught:
            run.write(0, rows)
        if isinstance(caught.value, psycopg.Error):
            return str(run.sink._explain(caught.value))
        return str(caught.value)

    assert "`k`: value too long for type character varying(3)" in write_refused(("+I", "toolong", 1))
    assert "a string in column `k` contains U+0000" in write_refused(("+I", "a\0", 1))
    assert "`k` is NULL, and it is part of the PRIMARY KEY" in write_refused(("+I", None, 1))
    assert 'violates check constraint "t_n_check"' in write_refused(("+I", "a", 0), ("+I", "b", 1))
    assert content(database) == []
    assert not run.is_applied(0)


def test_the_commit_table_keeps_the_last_50_batches(totals: Start, database: Database) -> None:
    run = totals()
    for batch in range(53):
        run.write(batch, [("+U", "a", batch)])
    assert database.run("SELECT min(batch), max(batch), count(*) FROM everfold_commits") == [(3, 52, 50)]
    assert run.is_applied(52)


# --- a job directory that is older than the table -------------------------------------------------


@pytest.mark.parametrize("key", [("k",), ()], ids=["upsert", "append"])
def test_a_batch_of_an_older_checkpoint_is_refused(start: Start, database: Database, key: tuple[str, ...]) -> None:
    database.run("CREATE TABLE t (k text, n bigint, UNIQUE (k))")
    run = start(TOTALS, *key, read="input")
    for batch in range(3):
        run.write(batch, [("+I", f"k{batch}", batch)])
    before = content(database)
    restored = start(TOTALS, *key, read="input")
    assert restored.is_applied(2)  # a crash between the sink's commit and Spark's
    with pytest.raises(StateError, match=r"sink-ahead.*it holds batch 2 of the job, and .* only at batch 1"):
        restored.write(1, [("+I", "other", 1)])
    other = start(TOTALS, *key, read="other input")
    with pytest.raises(StateError, match=r"sink-ahead.*its batch 2 read other input than batch 2"):
        other.write(2, [("+I", "other", 1)])
    assert content(database) == before
    restored = start(TOTALS, *key, read="input")
    restored.write(3, [("+I", "k3", 3)])
    assert len(content(database)) == 4


def test_records_of_earlier_versions_are_readable(start: Start, database: Database) -> None:
    """`everfold_commits` as it was created before digests."""
    database.run("CREATE TABLE t (k text PRIMARY KEY, n bigint)")
    database.run(
        "CREATE TABLE everfold_commits (job text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, batch bigint NOT NULL,"
        " rows bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (job, sink, epoch, batch))"
    )
    database.run("INSERT INTO everfold_commits (job, sink, epoch, batch, rows) VALUES ('job', 's', 0, 7, 1)")
    sink = sink_of(TOTALS, database, "k")
    sink.prepare()
    assert sink.last_applied("job", "s") == AppliedBatch(0, 7)
    assert sink.last_applied("job", "t") is None
    run = start(TOTALS, "k", read="input")
    assert run.is_applied(7)
    with pytest.raises(StateError, match="sink-ahead"):
        run.is_applied(6)
    run.write(8, [("+I", "a", 1)])
    assert sink.last_applied("job", "s") == AppliedBatch(0, 8, "input 8")


def test_another_job_with_the_same_query_is_detected(database: Database) -> None:
    database.run("CREATE TABLE t (k text, n bigint)")

    def sink(query: str, *key: str) -> JdbcSink:
        made = sink_of(TOTALS, database, *key)
        made.context = replace(made.context, query=query, job_folder=local(Path("/jobs") / query))
        made.prepare()
        return made

    first = Run(sink("a"), job="first")
    assert sink("a").find_other_job("second") is None
    first.write(0, [("+I", "a", 1)])
    first.close()
    assert sink("a").find_other_job("second") == "/jobs/a"
    assert sink("a").find_other_job("first") is None
    assert sink("b").find_other_job("second") is None
    database.run("TRUNCATE t")
    assert sink("a").find_other_job("second") is None
