"""Names that could be taken for SQL, in every place of a real PostgreSQL where a name stands: they are names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from postgres import PASSWORD, Database
from unit.connectors.tables import table

from everfold.connectors.registry import connector_of
from everfold.errors import EverfoldError
from everfold.types import STRING

NAMES = [
    'a"b', "a'b", "a''b", "a;b", "a]b[c", "a)b(", "a`b", "a b", "a.b", "a,b", "a--b", "a/*b", "a\\b", "\\", "a%sb", "%(parts)s", "%", "a{}b{0}", "a\nb", "$1", "$$", ":a", "?",
    "ä€😀", "SELECT", "x); DROP TABLE victim; --", 'x"; DROP TABLE victim; --', "'; DROP TABLE victim; --", "c0", "__kind", "part", "x" * 63,
]  # fmt: skip


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def victim(database: Database) -> Database:
    """A database with a table that somebody wants to be gone."""
    database.run("CREATE TABLE victim (x int)")
    return database


@pytest.mark.parametrize("name", NAMES)
def test_databases(name: str, victim: Database) -> None:
    """A database of that name, as the URL has it."""
    full = f"{victim.name[-12:]}{name}"[:63]
    victim.run(f"CREATE DATABASE {identifier(full)}")
    try:
        with victim.server.connect(full) as connection:
            connection.execute("CREATE TABLE t (x text)")
        url = f"jdbc:postgresql://127.0.0.1:{victim.server.port}/{quote(full, safe='')}"
        made = table("t", x=STRING).with_options({**victim.options("t"), "url": url})
        assert [piece.num_rows for piece in connector_of(made).source(made).local(Path())] == [0]
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
def test_names_that_there_cannot_be(options: dict[str, str], victim: Database) -> None:
    """An error that says what is wrong, without a trace and without the password."""
    victim.run("CREATE TABLE t (x text)")
    made = table("t", x=STRING).with_options({**victim.options("t"), **options})
    from everfold.connectors.contract import SinkContext

    with pytest.raises(EverfoldError) as caught:
        connector_of(made).sink(SinkContext(name="s", base_folder=Path(), table=made)).prepare()
    assert PASSWORD not in str(caught.value)
    assert len(str(caught.value)) < 200_000
    assert victim.run("SELECT count(*) FROM victim") == [(0,)]
