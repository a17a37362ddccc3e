"""Lowering to a batch: the whole plan as Spark SQL.

It runs with `execution.runtime-mode = batch`, and is the oracle for tests of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, assert_never

from everfold.aggregates.calls import entry_of, write_spark_call
from everfold.connectors.file_order import FILE
from everfold.connectors.skipped_rows import count_null_rowtime
from everfold.plan.changelog import KIND, ORDER, RETRACTIONS, RowKind
from everfold.plan.expressions import Expr, Literal
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    Join,
    JoinKind,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Scan,
    SetKind,
    SetOperation,
    Sort,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.python_aggregates import calls_python_aggregate, collect_rows
from everfold.plan.windows import Session
from everfold.spark.scalar import Scalars
from everfold.types import DataType, FloatingType, Schema, physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JOINS = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.RIGHT: "right",
    JoinKind.FULL: "full",
    JoinKind.CROSS: "cross",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}
_START, _END, _AT = "__start", "__end", "__at"
_OF_FILES = ("filesystem", "delta")
"""Connectors whose rows have the column `FILE`."""


@dataclass(frozen=True, slots=True)
class BatchLowering:
    """Creates the batch DataFrame of a plan, columns `c0, c1, …`.

    open_source: opens the bounded content of the table that a scan reads. Rows without a time are
    not in any window; observed metrics count them.
    """

    spark: SparkSession
    zone: str
    open_source: Callable[[Scan], DataFrame]

    @property
    def _scalars(self) -> Scalars:
        return Scalars(self.spark, self.zone)

    def lower(self, node: Plan) -> DataFrame:
        """Return the rows of a plan."""
        match node:
            case Scan() | WatermarkAssigner() | ChangelogNormalize() | Project() | Filter():
                return self.rows(node, ())
            case Union():
                first, *others = (self.lower(each) for each in node.inputs)
                for each in others:
                    first = first.union(each)
                return first
            case Values():
                return self._values(node)
            case Unnest():
                frame = self._scalars.unnest(self.lower(node.input), node, ())
                if not node.outer:
                    frame = frame.where("__position IS NOT NULL")
                return frame.selectExpr(*_data(node.schema))
            case WindowTableFunction():
                return self._window_rows(node)
            case WindowAggregate() | GroupAggregate() if calls_python_aggregate(node):
                return self.lower(collect_rows(node))
            case WindowAggregate():
                return self._window_aggregate(node)
            case GroupAggregate():
                return self._group(node)
            case OverAggregate():
                from everfold.spark.over import lower_over

                return lower_over(self.rows(node.input, (ORDER,)), node, self._scalars)
            case Sort():
                return self._sort(node)
            case Limit():
                frame = self.lower(node.input)
                frame = frame.offset(node.offset) if node.offset else frame
                return frame if node.count is None else frame.limit(node.count)
            case Rank() | WindowEmit():
                raise AssertionError(node)
            case Join():
                return self._join(node)
            case SetOperation():
                return self._set_operation(node)
            case _:
                assert_never(node)

    def rows(self, node: Plan, hidden: tuple[str, ...]) -> DataFrame:
        """Return the rows of a plan with hidden columns.

        hidden: `__place`, the location of a row in its source, which is NULL if the source does not
        report it, and for rows that are not read from a source; `__order`, by which rows are sorted
        by arrival, those of older files first; below a ChangelogNormalize also `__kind`.
        """
        match node:
            case Scan():
                frame = self.open_source(node)
                return frame.selectExpr(*_data(node.schema), *(_hidden_column(frame, name) for name in hidden))
            case WatermarkAssigner():
                return self.rows(node.input, hidden)
            case ChangelogNormalize():
                return self._last_rows(node, hidden)
            case Project():
                below = self.rows(node.input, hidden)
                return self._scalars.project(below, node.expressions, len(node.input.schema), hidden)
            case Filter():
                return self.rows(node.input, hidden).where(self._scalars.render_sql(node.condition, len(node.schema)))
            case Union() if hidden:
                return reduce(
                    lambda one, other: one.union(other), (self.rows(branch, hidden) for branch in node.inputs)
                )
            case _:
                frame = self.lower(node)
                return frame.selectExpr("*", *(_hidden_column(frame, name) for name in hidden))

    def _last_rows(self, node: ChangelogNormalize, hidden: tuple[str, ...]) -> DataFrame:
        """Return the last row of each key, without keys that it deletes."""
        frame = self.rows(node.input, tuple(dict.fromkeys((*hidden, KIND, ORDER))))
        keys = ", ".join(_normalize_key(physical_name(at), node.schema[at].type) for at in node.keys)
        last = f"row_number() OVER (PARTITION BY {keys} ORDER BY {ORDER} DESC) AS __nth"
        retractions = ", ".join(map(str, RETRACTIONS))
        rows = frame.selectExpr("*", last).where(f"__nth = 1 AND {KIND} NOT IN ({retractions})")
        return rows.selectExpr(*_data(node.schema), *hidden)

    def _values(self, node: Values) -> DataFrame:
        rows = [f"({', '.join(self._scalars.render_sql(each, 0) for each in row)})" for row in node.rows]
        names = ", ".join(_data(node.schema))
        if not rows:
            nulls = ", ".join(
                f"CAST(NULL AS {of.type.spark}) AS {physical_name(at)}" for at, of in enumerate(node.schema)
            )
            return self.spark.sql(f"SELECT {nulls} WHERE FALSE")
        if all(isinstance(value, Literal) for row in node.rows for value in row):
            return self.spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t({names})")
        # An inline table does not evaluate every function.
        structs = ", ".join(f"struct{row}" for row in rows)
        return self.spark.sql(f"SELECT inline(array({structs})) AS ({names})")

    # --- windows ----------------------------------------------------------------------------------

    def _window_rows(self, node: WindowTableFunction) -> DataFrame:
        width = len(node.input.schema)
        keys = [physical_name(at) for at in node.partition_keys]
        frame = self._add_window_bounds(self.lower(node.input), node, keys, width)
        of = node.input.schema[node.time_column]
        appended = self._scalars.window_columns(_START, _END, of.type, node.zone, width)
        return frame.selectExpr(*_data(node.input.schema), *appended)

    def _window_aggregate(self, node: WindowAggregate) -> DataFrame:
        width = len(node.input.schema)
        keys = [f"{self._key(key, width)} AS __k{at}" for at, key in enumerate(node.keys)]
        in_order = _needs_order(node)
        rows = self.rows(node.input, (ORDER,) if in_order else ()).selectExpr("*", *keys)
        names = [f"__k{at}" for at in range(len(keys))]
        frame = self._add_window_bounds(rows, node, names, width)
        if in_order:
            frame = frame.repartition(*names, _START, _END).sortWithinPartitions(ORDER)
        calls = [f"{self._call(call, width)} AS __a{at}" for at, call in enumerate(node.calls)]
        grouped = self._aggregate(frame, [*names, _START, _END], calls)
        values = [*names, *(f"__a{at}" for at in range(len(calls)))]
        outputs = [f"{name} AS {physical_name(at)}" for at, name in enumerate(values)]
        of = node.input.schema[node.time_column]
        return grouped.selectExpr(
            *outputs, *self._scalars.window_columns(_START, _END, of.type, node.zone, len(values))
        )

    def _add_window_bounds(
        self, frame: DataFrame, node: WindowTableFunction | WindowAggregate, keys: Sequence[str], width: int
    ) -> DataFrame:
        """Repeat each row for every window it is in.

        Adds `__start` and `__end` in local milliseconds.
        """
        frame = self._with_time(frame, node)
        if not isinstance(node.window, Session):
            frame = frame.selectExpr("*", f"explode({self._scalars.window_ends(node.window, _AT)}) AS {_END}")
            return frame.selectExpr("*", f"{self._scalars.window_start(node.window, _END)} AS {_START}")
        gap = node.window.gap_ms
        by = f"PARTITION BY {', '.join(keys) or '0'} "
        before = f"lag({_AT}) OVER ({by} ORDER BY {_AT})"
        frame = frame.selectExpr("*", f"CASE WHEN {_AT} <= {before} + {gap}L THEN 0 ELSE 1 END AS __new")
        # Rows of one time have no order: each counts all of them.
        upto = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        frame = frame.selectExpr("*", f"sum(__new) OVER ({by} ORDER BY {_AT} {upto}) AS __session")
        whole = f"OVER (PARTITION BY {', '.join([*keys, '__session'])})"
        return frame.selectExpr("*", f"min({_AT}) {whole} AS {_START}", f"max({_AT}) {whole} + {gap}L AS {_END}")

    def _with_time(self, frame: DataFrame, node: WindowTableFunction | WindowAggregate) -> DataFrame:
        """Keep the rows that have a time, with the time in `__at`."""
        of = node.input.schema[node.time_column]
        at = self._scalars.milliseconds(physical_name(node.time_column), of.type, node.zone)
        timeless = f"{physical_name(node.time_column)} IS NULL"
        counted = count_null_rowtime(frame, timeless)
        return counted.where(f"NOT {timeless}").selectExpr("*", f"{at} AS {_AT}")

    # --- groups -----------------------------------------------------------------------------------

    def _key(self, key: Expr, width: int) -> str:
        return _normalize_key(self._scalars.render_sql(key, width), key.type)

    def _call(self, call: AggCall, width: int) -> str:
        return write_spark_call(call, lambda of: self._scalars.render_sql(of, width))

    def _group(self, node: GroupAggregate) -> DataFrame:
        width = len(node.input.schema)
        in_order = _needs_order(node)
        rows = self.rows(node.input, (ORDER,) if in_order else ())
        names = [f"__k{at}" for at in range(len(node.keys))]
        keys = zip((self._key(key, width) for key in node.keys), names, strict=True)
        frame = rows.selectExpr("*", *(f"{key} AS {name}" for key, name in keys))
        if in_order:
            frame = (frame.repartition(*names) if names else frame.coalesce(1)).sortWithinPartitions(ORDER)
        grouped = self._aggregate(
            frame, names, [f"{self._call(call, width)} AS __a{at}" for at, call in enumerate(node.calls)]
        )
        values = [*names, *(f"__a{at}" for at in range(len(node.calls)))]
        return grouped.selectExpr(*(f"{name} AS {physical_name(at)}" for at, name in enumerate(values)))

    @staticmethod
    def _aggregate(frame: DataFrame, keys: Sequence[str], calls: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        if not calls:
            return frame.select(*keys).distinct()
        return frame.groupBy(*keys).agg(*(F.expr(call) for call in calls))

    # --- the rest ---------------------------------------------------------------------------------

    def _sort(self, node: Sort) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        def column(text: str, descending: bool, nulls_first: bool) -> object:
            of = F.expr(text)
            if descending:
                return of.desc_nulls_first() if nulls_first else of.desc_nulls_last()
            return of.asc_nulls_first() if nulls_first else of.asc_nulls_last()

        width = len(node.schema)
        keys = [
            column(self._scalars.render_sql(key.expression, width), key.descending, key.nulls_first)
            for key in node.keys
        ]
        return self.lower(node.input).orderBy(*keys)  # type: ignore[arg-type]

    def _join(self, node: Join) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        width = len(node.left.schema)
        right = self.lower(node.right)
        shifted = right.selectExpr(
            *(f"{physical_name(at)} AS {physical_name(width + at)}" for at in range(len(node.right.schema)))
        )
        left = self.lower(node.left)
        if node.condition is None:
            return left.crossJoin(shifted)
        both = width + len(node.right.schema)
        return left.join(shifted, F.expr(self._scalars.render_sql(node.condition, both)), _JOINS[node.kind])

    def _set_operation(self, node: SetOperation) -> DataFrame:
        left, right = self.lower(node.left), self.lower(node.right)
        match node.kind:
            case SetKind.UNION:
                return left.union(right).distinct()
            case SetKind.INTERSECT:
                return left.intersect(right)
            case SetKind.INTERSECT_ALL:
                return left.intersectAll(right)
            case SetKind.EXCEPT:
                return left.subtract(right)
            case SetKind.EXCEPT_ALL:
                return left.exceptAll(right)
            case _:
                assert_never(node.kind)


def _data(schema: Schema) -> list[str]:
    return [physical_name(at) for at in range(len(schema))]


def _needs_order(node: WindowAggregate | GroupAggregate) -> bool:
    """Return whether a call depends on the order of rows that do not arrive in it: a shuffle has
    lost that of the last rows of keys, and Spark reads the largest files first.
    """
    return any(entry_of(call).is_ordered for call in node.calls) and any(map(_is_out_of_order, _leaves(node.input)))


def _leaves(node: Plan) -> Iterator[Plan]:
    """Yield the nodes below projections, filters, watermarks and UNION ALL."""
    match node:
        case Project() | Filter() | WatermarkAssigner():
            yield from _leaves(node.input)
        case Union():
            for branch in node.inputs:
                yield from _leaves(branch)
        case _:
            yield node


def _is_out_of_order(leaf: Plan) -> bool:
    return isinstance(leaf, ChangelogNormalize) or (isinstance(leaf, Scan) and leaf.table.connector in _OF_FILES)


def _hidden_column(frame: DataFrame, name: str) -> str:
    """Return a hidden column of a source's frame as Spark SQL."""
    if name == ORDER:
        file = FILE if FILE in frame.columns else "''"
        return f"struct({file} AS file, monotonically_increasing_id() AS number) AS {ORDER}"
    missing = f"CAST({RowKind.INSERT.value} AS TINYINT)" if name == KIND else "CAST(NULL AS STRING)"
    return name if name in frame.columns else f"{missing} AS {name}"


def _normalize_key(sql: str, data_type: DataType) -> str:
    """Return a key as Spark SQL; -0.0 and 0.0 are one key, 0.0."""
    if isinstance(data_type, FloatingType):
        return f"CASE WHEN {sql} = 0 THEN CAST(0 AS {data_type.spark}) ELSE {sql} END"
    return sql
