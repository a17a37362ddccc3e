"""The in-process stream runner: the plan and operators of Spark, batch by batch, without a JVM.

Scalar parts are DuckDB SQL, stateful nodes are operators over stores in memory. `restarted`
continues with new operator objects on the same stores, like a job that was stopped and started
again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from everfold.compat import CompatOptions, judge_pairs, pair_queries, shape_of
from everfold.compat.new_columns import hide_new_columns
from everfold.errors import ConnectorError, StateError, UnsupportedFeature
from everfold.memory.batch import relation_of, run_batch
from everfold.memory.duck import Duck, cast_table
from everfold.memory.python import project
from everfold.operators.backfill import is_fillable, restrict_to_emitted, restrict_to_new_calls
from everfold.operators.change_plan import plan_operators
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import NO_WATERMARK, Meta, Operator, Stats, to_milliseconds
from everfold.operators.reemit import bootstrap, split_reemitted
from everfold.plan.changelog import KIND, ORDER, REEMIT, REEMIT_DELETE, RowKind
from everfold.plan.emitted_changes import is_updating
from everfold.plan.expressions import InputRef, Literal, split_shift
from everfold.plan.nodes import (
    Filter,
    Join,
    Limit,
    Plan,
    Project,
    Root,
    Scan,
    SetOperation,
    Sort,
    StatefulNode,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.parts import streamed_children
from everfold.plan.walk import operators_of, tables_of, walk_streamed
from everfold.sql.settings import NULL_ROWTIME_HELP, Settings
from everfold.state.bucket_head import read_head
from everfold.state.store import MemoryStore
from everfold.types import IntervalType, physical_name


@dataclass(slots=True)
class _Stage:
    """A running stateful node.

    past: the backfilled rows that its next batch starts with, by bucket (`operators.backfill`).
    repeat: whether the next batch starts by re-emitting its current rows (`operators.reemit`).
    """

    node: StatefulNode
    operator: Operator
    stores: list[MemoryStore]
    stats: list[Stats] = field(default_factory=list)
    past: list[pl.DataFrame] | None = None
    repeat: bool = False


@dataclass(slots=True)
class _Stream:
    """The rows of a plan in a batch.

    splits: all splits of its watermark. watermarks: the greatest watermark of the batch by split.
    hidden: `__kind` if rows may be changes.
    """

    relation: str
    splits: tuple[str, ...] = ()
    watermarks: dict[str, int] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()


class MemoryPipeline:
    """A running query over streams.

    buckets: the number of buckets of each operator; the results do not depend on it.
    lookup_tables: the rows of lookup tables.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        *,
        buckets: int = 1,
        lookup_tables: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self._root, self._settings, self._buckets = root, settings, buckets
        self._lookup_tables = lookup_tables or {}
        self._stages: dict[str, _Stage] = {}
        self._dropped = 0
        self._started = False
        self._duck: Duck | None = None
        self._plan = hide_new_columns(root).input
        self._constant = not tables_of(walk_streamed(root.input))
        if not self._constant:
            self._build(self._plan)

    def feed(self, rows: Mapping[str, pa.Table], now_ms: int | None = None) -> pa.Table:
        """Run a micro-batch and return the rows that become final, or changes with `__kind`.

        rows: by table, with columns `c0, …` as in the table's scan, and `__kind` if they are
        changes.
        """
        return self._batch(rows, now_ms, flush=False)

    def flush(self, now_ms: int | None = None) -> pa.Table:
        """End the input and emit everything that is still open."""
        return self._batch({}, now_ms, flush=True)

    def restart(self) -> MemoryPipeline:
        """Return a new pipeline that continues with the state of this one."""
        return self._continue(self._root, self._settings)

    def change_query(
        self,
        root: Root,
        version: int,
        settings: Settings | None = None,
        history: Mapping[str, pa.Table] | None = None,
        *,
        refresh: bool = False,
    ) -> MemoryPipeline:
        """Return a new pipeline that runs another query with the state of this one.

        version: the job version of the new query.
        history: all rows read so far, by table; with it, new aggregates are backfilled in the next
        batch.
        refresh: the next batch re-emits the whole result.

        Raises StateError `no-backfill`, or `incompatible-change` if the state cannot be reused;
        this pipeline is then unchanged.
        """
        settings = settings or self._settings
        terms = CompatOptions.of(settings)
        pairs = pair_queries([shape_of(self._root)], [shape_of(root)])
        judgement = judge_pairs(pairs, terms)
        if not judgement.verdict.reuses_state:
            raise StateError.of(
                "incompatible-change", f"the change is {judgement.verdict.value}: the new query cannot use the state"
            )
        names = [node.operator_id for node in operators_of([self._root])]
        backfill = history is not None
        plan = plan_operators(
            pairs, names, [root], version, terms, taken=names, backfill=backfill, refresh=[0] * refresh
        )
        pipeline = self._continue(plan.roots[0], settings)
        for change in plan.operators:
            pipeline._stages[change.operator_id].repeat = change.reemits
            if change.backfill is not None and history is not None:
                pipeline._backfill(pipeline._stages[change.operator_id], version, history)
        return pipeline

    def _continue(self, root: Root, settings: Settings) -> MemoryPipeline:
        """Return a pipeline of a plan whose operators continue with the state under their ids."""
        pipeline = MemoryPipeline(root, settings, buckets=self._buckets, lookup_tables=self._lookup_tables)
        for name in pipeline._stages.keys() & self._stages.keys():
            stage, old = pipeline._stages[name], self._stages[name]
            stage.stores, stage.stats = old.stores, old.stats
        pipeline._dropped, pipeline._started = self._dropped, self._started
        return pipeline

    def _backfill(self, stage: _Stage, version: int, history: Mapping[str, pa.Table]) -> None:
        """Backfill the new aggregates of a stage."""
        new = restrict_to_new_calls(stage.node, version)
        assert new is not None
        final_until = {name: _final_until(each) for name, each in self._stages.items()}
        duck = Duck(self._settings.local_time_zone, 0)
        past = restrict_to_emitted(new.input, lambda node: final_until[node.operator_id])
        beginning_node = replace(new, input=past)
        operator = operator_of(beginning_node, stage.operator.name, clock_of(beginning_node, (), None))
        assert is_fillable(operator)
        since = final_until[new.operator_id]
        assert since is not None
        below = _Stream(relation_of(duck, beginning_node.input, history))
        rows = _prepare_input(duck, beginning_node, below, operator)
        found = operator.history(rows, since)
        stage.past = _split_by_bucket(found, len(stage.stores))

    @property
    def stats(self) -> tuple[Stats, ...]:
        """The statistics of each operator after the last batch, summed over its buckets."""
        return tuple(_sum_stats(name, stage.stats) for name, stage in self._stages.items())

    @property
    def late_rows(self) -> int:
        """The number of rows dropped as late so far."""
        return sum(each.late_rows for each in self.stats)

    @property
    def dropped_rows(self) -> int:
        """The number of rows dropped so far because their time attribute is NULL.

        Only with `everfold.null-rowtime` = `drop`.
        """
        return self._dropped

    @property
    def state_rows(self) -> int:
        """The number of rows in the state of all operators."""
        return sum(each.state_rows for each in self.stats)

    @property
    def watermark_ms(self) -> int | None:
        """The lowest watermark of the operators; None before the first and without operators."""
        found = min((each.watermark_ms for each in self.stats), default=NO_WATERMARK)
        return None if found == NO_WATERMARK else found

    # --- building ---------------------------------------------------------------------------------

    def _build(self, node: Plan) -> tuple[str, ...]:
        """Create the operators, lowest first, and return the splits of a node's watermark.

        Raises UnsupportedFeature for nodes that cannot run in a stream.
        """
        match node:
            case Scan():
                return (node.table.identity,)
            case Sort() | Limit() | SetOperation():
                kind = type(node).__name__
                raise UnsupportedFeature.of("not-in-stream", f"{kind} does not run in a stream", node.span)
        splits = tuple(split for each in streamed_children(node) for split in self._build(each))
        if not is_stateful(node):
            return splits
        clock = clock_of(node, splits, self._settings.idle_timeout_ms)
        stores = [MemoryStore() for _ in range(self._buckets)]
        operator = operator_of(node, node.operator_id, clock, updating=is_updating(node.input))
        self._stages[node.operator_id] = _Stage(node, operator, stores)
        return (node.operator_id,)

    # --- a batch ----------------------------------------------------------------------------------

    def _batch(self, rows: Mapping[str, pa.Table], now_ms: int | None, flush: bool) -> pa.Table:
        duck = self._duck or Duck(self._settings.local_time_zone, 0)
        self._duck = duck
        duck.now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        first, self._started = not self._started, True
        schema = self._root.input.schema
        if self._constant:
            found = run_batch(self._root, self._lookup_tables, self._settings)
            return found if first else found.slice(0, 0)
        again = any(stage.repeat for stage in self._stages.values())
        run = _Batch(duck, rows, flush, first, again, self._stages, self)
        try:
            found = run.stream(self._plan)
            table = duck.rows(found.relation, schema, found.hidden)
            return _to_sink_kinds(table) if again and found.hidden else table
        finally:
            duck.clear_tables()

    def count_dropped(self, rows: int) -> None:
        """Count rows dropped because they have no time."""
        self._dropped += rows


