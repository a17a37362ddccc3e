"""The in-process batch runner: the whole plan, windows included, as one DuckDB query.

It shares no code with the operators.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from everfold.aggregates.calls import arguments_of, filter_condition_of, looks_up_row, write_duckdb_call
from everfold.memory.duck import Duck, physical_names
from everfold.memory.python import project
from everfold.plan.changelog import KIND, RETRACTIONS
from everfold.plan.emitted_changes import check_batch_input
from everfold.plan.expressions import Expr
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    Frame,
    GroupAggregate,
    Join,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Root,
    Scan,
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
from everfold.sql.settings import Settings
from everfold.types import DataType, DateType, DecimalType, FloatingType, TimestampType, physical_name

_ARRIVAL = "__arrival"
"""Column that numbers the rows of a table in the order of their arrival."""


def relation_of(duck: Duck, plan: Plan, rows: Mapping[str, pa.Table]) -> str:
    """Return a plan over bounded input as SQL.

    rows: by table, with columns `c0, …` as in the table's scan.
    """
    return _Query(duck, rows).relation(plan)


def run_batch(
    root: Root, rows: Mapping[str, pa.Table], settings: Settings | None = None, *, now_ms: int | None = None
) -> pa.Table:
    """Run a query over bounded input and return its result.

    rows: by table, with columns `c0, …` as in the table's scan. Raises UnsupportedFeature
    `changes-in-batch`.
    """
    check_batch_input(root.input, streaming=False)
    settings = settings or Settings.of()
    duck = Duck(settings.local_time_zone, int(time.time() * 1000) if now_ms is None else now_ms)
    return duck.rows(relation_of(duck, root.input, rows), root.input.schema)


@dataclass(slots=True)
class _Query:
    duck: Duck
    rows: Mapping[str, pa.Table]

    def relation(self, node: Plan) -> str:
        """Return the rows of a node as SQL."""
        duck = self.duck
        match node:
            case Scan():
                return self._scan(node)
            case Values():
                return duck.values(node.rows, node.schema)
            case WatermarkAssigner():
                return self.relation(node.input)
            case ChangelogNormalize():
                return self._last_rows(node)
            case Project():
                return project(duck, self.relation(node.input), node.expressions, len(node.input.schema))
            case Filter():
                return duck.filter(self.relation(node.input), node.condition, len(node.schema))
            case Union():
                return " UNION ALL ".join(f"({self.relation(each)})" for each in node.inputs)
            case Unnest():
                return duck.unnest(self.relation(node.input), node)
            case WindowTableFunction():
                return self._window_rows(node)
            case WindowAggregate() | GroupAggregate() if calls_python_aggregate(node):
                return self.relation(collect_rows(node))
            case WindowAggregate():
                return self._window_aggregate(node)
            case GroupAggregate():
                inner = self._add_call_inputs(self.relation(node.input), node.keys, node.calls, len(node.input.schema))
                return self._group(inner, node.calls, len(node.keys), [])
            case OverAggregate():
                return self._over(node)
            case Sort():
                return self._sort(node)
            case Limit():
                count = "" if node.count is None else f" LIMIT {node.count}"
                return f"SELECT * FROM ({self.relation(node.input)}){count}" + (
                    f" OFFSET {node.offset}" if node.offset else ""
                )
            case Rank() | WindowEmit():
                raise AssertionError(node)
            case Join():
                return duck.join(self.relation(node.left), self.relation(node.right), node)
            case SetOperation():
                return f"({self.relation(node.left)}) {node.kind.value} ({self.relation(node.right)})"
            case _:
                assert_never(node)

    def _last_rows(self, node: ChangelogNormalize) -> str:
        """Return the last row of each key, without keys that it deletes."""
        keys = ", ".join(self._normalize_key(physical_name(at), node.schema[at].type) for at in node.keys)
        last = f"row_number() OVER (PARTITION BY {keys} ORDER BY {_ARRIVAL} DESC)"
        ranked = f"SELECT *, {last} AS __nth FROM ({self._changes(node.input)})"
        retractions = ", ".join(map(str, RETRACTIONS))
        columns = ", ".join(physical_names(node.schema))
        return f"SELECT {columns} FROM ({ranked}) WHERE __nth = 1 AND {KIND} NOT IN ({retractions}) ORDER BY {_ARRIVAL}"

    def _changes(self, node: Plan) -> str:
        """Return the rows of a node below a ChangelogNormalize, with their kinds and arrival."""
        hidden = (KIND, _ARRIVAL)
        match node:
            case Scan():
                table = self._table(node)
                if KIND not in table.column_names:
                    table = table.append_column(KIND, pa.repeat(pa.scalar(0, pa.int8()), table.num_rows))
                table = table.append_column(_ARRIVAL, pa.array(range(table.num_rows), pa.int64()))
                return self.duck.register_table(table, node.schema, hidden)
            case Project():
                below = self._changes(node.input)
                return project(self.duck, below, node.expressions, len(node.input.schema), hidden)
            case Filter():
                return self.duck.filter(self._changes(node.input), node.condition, len(node.schema))
            case _:
                raise AssertionError(node)

    def _table(self, node: Scan) -> pa.Table:
        table = self.rows.get(node.table.name)
        return node.schema.arrow.empty_table() if table is None else table

    def _scan(self, node: Scan) -> str:
        table = self._table(node)
        if KIND in table.column_names:
            table = table.drop_columns([KIND])
        return self.duck.register_table(table, node.schema)

    # --- windows ----------------------------------------------------------------------------------

    def _window_rows(self, node: WindowTableFunction) -> str:
        columns = physical_names(node.input.schema)
        keys = [physical_name(at) for at in node.partition_keys]
        bounded = self._add_window_bounds(self.relation(node.input), node, keys)
        return f"SELECT {', '.join([*columns, *self.duck.window_columns(node, len(columns))])} FROM ({bounded})"

    def _window_aggregate(self, node: WindowAggregate) -> str:
        keys = [f"__k{at}" for at in range(len(node.keys))]
        inner = self._add_call_inputs(self.relation(node.input), node.keys, node.calls, len(node.input.schema))
        grouped = self._group(self._add_window_bounds(inner, node, keys), node.calls, len(keys), ["__start", "__end"])
        columns = [physical_name(at) for at in range(len(keys) + len(node.calls))]
        return f"SELECT {', '.join([*columns, *self.duck.window_columns(node, len(columns))])} FROM ({grouped})"

    def _add_window_bounds(self, below: str, node: WindowTableFunction | WindowAggregate, keys: Sequence[str]) -> str:
        """Repeat each row for every window it is in.

        Adds `__start` and `__end` in local milliseconds.
        """
        of, column = node.input.schema[node.time_column], physical_name(node.time_column)
        at = self.duck.milliseconds(column, of.type, node.zone)
        timed = f"SELECT *, {at} AS __at FROM ({below}) WHERE {column} IS NOT NULL"
        if not isinstance(node.window, Session):
            ended = f"SELECT *, unnest({self.duck.window_ends(node.window, '__at')}) AS __end FROM ({timed})"
            return f"SELECT *, {self.duck.window_start(node.window, '__end')} AS __start FROM ({ended})"
        gap = node.window.gap_ms
        by = f"PARTITION BY {', '.join(keys) or '0'}"
        last = f"lag(__at) OVER ({by} ORDER BY __at)"
        begins = f"SELECT *, CASE WHEN __at <= {last} + {gap} THEN 0 ELSE 1 END AS __begins FROM ({timed})"
        # Rows of one time have no order: each counts all of them.
        upto = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        numbered = f"SELECT *, sum(__begins) OVER ({by} ORDER BY __at {upto}) AS __session FROM ({begins})"
        whole = f"OVER ({by}, __session)"
        bounds = f"min(__at) {whole} AS __start, max(__at) {whole} + {gap} AS __end"
        # Window functions lose the order of rows. FIRST_VALUE and similar calls follow the time.
        return f"SELECT *, {bounds} FROM ({numbered}) ORDER BY __at"

    # --- groups -----------------------------------------------------------------------------------

    def _add_call_inputs(self, below: str, keys: Sequence[Expr], calls: Sequence[AggCall], width: int) -> str:
        """Add the keys `__k0, …` and the inputs of the calls `__a0_0, …` to the rows."""
        columns = [physical_name(at) for at in range(width)]
        parts = [f"{self._key(key, columns)} AS __k{at}" for at, key in enumerate(keys)]
        for at, call in enumerate(calls):
            parts += [
                f"{self.duck.render_sql(each, columns)} AS {name}" for each, name in _input_columns(call, at).items()
            ]
        return f"SELECT {', '.join([*columns, *parts])} FROM ({below})"

    def _key(self, key: Expr, columns: Sequence[str]) -> str:
        """Return a grouping key as SQL; -0.0 and 0.0 are one key, 0.0."""
        return self._normalize_key(self.duck.render_sql(key, columns), key.type)

    @staticmethod
    def _normalize_key(sql: str, data_type: DataType) -> str:
        return f"({sql} + CAST(0 AS {data_type.duckdb}))" if isinstance(data_type, FloatingType) else sql

    def _group(self, below: str, calls: Sequence[AggCall], keys: int, more: Sequence[str]) -> str:
        """Return one row per group: keys, calls and the further key columns `more`."""
        by = [*(f"__k{at}" for at in range(keys)), *more]
        outputs = [f"__k{at} AS {physical_name(at)}" for at in range(keys)]
        outputs += [f"{_aggregate_sql(call, at)} AS {physical_name(keys + at)}" for at, call in enumerate(calls)]
        grouping = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join([*outputs, *more])} FROM ({below}){grouping}"

    # --- OVER -------------------------------------------------------------------------------------

    def _over(self, node: OverAggregate) -> str:
        """Join each row with all rows of its frame and aggregate these.

        This is slow, but as simple as possible.
        """
        width = len(node.input.schema)
        columns = [physical_name(at) for at in range(width)]
        keys = [f"__k{at}" for at in range(len(node.partition))]
        order = [f"{self.duck.render_sql(key.expression, columns)} AS __o{at}" for at, key in enumerate(node.order)]
        below = self._add_call_inputs(self.relation(node.input), node.partition, node.calls, width)
        below = f"SELECT {', '.join(['*', *order])}, row_number() OVER () AS __row FROM ({below})"
        by = [
            f"__o{at} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for at, key in enumerate(node.order)
        ]
        part = f"dense_rank() OVER (ORDER BY {', '.join(keys)})" if keys else "1"
        peers = f"dense_rank() OVER (PARTITION BY {', '.join(keys) or '0'} ORDER BY {', '.join(by) or '0'})"
        nth = f"row_number() OVER (PARTITION BY {', '.join(keys) or '0'} ORDER BY {', '.join([*by, '__row'])})"
        distance = self._distance(node, columns)
        numbered = f"SELECT *, {part} AS __part, {peers} AS __peers, {nth} AS __nth, {distance} AS __at FROM ({below})"
        conditions = ["o.__part = r.__part", *_frame_conditions(node)]
        pairs = (
            "SELECT r.__row AS __of, o.* FROM rows AS r JOIN rows AS o "
            f"ON {' AND '.join(conditions)} ORDER BY r.__row, o.__nth"
        )
        looked_up = [f"{_neighbor(call, at)} AS __v{at}" for at, call in enumerate(node.calls) if looks_up_row(call)]
        numbered = f"SELECT {', '.join(['*', *looked_up])} FROM ({numbered})"
        outputs = [
            f"{_aggregate_sql(call, at)} AS __v{at}" for at, call in enumerate(node.calls) if not looks_up_row(call)
        ]
        values = f"SELECT {', '.join(['__of', *outputs])} FROM ({pairs}) GROUP BY __of"
        nothing = f"SELECT {', '.join(outputs)} FROM ({pairs}) WHERE FALSE"
        results = []
        for at, call in enumerate(node.calls):
            value = f"{'r' if looks_up_row(call) else 'v'}.__v{at}"
            if _may_be_empty(node.frame):
                value = f"CASE WHEN v.__of IS NULL THEN (SELECT __v{at} FROM ({nothing})) ELSE {value} END"
            results.append(f"{value} AS {physical_name(width + at)}")
        return (
            f"WITH rows AS MATERIALIZED ({numbered}) "
            f"SELECT {', '.join([*(f'r.{name}' for name in columns), *results])} "
            f"FROM rows AS r LEFT JOIN ({values}) AS v ON v.__of = r.__row"
        )

    def _distance(self, node: OverAggregate, columns: Sequence[str]) -> str:
        """Return the value that a range frame is measured by, ascending in any sort order."""
        if not node.frame.is_by_distance:
            return "0"
        (key,) = node.order
        sql = self.duck.render_sql(key.expression, columns)
        match key.expression.type:
            case TimestampType():
                sql = self.duck.milliseconds(sql, key.expression.type)
            case DateType():
                sql = f"epoch_ms(CAST({sql} AS TIMESTAMP))"
            case DecimalType():
                sql = f"CAST(REPLACE(CAST({sql} AS VARCHAR), '.', '') AS HUGEINT)"
            case FloatingType():
                return f"CAST({'-' if key.descending else ''}({sql}) AS DOUBLE)"
        return f"CAST({'-' if key.descending else ''}({sql}) AS HUGEINT)"

    # --- the rest ---------------------------------------------------------------------------------

    def _sort(self, node: Sort) -> str:
        columns = physical_names(node.schema)
        keys = [
            f"{self.duck.render_sql(key.expression, columns)} {'DESC' if key.descending else 'ASC'}"
            f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in node.keys
        ]
        return f"SELECT * FROM ({self.relation(node.input)}) ORDER BY {', '.join(keys)}"


def _frame_conditions(node: OverAggregate) -> list[str]:
    """Return the conditions for a row `o` to be in the frame of a row `r` of its partition."""
    found, frame = [], node.frame
    floating = frame.is_by_distance and isinstance(node.order[0].expression.type, FloatingType)
    for bound, sign in ((frame.first, ">="), (frame.last, "<=")):
        if bound is None:
            continue
        if frame.rows:
            found.append(f"o.__nth {sign} r.__nth + ({bound})")
        elif bound == 0:
            found.append(f"o.__peers {sign} r.__peers")
        else:
            # The distance between two NULLs is zero; that between NULL and any other value is
            # infinite.
            far = f"(o.__at IS NULL AND r.__at IS NULL AND 0 {sign} {bound}) OR o.__peers {sign.rstrip('=')} r.__peers"
            distance = f"CAST({bound / 10**frame.scale!r} AS DOUBLE)" if floating else f"({bound})"
            near = f"o.__at {sign} r.__at + {distance}"
            found.append(f"CASE WHEN o.__at IS NULL OR r.__at IS NULL THEN {far} ELSE {near} END")
    return found


def _neighbor(call: AggCall, at: int) -> str:
    """Return LAG or LEAD with an offset that differs by row, over numbered rows."""
    value, offset, *default = (_input_columns(call, at)[each] for each in call.args)
    parts = [value, f"coalesce(CAST({offset} AS BIGINT), 0)", *default]
    return f"{call.function}({', '.join(parts)}) OVER (PARTITION BY __part ORDER BY __nth)"


def _may_be_empty(frame: Frame) -> bool:
    """Return whether a row may be outside its frame."""
    return (frame.first or 0) > 0 or (frame.last or 0) < 0


def _input_columns(call: AggCall, at: int) -> dict[Expr, str]:
    """Map the expressions that a call reads to the columns that hold their values."""
    condition = filter_condition_of(call)
    parts = [*arguments_of(call), *([] if condition is None else [condition])]
    return {each: f"__a{at}_{nth}" for nth, each in enumerate(dict.fromkeys(parts))}


def _aggregate_sql(call: AggCall, at: int) -> str:
    return write_duckdb_call(call, _input_columns(call, at).__getitem__)
