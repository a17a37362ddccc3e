"""Tables of a real PostgreSQL are read as declared, and written values are read back unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from postgres import Database
from unit.connectors.jdbc.bench import Run, sink_of
from unit.connectors.tables import TableMaker, table

from everfold.connectors.contract import Role
from everfold.connectors.jdbc import client
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    DataType,
    DecimalType,
    TimestampType,
    TimeType,
)


def read(of: TableMaker, database: Database, name: str = "t", **options: str) -> list[tuple[Any, ...]]:
    made = of.with_options(database.options(name, **options))
    pieces = check_table(made, Role.SOURCE).source().read_local(Path())
    return [tuple(row.values()) for piece in pieces for row in piece.to_pylist()]


def test_values_are_read_as_declared(database: Database) -> None:
    database.run(
        "CREATE TABLE t AS SELECT 1::int2 AS i, 1.005::numeric AS d, true AS ok, 'a\"b,\n' AS s, ''::text AS e, NULL::text AS n,"
        " '\\x00ff'::bytea AS b, '2020-02-29'::date AS day, '12:00:00.123456'::time AS t, '2020-01-01 00:00:00.123999'::timestamp AS ts,"
        " '1969-12-31 23:59:59.9999'::timestamp AS old, '2020-01-01 01:00:00+01'::timestamptz AS tz, 'Infinity'::float8 AS f, 'NaN'::float4 AS g,"
        " '{\"a\": 1}'::jsonb AS j, ARRAY[1, 2] AS xs"
    )
    of = table(
        "t", i=BIGINT, d=DecimalType(precision=10, scale=2), ok=BOOLEAN, s=STRING, e=STRING, n=STRING, b=BYTES, day=DATE, t=TimeType(precision=3),
        ts=TIMESTAMP3, old=TimestampType(precision=0), tz=TIMESTAMP_LTZ3, f=DOUBLE, g=FLOAT, j=STRING, xs=STRING,
    )  # fmt: skip
    [row] = read(of, database)
    assert row[:13] == (
        1, Decimal("1.01"), True, 'a"b,\n', "", None, b"\0\xff", date(2020, 2, 29), 43_200_123, datetime(2020, 1, 1, 0, 0, 0, 123_000),
        datetime(1969, 12, 31, 23, 59, 59), datetime(2020, 1, 1, tzinfo=UTC), float("inf"),
    )  # fmt: skip
    assert row[13] != row[13]
    assert row[14:] == ('{"a": 1}', "{1,2}")


def test_a_column_with_nulls_is_read(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT NULLIF(x, 2)::text AS s FROM generate_series(1, 3) AS x")
    assert read(table("t", s=STRING), database) == [("1",), (None,), ("3",)]


def test_partitions_of_a_table_cover_the_bounds(database: Database) -> None:
    database.run("CREATE TABLE t AS SELECT x, x % 3 AS y FROM generate_series(-5, 20) AS x")
    bounds = {
        "scan__partition__column": "x",
        "scan__partition__lower_bound": "-5",
        "scan__partition__upper_bound": "20",
    }
    of = table("t", x=INT, y=INT)
    for tasks in ("1", "4", "100"):
        assert sorted(read(of, database, **bounds, scan__partition__num=tasks)) == sorted(read(of, database))
    bounds["scan__partition__upper_bound"] = "0"  # as in Flink, rows outside the bounds are not read
    assert [x for x, _ in read(of, database, **bounds, scan__partition__num="2")] == [*range(-5, 1)]


def test_values_that_do_not_fit_are_refused(database: Database) -> None:
    database.run("CREATE TABLE t (i int8, at timestamp, d numeric)")
    with pytest.raises(ConnectorError, match=r"column `i` of `t` is bigint: it cannot be read as an INT") as caught:
        read(table("t", i=INT, x=STRING), database)
    assert len(caught.value.diagnostics) == 2
    database.run("INSERT INTO t VALUES (1, 'infinity', 1000)")
    with pytest.raises(ConnectorError, match=r"a value that the declared type cannot represent.*infinity"):
        read(table("t", at=TIMESTAMP3), database)
    with pytest.raises(ConnectorError, match="numeric field overflow"):
        read(table("t", d=DecimalType(precision=3, scale=1)), database)
    with pytest.raises(ConnectorError, match="no table `nothing`"):
        read(table("t", i=BIGINT), database, name="nothing")


def test_a_read_retries_while_the_server_is_down(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database.run("CREATE TABLE t AS SELECT 1 AS x")
    database.server.stop()
    waits: list[float] = []

    def start_server(seconds: float) -> None:
        waits.append(seconds)
        database.server.start()

    monkeypatch.setattr(client, "_pause", start_server)
    assert read(table("t", x=INT), database) == [(1,)]
    assert waits == [1]


# --- written values are read back unchanged -----------------------------------------------------

_DAYS = st.dates(date(1, 1, 1), date(9999, 12, 31))
_TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
VALUES: dict[str, tuple[DataType, str, st.SearchStrategy[Any]]] = {
    "i": (BIGINT, "int8", st.integers(-(2**63), 2**63 - 1)),
    "ok": (BOOLEAN, "bool", st.booleans()),
    "f": (DOUBLE, "float8", st.floats(allow_nan=False)),
    "g": (FLOAT, "float4", st.floats(allow_nan=False, width=32)),
    "d": (DecimalType(precision=38, scale=10), "numeric(38, 10)", st.decimals(-(10**27), 10**27, places=10)),
    "s": (STRING, "text", st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    "b": (BYTES, "bytea", st.binary()),
    "day": (DATE, "date", _DAYS),
    "t": (TimeType(precision=3), "time", st.integers(0, 86_399_999)),
    "ts": (TimestampType(precision=6), "timestamp", _TIMES),
    "tz": (TimestampType(precision=6, local_zone=True), "timestamptz", _TIMES.map(lambda each: each.replace(tzinfo=UTC))),
}  # fmt: skip
ROWS = table("t", id=INT, **{name: of for name, (of, _, _) in VALUES.items()})


def test_written_values_are_read_back_unchanged(database: Database) -> None:
    columns = ", ".join(f"{name} {real}" for name, (_, real, _) in VALUES.items())
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    run = Run(sink_of(ROWS, database, "id"))
    batches = count()

    @settings(max_examples=25)
    @given(rows=st.lists(st.tuples(*(st.none() | values for _, _, values in VALUES.values())), min_size=1, max_size=8))
    def same(rows: list[tuple[Any, ...]]) -> None:
        database.run("TRUNCATE t")
        wanted = [(at, *row) for at, row in enumerate(rows)]
        run.write(next(batches), [("+I", *row) for row in wanted])
        assert sorted(read(ROWS, database)) == wanted

    try:
        same()
    finally:
        run.close()