@dataclass(slots=True)
class _Batch:
    """A running micro-batch. again: whether it has re-emitted rows."""

    duck: Duck
    rows: Mapping[str, pa.Table]
    flush: bool
    first: bool
    again: bool
    stages: Mapping[str, _Stage]
    pipeline: MemoryPipeline

    def stream(self, node: Plan) -> _Stream:
        """Return the rows of a node."""
        duck = self.duck
        match node:
            case Scan():
                return self._scan(node)
            case Values():
                return _Stream(duck.values(node.rows if self.first else (), node.schema))
            case WatermarkAssigner():
                return self._watermark(node)
            case Project():
                below = self.stream(node.input)
                below.relation = project(duck, below.relation, node.expressions, len(node.input.schema), below.hidden)
                return below
            case Filter():
                below = self.stream(node.input)
                again = KIND if self.again and below.hidden else None
                below.relation = duck.filter(below.relation, node.condition, len(node.schema), again)
                return below
            case Unnest():
                below = self.stream(node.input)
                below.relation = duck.unnest(below.relation, node, below.hidden)
                return below
            case Union():
                streams = [self.stream(each) for each in node.inputs]
                watermarks = {split: at for each in streams for split, at in each.watermarks.items()}
                splits = tuple(split for each in streams for split in each.splits)
                hidden = (KIND,) if any(each.hidden for each in streams) else ()
                inserts = f"SELECT *, CAST({RowKind.INSERT.value} AS TINYINT) AS {KIND} FROM"
                parts = [
                    f"{inserts} ({each.relation})" if hidden and not each.hidden else f"({each.relation})"
                    for each in streams
                ]
                return _Stream(" UNION ALL ".join(parts), splits, watermarks, hidden)
            case WindowTableFunction() if not is_stateful(node):
                below = self.stream(node.input)
                below.relation = duck.assign_windows(below.relation, node, below.hidden)
                return below
            case Join():
                below = self.stream(node.left)
                right = relation_of(duck, node.right, self.pipeline._lookup_tables)
                below.relation = duck.join(below.relation, right, node, below.hidden)
                return below
            case Sort() | Limit() | SetOperation():
                raise AssertionError(node)
            case _:
                return self._step(node, self.stream(node.input))

    def _scan(self, node: Scan) -> _Stream:
        split = node.table.identity
        table = self.rows.get(node.table.name)
        if table is None:
            table = node.schema.arrow.empty_table()
        hidden = (KIND,) if is_updating(node) else ()
        if hidden and KIND not in table.column_names:
            table = table.append_column(KIND, pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), table.num_rows))
        return _Stream(self.duck.register_table(table, node.schema, hidden), (split,), hidden=hidden)

    def _watermark(self, node: WatermarkAssigner) -> _Stream:
        """Advance the watermark by all rows, before any WHERE.

        A row without a time stops the job or is dropped.
        """
        below, duck = self.stream(node.input), self.duck
        schema = node.input.schema
        table = duck.rows(below.relation, schema, below.hidden)
        at = physical_name(node.column)
        missing, nulls = table[at].is_null(), table[at].null_count
        if below.hidden:  # the delete of an upsert has its key only
            missing = pc.and_(missing, pc.not_equal(table[KIND], RowKind.DELETE.value))
            nulls = pc.sum(missing).as_py() or 0
        if nulls and self.pipeline._settings.null_rowtime != "drop":
            name = schema[node.column].name
            table = next(each.name for each in tables_of(walk_streamed(node)))
            message = f"table `{table}`: the time attribute `{name}` is NULL"
            raise ConnectorError.of("null-rowtime", message, help=NULL_ROWTIME_HELP)
        if nulls:
            self.pipeline.count_dropped(nulls)
            table = table.filter(pc.invert(missing))
        relation = duck.register_table(table, schema, below.hidden)
        match split_shift(node.watermark):
            case (column, None | Literal(type=IntervalType(months=False)) as by):
                highest = _find_latest(table.column(column.position), by)
            case _:  # for one row, a query costs ten times as much
                moved = duck.milliseconds(duck.render_sql(node.watermark, table.column_names), node.watermark.type)
                highest = duck.run(f"SELECT max({moved}) AS high FROM ({relation})")["high"][0].as_py()
        watermarks = {split: int(highest) for split in below.splits} if highest is not None else {}
        return _Stream(relation, below.splits, watermarks, below.hidden)

    def _step(self, node: StatefulNode, below: _Stream) -> _Stream:
        stage = self.stages[node.operator_id]
        operator = stage.operator
        buckets = len(stage.stores)
        rows, given = _prepare_input(self.duck, node, below, operator), None
        if operator.updating:
            rows, given = split_reemitted(rows, "kind")
        # As in a Spark task, an empty input is not prepared: it would create a row for a global
        # group.
        prepared = _split_by_bucket(operator.prepare(rows), buckets) if rows.height else []
        counted = _split_by_bucket(operator.prepare(given), buckets) if given is not None and given.height else []
        metas = [Meta(self.duck.now_ms, below.watermarks, self.flush)]
        changed: list[pl.DataFrame] = []
        steps = []
        for at, store in enumerate(stage.stores):
            past = [stage.past[at]] if stage.past is not None else []
            first = bootstrap(operator, store, 0, repeat=stage.repeat, past=past, given=counted[at : at + 1])
            changed += first.changes
            steps.append(operator.step(store, [*first.rows, *prepared[at : at + 1]], metas))
        stage.past, stage.repeat = None, False
        stage.stats = [step.stats for step in steps]
        rows = pl.concat([*changed, *(step.rows for step in steps)])
        if ORDER in rows.columns and not rows[ORDER].is_sorted():
            rows = rows.sort(ORDER, maintain_order=True)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        hidden = (KIND,) if is_updating(node) else ()
        relation = self.duck.register_table(table, operator.schema, hidden)
        return _Stream(relation, (operator.name,), steps[0].meta.watermarks, hidden)


