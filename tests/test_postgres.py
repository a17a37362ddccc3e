"""The test server keeps its data and its port across a stop and a kill."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest
from postgres import Database, PostgresServer, copy_programs, find_programs


def test_data_and_port_outlive_stop_and_kill(postgres_server: PostgresServer, database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT 7 AS x")
    for end in (postgres_server.stop, postgres_server.kill):
        end()
        with pytest.raises(psycopg.OperationalError):
            database.run("SELECT 1")
        postgres_server.start()
        assert database.run("SELECT x FROM t") == [(7,)]


def test_it_asks_for_a_password(database: Database) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(
            host="127.0.0.1", port=database.server.port, user="everfold", password="x", dbname=database.name
        )


def test_a_copy_of_the_programs_finds_its_libraries(tmp_path: Path) -> None:
    """A copy is run if the environment is in a directory that `nobody` may not enter."""
    programs = copy_programs(find_programs(), tmp_path)
    done = subprocess.run([programs / "initdb", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("initdb (PostgreSQL) ")
