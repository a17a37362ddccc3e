"""The in-process runner of a batch: the whole plan as one DuckDB query, windows too. It shares nothing with the operators."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa

from everfold.aggregates.calls import arguments_of, duckdb_twin, kept_condition, looks_up_row
from everfold.errors import UnsupportedFeature
from everfold.memory.duck import Duck, names
from everfold.plan.changelog import KIND
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
from everfold.plan.python_aggregates import calls_python_aggregate, over_collected_rows
from everfold.plan.windows import Session
from everfold.sql.settings import Settings
from everfold.types import DateType, DecimalType, FloatingType, TimestampType, physical


def relation_of(duck: Duck, plan: Plan, rows: Mapping[str, pa.Table]) -> str:
    """A plan over finished input as SQL: rows by table, columns `c0, …` as the table's scan has them."""
    return _Query(duck, rows).relation(plan)


def run_batch(
    root: Root, rows: Mapping[str, pa.Table], settings: Settings | None = None, *, now_ms: int | None = None
) -> pa.Table:
    """The result of a query over finished input: rows by table, columns `c0, …` as the table's scan has them."""
    settings = settings or Settings.of()
    duck = Duck(settings.local_time_zone, int(time.time() * 1000) if now_ms is None else now_ms)
    return duck.rows(relation_of(duck, root.input, rows), root.input.schema)