def _find_latest(times: pa.ChunkedArray, by: Literal | None) -> int | None:
    """Return the greatest time in ms, shifted by an interval that is not in months."""
    micros: int | None = pc.max(times.cast(pa.int64())).as_py()
    if micros is None:
        return None
    latest = micros // 1000
    if by is None:
        return latest
    assert isinstance(by.value, int), by
    return latest + by.value


def _prepare_input(duck: Duck, node: StatefulNode, below: _Stream, operator: Operator) -> pl.DataFrame:
    """Return the input columns that the operator requires, including `hash`, `kind` and `seq`."""
    table = _select_input(duck, below.relation, operator)
    if table is None:
        table = _compute_input(duck, below.relation, len(node.input.schema), operator)
    types = {each.name: each.expression.type.arrow if each.as_hash else each.type.arrow for each in operator.inputs}
    types |= {"hash": pa.int64(), "kind": pa.int8()}
    frame = pl.from_arrow(cast_table(table, pa.schema([(name, types[name]) for name in table.column_names])))
    assert isinstance(frame, pl.DataFrame)
    hashed = {each.name: [each.name] for each in operator.inputs if each.as_hash}
    if operator.hash_columns:
        hashed["hash"] = list(operator.hash_columns)
    for name, columns in hashed.items():
        hashes = frame[columns].hash_rows().to_numpy().view(np.int64)
        frame.replace_column(frame.get_column_index(name), pl.Series(name, hashes))
    if operator.ordered:
        frame.insert_column(frame.width, pl.Series("seq", np.arange(frame.height)))
    return frame


