"""Names that look like SQL, wherever PostgreSQL accepts a name: they are always quoted as names."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from postgres import PASSWORD, Database
from unit.connectors.jdbc.bench import Run, sink_of
from unit.connectors.lineages import lineage_after_rebuild
from unit.connectors.tables import table

from everfold.connectors.contract import AppliedBatch, Role, SinkContext
from everfold.connectors.validate import check_table
from everfold.errors import EverfoldError
from everfold.types import BIGINT, STRING

NAMES = [
    'a"b', "a'b", "a''b", "a;b", "a]b[c", "a)b(", "a`b", "a b", "a.b", "a,b", "a--b", "a/*b", "a\\b", "\\", "a%sb", "%(parts)s", "%", "a{}b{0}", "a\nb", "$1", "$$", ":a", "?",
    "ä€😀", "SELECT", "x); DROP TABLE victim; --", 'x"; DROP TABLE victim; --', "'; DROP TABLE victim; --", "c0", "__kind", "part", "x" * 63,
]  # fmt: skip


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def victim(database: Database) -> Database:
    """Create a database with a table that an injection would drop."""
    database.run("CREATE TABLE victim (x int)")
    return database


@pytest.mark.parametrize("name", NAMES)
def test_hostile_schema_table_and_column_names(name: str, victim: Database) -> None:
    """Use a hostile name for the schema, the table and its columns.

    Covers upserts, appends, key snapshots and pruning, bookkeeping, and partitioned reads.
    """
    other = f"n{name}"[:63]
    columns = f"({identifier(name)} text, {identifier(other)} bigint"
    victim.run(f"CREATE SCHEMA {identifier(name)}")
    for at in ("keyed", "added"):
        key = f", PRIMARY KEY ({identifier(name)})" if at == "keyed" else ""
        full = f"{name}{at}"[-63:]
        victim.run(f"CREATE TABLE {identifier(name)}.{identifier(full)} {columns}{key})")
        declared = table("t", **{name: STRING, other: BIGINT})
        where = f"{identifier(name)}.{identifier(full)}"
        keys = (name,) if at == "keyed" else ()
        sink = sink_of(declared, victim, *keys, name=where, sink__bookkeeping_schema=name)
        with closing(Run(sink, job=at)) as run:
            run.write(0, [("+I", "x'); DROP TABLE victim; --", 1), ("+I", "b", 2)])
            run.write(1, [("-U", "b", 2), ("+U", "b", 3)] if keys else [("+I", "b", 3)])
            assert (run.is_applied(1), sink.last_applied(at, "s")) == (True, AppliedBatch(0, 1, ""))
        later = sink_of(declared, victim, *keys, name=where, sink__bookkeeping_schema=name)
        later.undo_discarded_batches(replace(lineage_after_rebuild(1), job=at))
        with closing(Run(later, job=at, epoch=1)) as run:
            run.write(0, [("+I", "b", 4)])
            message = later.report_leftovers(prune=True)
        assert (message is not None) == bool(keys)
        made = declared.with_options(
            victim.options(
                where,
                scan__partition__column=other,
                scan__partition__num="2",
                scan__partition__lower_bound="1",
                scan__partition__upper_bound="9",
            )
        )
        rows = [
            tuple(row.values())
            for piece in check_table(made, Role.SOURCE).source().read_local(Path())
            for row in piece.to_pylist()
        ]
        assert sorted(rows) == (
            [("b", 4)] if keys else [("b", 2), ("b", 3), ("b", 4), ("x'); DROP TABLE victim; --", 1)]
        )
    assert victim.run("SELECT count(*) FROM victim") == [(0,)]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_database_names(name: str, victim: Database) -> None:
    """Use a hostile name for the database, percent-encoded in the URL."""
    full = f"{victim.name[-12:]}{name}"[:63]
    victim.run(f"CREATE DATABASE {identifier(full)}")
    try:
        with victim.server.connect(full) as connection:
            connection.execute("CREATE TABLE t (x text)")
        url = f"jdbc:postgresql://127.0.0.1:{victim.server.port}/{quote(full, safe='')}"
        made = table("t", x=STRING).with_options({**victim.options("t"), "url": url})
        assert [piece.num_rows for piece in check_table(made, Role.SOURCE).source().read_local(Path())] == [0]
    finally:
        victim.run(f"DROP DATABASE {identifier(full)} WITH (FORCE)")


@pytest.mark.parametrize(
    "options",
    [
        {"table-name": "t\0"},
        {"table-name": '"t\0"'},
        {"table-name": '"t'},
        {"table-name": 't"; DROP TABLE victim'},
        {"table-name": "a.b.c"},
        {"table-name": ""},
        {"table-name": "x" * 100_000},
        {"sink.bookkeeping-schema": "a\0b"},
        {"sink.bookkeeping-schema": 'public"; DROP TABLE victim; --'},
        {"username": "u\0"},
        {"username": "u' password='x"},
        {"password": "p\0"},
        {"url": "jdbc:postgresql://127.0.0.1:1/x\0"},
        {"url": "jdbc:postgresql://127.0.0.1:1/x%00"},
        {"url": "jdbc:postgresql://127.0.0.1:1/x' host='other"},
        {"url": "jdbc:postgresql://127.0.0.1 host=other:1/x"},
        {"url": "jdbc:postgresql://%2Ftmp/x"},
    ],
)
def test_impossible_names_are_refused(options: dict[str, str], victim: Database) -> None:
    """The error names the problem, without a traceback and without the password."""
    victim.run("CREATE TABLE t (x text)")
    made = table("t", x=STRING).with_options({**victim.options("t"), **options})
    with pytest.raises(EverfoldError) as caught:
        check_table(made, Role.SINK).sink(SinkContext(name="s", base_folder=Path(), table=made)).prepare()
    assert PASSWORD not in str(caught.value)
    assert len(str(caught.value)) < 200_000
    assert victim.run("SELECT count(*) FROM victim") == [(0,)]