@dataclass(slots=True)
class _Query:
    duck: Duck
    rows: Mapping[str, pa.Table]

    def relation(self, node: Plan) -> str:
        """The node's rows as SQL."""
        duck = self.duck
        match node:
            case Scan():
                return self._scan(node)
            case Values():
                return duck.values(node.rows, node.schema)
            case WatermarkAssigner() | ChangelogNormalize():
                return self.relation(node.input)
            case Project():
                return duck.project(self.relation(node.input), node.expressions, len(node.input.schema))
            case Filter():
                return duck.filter(self.relation(node.input), node.condition, len(node.schema))
            case Union():
                return " UNION ALL ".join(f"({self.relation(each)})" for each in node.inputs)
            case Unnest():
                return duck.unnest(self.relation(node.input), node)
            case WindowTableFunction():
                return self._window_rows(node)
            case WindowAggregate() | GroupAggregate() if calls_python_aggregate(node):
                return self.relation(over_collected_rows(node))
            case WindowAggregate():
                return self._window_aggregate(node)
            case GroupAggregate():
                inner = self._with_parts(self.relation(node.input), node.keys, node.calls, len(node.input.schema))
                return self._grouped(inner, node.calls, len(node.keys), [])
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

    def _scan(self, node: Scan) -> str:
        table = self.rows.get(node.table.name)
        if table is None:
            table = node.schema.arrow.empty_table()
        if KIND in table.column_names:
            import pyarrow.compute as pc

            if pc.any(pc.not_equal(table[KIND], 0)).as_py():
                what = f"table `{node.table.name}` gives changes"
                raise UnsupportedFeature.of("changes-in-batch", f"{what}: a batch takes inserts only so far", node.span)
            table = table.drop_columns([KIND])
        return self.duck.leaf(table, node.schema)

    # --- windows ------------------------------------------------------------------------------------------------------

    def _window_rows(self, node: WindowTableFunction) -> str:
        columns = names(node.input.schema)
        keys = [physical(at) for at in node.partition_keys]
        bounded = self._with_bounds(self.relation(node.input), node, keys)
        return f"SELECT {', '.join([*columns, *self.duck.window_columns(node, len(columns))])} FROM ({bounded})"

    def _window_aggregate(self, node: WindowAggregate) -> str:
        keys = [f"__k{at}" for at in range(len(node.keys))]
        inner = self._with_parts(self.relation(node.input), node.keys, node.calls, len(node.input.schema))
        grouped = self._grouped(self._with_bounds(inner, node, keys), node.calls, len(keys), ["__start", "__end"])
        columns = [physical(at) for at in range(len(keys) + len(node.calls))]
        return f"SELECT {', '.join([*columns, *self.duck.window_columns(node, len(columns))])} FROM ({grouped})"

    def _with_bounds(self, below: str, node: WindowTableFunction | WindowAggregate, keys: Sequence[str]) -> str:
        """Each row once for every window it is in, with `__start` and `__end` in local milliseconds."""
        of, column = node.input.schema[node.time_column], physical(node.time_column)
        at = self.duck.milliseconds(column, of.type, node.zone)
        timed = f"SELECT *, {at} AS __at FROM ({below}) WHERE {column} IS NOT NULL"
        if not isinstance(node.window, Session):
            ended = f"SELECT *, unnest({self.duck.window_ends(node.window, '__at')}) AS __end FROM ({timed})"
            return f"SELECT *, {self.duck.window_start(node.window, '__end')} AS __start FROM ({ended})"
        gap = node.window.gap_ms
        by = f"PARTITION BY {', '.join(keys) or '0'}"
        last = f"lag(__at) OVER ({by} ORDER BY __at)"
        begins = f"SELECT *, CASE WHEN __at <= {last} + {gap} THEN 0 ELSE 1 END AS __begins FROM ({timed})"
        rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        numbered = f"SELECT *, sum(__begins) OVER ({by} ORDER BY __at {rows}) AS __session FROM ({begins})"
        whole = f"OVER ({by}, __session)"
        return f"SELECT *, min(__at) {whole} AS __start, max(__at) {whole} + {gap} AS __end FROM ({numbered})"

    # --- groups -------------------------------------------------------------------------------------------------------

    def _with_parts(self, below: str, keys: Sequence[Expr], calls: Sequence[AggCall], width: int) -> str:
        """The rows with keys `__k0, …` and what the calls are over, `__a0_0, …`."""
        columns = [physical(at) for at in range(width)]
        parts = [f"{self._key(key, columns)} AS __k{at}" for at, key in enumerate(keys)]
        for at, call in enumerate(calls):
            parts += [f"{self.duck.text(each, columns)} AS {name}" for each, name in _parts(call, at).items()]
        return f"SELECT {', '.join([*columns, *parts])} FROM ({below})"

    def _key(self, key: Expr, columns: Sequence[str]) -> str:
        """A grouping key; -0.0 and 0.0 are one key, shown as 0.0."""
        text = self.duck.text(key, columns)
        return f"({text} + CAST(0 AS {key.type.duckdb}))" if isinstance(key.type, FloatingType) else text

    def _grouped(self, below: str, calls: Sequence[AggCall], keys: int, more: Sequence[str]) -> str:
        """One row a group: keys, calls, and the columns `more` that are part of the key."""
        by = [*(f"__k{at}" for at in range(keys)), *more]
        made = [f"__k{at} AS {physical(at)}" for at in range(keys)]
        made += [f"{_aggregated(call, at)} AS {physical(keys + at)}" for at, call in enumerate(calls)]
        grouping = f" GROUP BY {', '.join(by)}" if by else ""
        return f"SELECT {', '.join([*made, *more])} FROM ({below}){grouping}"

    # --- OVER ---------------------------------------------------------------------------------------------------------

    def _over(self, node: OverAggregate) -> str:
        """Each row joined with all rows of its frame, and these aggregated: slow, and as plain as it can be."""
        width = len(node.input.schema)
        columns = [physical(at) for at in range(width)]
        keys = [f"__k{at}" for at in range(len(node.partition))]
        order = [f"{self.duck.text(key.expression, columns)} AS __o{at}" for at, key in enumerate(node.order)]
        below = self._with_parts(self.relation(node.input), node.partition, node.calls, width)
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
        met = ["o.__part = r.__part", *_within(node)]
        pairs = f"SELECT r.__row AS __of, o.* FROM rows AS r JOIN rows AS o ON {' AND '.join(met)} ORDER BY r.__row, o.__nth"
        looked_up = [f"{_neighbor(call, at)} AS __v{at}" for at, call in enumerate(node.calls) if looks_up_row(call)]
        numbered = f"SELECT {', '.join(['*', *looked_up])} FROM ({numbered})"
        made = [f"{_aggregated(call, at)} AS __v{at}" for at, call in enumerate(node.calls) if not looks_up_row(call)]
        values = f"SELECT {', '.join(['__of', *made])} FROM ({pairs}) GROUP BY __of"
        nothing = f"SELECT {', '.join(made)} FROM ({pairs}) WHERE FALSE"
        shown = []
        for at, call in enumerate(node.calls):
            value = f"{'r' if looks_up_row(call) else 'v'}.__v{at}"
            if _may_be_empty(node.frame):
                value = f"CASE WHEN v.__of IS NULL THEN (SELECT __v{at} FROM ({nothing})) ELSE {value} END"
            shown.append(f"{value} AS {physical(width + at)}")
        return (
            f"WITH rows AS MATERIALIZED ({numbered}) SELECT {', '.join([*(f'r.{name}' for name in columns), *shown])} "
            f"FROM rows AS r LEFT JOIN ({values}) AS v ON v.__of = r.__row"
        )

    def _distance(self, node: OverAggregate, columns: Sequence[str]) -> str:
        """What a frame of a distance is measured by; rising, whatever the order is."""
        if not node.frame.by_distance:
            return "0"
        (key,) = node.order
        text = self.duck.text(key.expression, columns)
        match key.expression.type:
            case TimestampType():
                text = self.duck.milliseconds(text, key.expression.type)
            case DateType():
                text = f"epoch_ms(CAST({text} AS TIMESTAMP))"
            case DecimalType():
                text = f"CAST(REPLACE(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"
            case FloatingType():
                return f"CAST({'-' if key.descending else ''}({text}) AS DOUBLE)"
        return f"CAST({'-' if key.descending else ''}({text}) AS HUGEINT)"

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _sort(self, node: Sort) -> str:
        columns = names(node.schema)
        keys = [
            f"{self.duck.text(key.expression, columns)} {'DESC' if key.descending else 'ASC'}"
            f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for key in node.keys
        ]
        return f"SELECT * FROM ({self.relation(node.input)}) ORDER BY {', '.join(keys)}"