def _select_input(duck: Duck, relation: str, operator: Operator) -> pa.Table | None:
    """Return an operator's input columns if they are columns of a table: a query of one row costs
    several times as much.
    """
    table = duck.plain_table(relation)
    if table is None:
        return None
    columns = {"hash": pa.array(np.zeros(table.num_rows, np.int64))}
    for each in operator.inputs:
        if not isinstance(each.expression, InputRef):
            return None
        column = table.column(each.expression.position)
        columns[each.name] = to_milliseconds(column) if each.as_ms else column
    if operator.updating:
        columns["kind"] = table.column(KIND)
    return pa.table(columns)


def _compute_input(duck: Duck, relation: str, width: int, operator: Operator) -> pa.Table:
    """Return an operator's input columns by a query."""
    columns = [physical_name(at) for at in range(width)]
    outputs = ["CAST(0 AS BIGINT) AS hash"]
    for each in operator.inputs:
        text = duck.render_sql(each.expression, columns)
        if each.as_ms:
            text = duck.milliseconds(text, each.expression.type, each.zone)
        outputs.append(f"{text} AS {each.name}")
    if operator.updating:
        outputs.append(f"{KIND} AS kind")
    return duck.run(f"SELECT {', '.join(outputs)} FROM ({relation})")


def _split_by_bucket(rows: pl.DataFrame, buckets: int) -> list[pl.DataFrame]:
    """Split rows by bucket."""
    if rows.height == 1:  # one-row batches are frequent, and filters are slow for them
        bucket = rows["hash"][0] % buckets
        return [rows if at == bucket else rows.clear() for at in range(buckets)]
    return [rows.filter(pl.col("hash") % buckets == at) for at in range(buckets)] if buckets > 1 else [rows]


