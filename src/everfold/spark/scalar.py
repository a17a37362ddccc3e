"""The scalar part of a plan for Catalyst: projections, unnesting, assignment of windows to rows.

It is the same in a stream and in a batch. Data columns are `c0, c1, …`; hidden columns of a stream
are passed through unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from everfold.plan.expressions import Expr, InputRef, Literal, PythonCall
from everfold.plan.nodes import Unnest
from everfold.plan.windows import Cumulate, Hop, SlicedWindow, Tumble
from everfold.spark.python import python_column
from everfold.spark.regex_functions import add_regex_functions
from everfold.sql.functions.render import to_spark
from everfold.sql.functions.writer import RenderContext
from everfold.types import ArrayType, DataType, MapType, MultisetType, RowType, TimestampType, physical_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Scalars:
    """Renders expressions over a frame's data columns as Spark SQL.

    spark: the session, to which the functions that they call are added. zone: its time zone.
    """

    spark: SparkSession
    zone: str

    def render_sql(self, expression: Expr, width: int, guard: str | None = None) -> str:
        """Return an expression as Spark SQL of exactly its type.

        guard: a condition without which the expression is not evaluated and the result is NULL.
        """
        columns = [physical_name(at) for at in range(width)]
        text = to_spark(expression, columns, RenderContext(zone=self.zone))
        add_regex_functions(self.spark, text)
        if guard is None or isinstance(expression, InputRef | Literal):
            return text
        return f"CASE WHEN {guard} THEN {text} END"

    def milliseconds(self, text: str, of: DataType, zone: str | None = None) -> str:
        """Return a timestamp as BIGINT milliseconds of its wall clock.

        For TIMESTAMP_LTZ that is the wall clock in `zone`, or the instant if none is given.
        """
        assert isinstance(of, TimestampType)
        if not of.local_zone:
            return f"unix_millis(CAST({text} AS TIMESTAMP))"
        if zone is None or zone == "UTC":
            return f"unix_millis({text})"
        return f"unix_millis(CAST(convert_timezone('UTC', '{zone}', CAST({text} AS TIMESTAMP_NTZ)) AS TIMESTAMP))"

    def project(
        self, frame: DataFrame, expressions: Sequence[Expr], width: int, hidden: Sequence[str], guard: str | None = None
    ) -> DataFrame:
        """Project to one column per expression and the hidden columns."""
        from pyspark.sql import functions as F  # noqa: N812

        outputs = (self._column(each, width, guard).alias(physical_name(at)) for at, each in enumerate(expressions))
        return frame.select(*outputs, *map(F.expr, hidden))

    def _column(self, expression: Expr, width: int, guard: str | None) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        if isinstance(expression, PythonCall):
            return python_column(expression, [self.render_sql(arg, width, guard) for arg in expression.args], guard)
        return F.expr(self.render_sql(expression, width, guard))

    def unnest(self, frame: DataFrame, node: Unnest, hidden: Sequence[str], guard: str | None = None) -> DataFrame:
        """Join each row with its elements; `__position` is NULL for a row without elements."""
        width = len(node.input.schema)
        carried = [physical_name(at) for at in range(width)]
        of = node.collection.type
        collection = self.render_sql(node.collection, width, guard)
        names = "__position, __element"
        if isinstance(of, MultisetType):
            each = "e -> array_repeat(e.key, e.value)"
            collection = f"flatten(transform(map_entries({collection}), {each}))"
        elif isinstance(of, MapType):
            names = "__position, __key, __value"
        exploded = frame.selectExpr(*carried, *hidden, f"posexplode_outer({collection}) AS ({names})")
        if isinstance(of, MapType) and not isinstance(of, MultisetType):
            parts = ["__key", "__value"]
        else:
            assert isinstance(of, ArrayType | MultisetType)
            element = of.element if isinstance(of, ArrayType) else of.key
            parts = (
                [f"__element.`{field.name}`" for field in element.fields]
                if isinstance(element, RowType)
                else ["__element"]
            )
        if node.ordinality:
            parts.append("CAST(__position + 1 AS INT)")
        assert len(parts) == len(node.fields)
        appended = (f"{part} AS {physical_name(width + at)}" for at, part in enumerate(parts))
        return exploded.selectExpr(*carried, *appended, *hidden, "__position")

    def window_ends(self, window: SlicedWindow, at: str) -> str:
        """Return SQL for the array of the ends (ms) of the windows that contain `at` (ms)."""
        width, offset = window.slice_ms, window.offset_ms
        end = f"({at} - pmod({at} - {offset}L, {width}L) + {width}L)"
        match window:
            case Tumble():
                return f"array({end})"
            case Hop():
                last = f"({end} + {window.size_ms - window.slice_ms}L)"
                if window.is_whole_slides:
                    return f"sequence({end}, {last}, {window.slide_ms}L)"
                first = f"({end} + pmod({window.size_ms + offset}L - {end}, {window.slide_ms}L))"
                ends = f"sequence({first}, {last}, {window.slide_ms}L)"
                none = "CAST(array() AS ARRAY<BIGINT>)"
                return f"CASE WHEN {first} <= {last} THEN {ends} ELSE {none} END" if window.has_gaps else ends
            case Cumulate():
                last = f"({at} - pmod({at} - {offset}L, {window.size_ms}L) + {window.size_ms}L)"
                return f"sequence({end}, {last}, {window.step_ms}L)"
            case _:
                assert_never(window)

    def window_start(self, window: SlicedWindow, end: str) -> str:
        """Return SQL for the start (ms) of the window with the end `end` (ms)."""
        if isinstance(window, Cumulate):
            return f"({end} - 1L - pmod({end} - 1L - {window.offset_ms}L, {window.size_ms}L))"
        return f"({end} - {window.size_ms}L)"

    def window_columns(self, start: str, end: str, time_type: DataType, zone: str | None, first: int) -> list[str]:
        """Return window_start, window_end and window_time as columns from position `first`.

        start, end: SQL of the bounds in local milliseconds.
        """
        assert isinstance(time_type, TimestampType)
        last = f"({end} - 1L)"
        if time_type.precision < 3:
            last = f"({last} - pmod({last}, {10 ** (3 - time_type.precision)}L))"
        time = f"CAST(timestamp_millis({last}) AS TIMESTAMP_NTZ)"
        if time_type.local_zone:
            time = f"CAST(convert_timezone('{zone or 'UTC'}', 'UTC', {time}) AS TIMESTAMP)"
        return [
            f"CAST(timestamp_millis({start}) AS TIMESTAMP_NTZ) AS {physical_name(first)}",
            f"CAST(timestamp_millis({end}) AS TIMESTAMP_NTZ) AS {physical_name(first + 1)}",
            f"{time} AS {physical_name(first + 2)}",
        ]
