"""Connections to DuckDB: one database per process, on one thread, in UTC."""

from __future__ import annotations

from functools import lru_cache

import duckdb


def connect() -> duckdb.DuckDBPyConnection:
    """Return a new connection to the database of this process."""
    connection = _open_database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@lru_cache(maxsize=1)
def _open_database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process, which has no tables.

    Opening a database costs more than most batches of a test.
    """
    return duckdb.connect(":memory:", config={"threads": 1})