def _within(node: OverAggregate) -> list[str]:
    """The conditions for a row `o` to be in the frame of a row `r` of its partition."""
    found, frame = [], node.frame
    floating = frame.by_distance and isinstance(node.order[0].expression.type, FloatingType)
    for bound, sign in ((frame.first, ">="), (frame.last, "<=")):
        if bound is None:
            continue
        if frame.rows:
            found.append(f"o.__nth {sign} r.__nth + ({bound})")
        elif bound == 0:
            found.append(f"o.__peers {sign} r.__peers")
        else:
            # NULLs are no distance from each other, and farther from all else than any distance.
            far = f"(o.__at IS NULL AND r.__at IS NULL AND 0 {sign} {bound}) OR o.__peers {sign.rstrip('=')} r.__peers"
            distance = f"CAST({bound / 10**frame.scale!r} AS DOUBLE)" if floating else f"({bound})"
            near = f"o.__at {sign} r.__at + {distance}"
            found.append(f"CASE WHEN o.__at IS NULL OR r.__at IS NULL THEN {far} ELSE {near} END")
    return found


def _neighbor(call: AggCall, at: int) -> str:
    """LAG or LEAD by a number that differs from row to row, over numbered rows."""
    value, offset, *default = (_parts(call, at)[each] for each in call.args)
    parts = [value, f"coalesce(CAST({offset} AS BIGINT), 0)", *default]
    return f"{call.function}({', '.join(parts)}) OVER (PARTITION BY __part ORDER BY __nth)"


def _may_be_empty(frame: Frame) -> bool:
    """Whether a row may be outside of its own frame."""
    return (frame.first or 0) > 0 or (frame.last or 0) < 0


def _parts(call: AggCall, at: int) -> dict[Expr, str]:
    """What a call is over, and the columns where it is computed."""
    kept = kept_condition(call)
    parts = [*arguments_of(call), *([] if kept is None else [kept])]
    return {each: f"__a{at}_{nth}" for nth, each in enumerate(dict.fromkeys(parts))}


def _aggregated(call: AggCall, at: int) -> str:
    return duckdb_twin(call, _parts(call, at).__getitem__)
