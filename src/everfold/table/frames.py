"""Spark DataFrames as tables: their types as Flink types, their rows under physical column
names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from everfold.engine_literals import spark_identifier
from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Table, TableColumn
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampType,
    physical_name,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as spark_types

LocalTable: TypeAlias = "pd.DataFrame | pl.DataFrame | pa.Table"
"""A table in the memory of this process."""

_SIMPLE: dict[str, DataType] = {
    "boolean": BOOLEAN,
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "binary": BYTES,
    "date": DATE,
    "timestamp": TimestampType(precision=3, local_zone=True),
    "timestamp_ntz": TimestampType(precision=3),
}
"""Flink types by the simple name of the Spark type.

Timestamps get precision 3, so that they can be time attributes, as in Flink.
"""


def to_spark_frame(frame: DataFrame | LocalTable, start: Callable[[], SparkSession]) -> DataFrame:
    """Return a table as a DataFrame of Spark.

    start: starts Spark, for the table of another library. Raises UnsupportedFeature
    `unsupported-type` if it is not a table.
    """
    match type(frame).__module__.partition(".")[0]:
        case "pyspark":
            return cast("DataFrame", frame)
        case "pyarrow":
            rows = cast("pa.Table", frame)
        case "polars":
            rows = cast("pl.DataFrame", frame).to_arrow()
        case "pandas":
            import pyarrow as pa

            rows = pa.Table.from_pandas(cast("pd.DataFrame", frame), preserve_index=False)
        case _:
            raise UnsupportedFeature.of(
                "unsupported-type",
                f"a `{type(frame).__name__}` is not a table",
                help="pass a DataFrame of Spark, pandas or Polars, or an Arrow table",
            )
    return start().createDataFrame(rows)


def flink_type(of: spark_types.DataType, column: str) -> DataType:
    """Return the Flink type of a Spark type.

    Raises UnsupportedFeature `unsupported-type` if there is none.
    """
    from pyspark.sql import types as spark_types

    match of:
        case spark_types.DecimalType():
            return DecimalType(precision=of.precision, scale=of.scale)
        case spark_types.ArrayType():
            return ArrayType(element=flink_type(of.elementType, column))
        case spark_types.MapType():
            return MapType(key=flink_type(of.keyType, column), value=flink_type(of.valueType, column))
        case spark_types.StructType():
            fields = (RowField(name=each.name, type=flink_type(each.dataType, column)) for each in of.fields)
            return RowType(fields=tuple(fields))
    found = _SIMPLE.get(of.simpleString())
    if found is None:
        raise UnsupportedFeature.of(
            "unsupported-type",
            f"column `{column}` has the Spark type {of.simpleString()}, which Flink SQL does not have",
        )
    return found


def table_of(name: str, frame: DataFrame) -> Table:
    """Return a table with the columns of a DataFrame."""
    columns = (TableColumn(name=of.name, type=flink_type(of.dataType, of.name)) for of in frame.schema.fields)
    return Table(name=name, columns=tuple(columns))


def move_to_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the same frame in another session, whose conf then applies to plans built on it."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm: Any = spark._jvm
    plan = frame._jdf.queryExecution().analyzed()
    return ClassicFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


@dataclass(frozen=True, slots=True)
class FrameReader:
    """Reads a DataFrame as a table: its columns under physical names."""

    frame: DataFrame

    def __call__(self, spark: SparkSession, name: str, table: Table) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        columns = (spark_identifier(column.name) for column in table.columns)
        return move_to_session(self.frame, spark).select(
            *(F.col(each).alias(physical_name(at)) for at, each in enumerate(columns))
        )
