"""Filter a table in memory by a SQL condition, evaluated by DuckDB."""

from __future__ import annotations

from datetime import tzinfo
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from everfold.errors import UsageError
from everfold.operators.time_zones import zone_of
from everfold.types import DataType, Schema, TimestampType, TimeType

_NUMBER = "__number"


class NoSuchColumn(Exception):
    """The condition refers to columns that the table lacks; the message says which."""


def check_condition(condition: str) -> None:
    """Raise UsageError `wrong-condition` if the string is not a SQL condition.

    Columns are not checked.
    """
    try:
        duckdb.SQLExpression(condition)
    except duckdb.Error as error:
        raise _wrong(condition, error) from error


def filter_rows(table: pa.Table, schema: Schema, condition: str, zone: str) -> pa.Table:
    """Return the rows for which a condition over the columns, by name, is TRUE.

    TIMESTAMP_LTZ is compared as the wall clock in `zone`. Reads nothing but the table. Raises
    NoSuchColumn, UsageError `wrong-condition`.
    """
    columns = [_comparable(table.column(at), of.type, zone) for at, of in enumerate(schema)]
    numbers = pa.array(np.arange(table.num_rows))
    with duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": False}) as connection:
        connection.register("state", pa.table([*columns, numbers], names=[*schema.names, _NUMBER]))
        try:
            rows = connection.table("state").filter(duckdb.SQLExpression(condition))
            matching = rows.select(_NUMBER).to_arrow_table()
        except duckdb.BinderException as error:
            raise NoSuchColumn(_reason(error)) from error
        except duckdb.Error as error:
            raise _wrong(condition, error) from error
    return table.take(matching.column(0).combine_chunks().sort())


def _wrong(condition: str, error: duckdb.Error) -> UsageError:
    found = UsageError.of(
        "wrong-condition",
        f"the condition `{condition}` cannot be evaluated: {_reason(error)}",
        help='put names that are not plain identifiers in double quotes: "SUM(price)" > 10',
    )
    assert isinstance(found, UsageError)
    return found


def _comparable(column: pa.ChunkedArray, of: DataType, zone: str) -> pa.ChunkedArray:
    """Convert a column to the form in which conditions compare it: times as they are displayed."""
    match of:
        case TimeType():
            return column.cast(pa.time32("ms"))
        case TimestampType(local_zone=True):
            return pa.chunked_array([_local(pl.Series(pl.from_arrow(column)), zone_of(zone)).to_arrow()])
        case _:
            return column


def _local(instants: pl.Series, zone: tzinfo) -> pl.Series:
    """Convert instants to the wall clock."""
    if isinstance(zone, ZoneInfo):
        return instants.dt.convert_time_zone(zone.key).dt.replace_time_zone(None)
    return instants.dt.replace_time_zone(None) + zone.utcoffset(None)


def _reason(error: duckdb.Error) -> str:
    """Return the first line of DuckDB's error message, without the kind of the error."""
    return str(error).partition("\n")[0].partition(": ")[2]