def _to_sink_kinds(rows: pa.Table) -> pa.Table:
    """Replace internal row kinds by those for a sink: re-emitted rows are +U, deleted ones -D."""
    kinds = rows[KIND]
    kinds = pc.if_else(pc.equal(kinds, REEMIT), pa.scalar(RowKind.UPDATE_AFTER.value, pa.int8()), kinds)
    kinds = pc.if_else(pc.equal(kinds, REEMIT_DELETE), pa.scalar(RowKind.DELETE.value, pa.int8()), kinds)
    return rows.set_column(rows.schema.get_field_index(KIND), KIND, kinds)


def _final_until(stage: _Stage) -> int | None:
    """Return the time up to which the rows of a stage are final in all buckets."""
    operator = stage.operator
    if not is_fillable(operator):
        return None
    return min(operator.final_until(read_head(store, 0)) for store in stage.stores)


def _sum_stats(name: str, stats: list[Stats]) -> Stats:
    if not stats:
        return Stats(name)
    late, rows, ignored = (
        sum(of) for of in zip(*((s.late_rows, s.state_rows, s.ignored_rows) for s in stats), strict=True)
    )
    examples = tuple(row for each in stats for row in each.late)
    return Stats(name, stats[0].watermark_ms, late, rows, ignored, late=examples)
