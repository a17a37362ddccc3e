"""The in-process runner of a stream: the plan and the operators that Spark runs, batch by batch, without a JVM.

Scalar parts are DuckDB SQL, stateful nodes are operators over stores in memory. `restarted` goes on with new operator objects on what the
stores hold, as a job does that was stopped and started again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from everfold.compat import Terms, judge, shape_of, succeeding
from everfold.errors import ConnectorError, StateError, UnsupportedFeature
from everfold.memory.batch import relation_of, run_batch
from everfold.memory.duck import Duck
from everfold.operators.backfill import as_given, beginning, is_fillable, obstacle
from everfold.operators.build import clock_of, operator_of
from everfold.operators.contract import NO_WATERMARK, Meta, Operator, Stats
from everfold.plan.changelog import KIND, ORDER, RowKind, is_updating
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
    streamed,
    tables_of,
)
from everfold.sql.settings import NULL_ROWTIME_HELP, Settings
from everfold.state.heads import read_head
from everfold.state.store import MemoryStore
from everfold.types import physical

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Stage:
    """A stateful node at work. past: what its next batch begins with, by bucket (`operators.backfill`)."""

    node: StatefulNode
    operator: Operator
    stores: list[MemoryStore]
    stats: list[Stats] = field(default_factory=list)
    past: list[pl.DataFrame] | None = None


@dataclass(slots=True)
class _Stream:
    """The rows of a plan in a batch: a relation, and the greatest watermark of the batch by split (of all splits, `splits`).

    hidden: `__kind` where rows may be changes.
    """

    relation: str
    splits: tuple[str, ...] = ()
    watermarks: dict[str, int] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()


class MemoryPipeline:
    """A query over streams. `buckets`: shares of each operator's keys; the results do not depend on it.

    `beside`: the rows of the tables that joins read as a batch.
    """

    def __init__(
        self, root: Root, settings: Settings, *, buckets: int = 1, beside: Mapping[str, pa.Table] | None = None
    ) -> None:
        self._root, self._settings, self._buckets = root, settings, buckets
        self._beside = beside or {}
        self._stages: list[_Stage] = []
        self._dropped = 0
        self._started = False
        self._duck: Duck | None = None
        self._nth: dict[str, int] = {}
        self._constant = not tables_of(streamed(root.input))
        if not self._constant:
            self._build(root.input)

    def feed(self, rows: Mapping[str, pa.Table], now_ms: int | None = None) -> pa.Table:
        """Runs a micro-batch: rows by table, columns `c0, …` as the table's scan has them, and `__kind` where they are changes.

        Answers the rows that become final, or with `__kind` the changes.
        """
        return self._batch(rows, now_ms, flush=False)

    def flush(self, now_ms: int | None = None) -> pa.Table:
        """The input has ended: everything that is open is emitted."""
        return self._batch({}, now_ms, flush=True)

    def restarted(self) -> MemoryPipeline:
        """A new pipeline that goes on with this one's state."""
        again = MemoryPipeline(self._root, self._settings, buckets=self._buckets, beside=self._beside)
        for stage, old in zip(again._stages, self._stages, strict=True):
            stage.stores, stage.stats = old.stores, old.stats
        again._dropped, again._started = self._dropped, self._started
        return again

    def changed(
        self, root: Root, version: int, settings: Settings | None = None, history: Mapping[str, pa.Table] | None = None
    ) -> MemoryPipeline:
        """A new pipeline by another query, as that version of the job, which goes on with this one's state. history: all rows that have come so far, by table: new
        aggregates are given their past with the next batch.

        StateError `no-backfill`, or `incompatible-change` where the judgement is that it cannot; this one is as it was then.
        """
        settings, old = settings or self._settings, shape_of(self._root)
        judgement = judge([old], [shape_of(root)], Terms(settings.ignore_filter, settings.extended_rules))
        if not judgement.verdict.reuses:
            raise StateError.of(
                "incompatible-change", f"the change is {judgement.verdict.value}: the state cannot go on"
            )
        succession = succeeding(old, root, version)
        again = MemoryPipeline(succession.root, settings, buckets=self._buckets, beside=self._beside)
        stages, others = again._by_place(), self._by_place()
        for one, other in succession.matching.pairs:
            stages[other].stores, stages[other].stats = others[one].stores, others[one].stats
        again._dropped, again._started = self._dropped, self._started
        if history is not None:
            for stage in stages:
                again._recall(stage, version, history)
        return again

    def _recall(self, stage: _Stage, version: int, history: Mapping[str, pa.Table]) -> None:
        """Computes the past of a stage's new aggregates."""
        begun = beginning(stage.node, version)
        if begun is None:
            return
        why = obstacle(begun)
        if why is not None:
            raise StateError.of("no-backfill", f"the new aggregates cannot be given their past: {why}")
        reached = {id(each.node): _reached(each) for each in self._stages}
        duck = Duck(self._settings.local_time_zone, 0)
        begun = replace(begun, input=as_given(begun.input, lambda node: reached[id(node)]))
        operator = operator_of(begun, stage.operator.name, clock_of(begun, (), None))
        assert is_fillable(operator)
        since = reached[id(stage.node)]
        assert since is not None
        below = _Stream(relation_of(duck, begun.input, history, self._settings))
        rows = _Batch(duck, {}, False, False, iter(()), self)._prepared(begun, below, operator)
        found = operator.history(rows, since)
        stage.past = [found.filter(pl.col("hash") % len(stage.stores) == at) for at in range(len(stage.stores))]

    def _by_place(self) -> list[_Stage]:
        """The operators in the order in which they flow, topmost first."""
        by_node = {id(stage.node): stage for stage in self._stages}
        return [by_node[id(node)] for node in streamed(self._root.input) if id(node) in by_node]

    @property
    def stats(self) -> tuple[Stats, ...]:
        """What each operator reported after the last batch, summed over its buckets."""
        return tuple(_summed(stage.operator.name, stage.stats) for stage in self._stages)

    @property
    def late_rows(self) -> int:
        """Rows dropped as late so far."""
        return sum(each.late_rows for each in self.stats)

    @property
    def dropped_rows(self) -> int:
        """Rows dropped for a NULL time attribute so far (`everfold.null-rowtime` = `drop`)."""
        return self._dropped

    @property
    def state_rows(self) -> int:
        """Rows in the state of all operators."""
        return sum(each.state_rows for each in self.stats)

    @property
    def watermark_ms(self) -> int | None:
        """The least watermark of the operators; None before the first, and without operators."""
        found = min((each.watermark_ms for each in self.stats), default=NO_WATERMARK)
        return None if found == NO_WATERMARK else found

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self, node: Plan) -> tuple[str, ...]:
        """Makes the operators, lowest first, and answers the splits of a node's watermark. Refuses what no stream can run."""
        match node:
            case Scan():
                return (self._split(node),)
            case Values():
                return ()
            case WatermarkAssigner() | Project() | Filter() | Unnest():
                return self._build(node.input)
            case Union():
                return tuple(split for each in node.inputs for split in self._build(each))
            case Join():
                return self._build(node.left)
            case WindowTableFunction() if not is_stateful(node):
                return self._build(node.input)
            case Sort() | Limit() | SetOperation():
                kind = type(node).__name__
                raise UnsupportedFeature.of("not-in-stream", f"{kind} does not run in a stream", node.span)
            case _:
                clock = clock_of(node, self._build(node.input), self._settings.idle_timeout_ms)
                name = f"w{len(self._stages) + 1}"
                stores = [MemoryStore() for _ in range(self._buckets)]
                operator = operator_of(node, name, clock, updating=is_updating(node.input))
                self._stages.append(_Stage(node, operator, stores))
                return (name,)

    def _split(self, node: Scan) -> str:
        """The name of a scan's split: the table, numbered when it is read more than once."""
        nth = self._nth.get(node.table.name, 0)
        self._nth[node.table.name] = nth + 1
        return node.table.name if nth == 0 else f"{node.table.name}_{nth}"

    # --- a batch ------------------------------------------------------------------------------------------------------

    def _batch(self, rows: Mapping[str, pa.Table], now_ms: int | None, flush: bool) -> pa.Table:
        duck = self._duck or Duck(self._settings.local_time_zone, 0)
        self._duck = duck
        duck.now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        first, self._started = not self._started, True
        schema = self._root.input.schema
        if self._constant:
            found = run_batch(self._root, self._beside, self._settings)
            return found if first else found.slice(0, 0)
        self._nth = {}
        run = _Batch(duck, rows, flush, first, iter(self._stages), self)
        try:
            found = run.stream(self._root.input)
            return duck.rows(found.relation, schema, found.hidden)
        finally:
            duck.forget()

    def drop(self, rows: int) -> None:
        """Counts rows that had no time."""
        self._dropped += rows


@dataclass(slots=True)
class _Batch:
    """A micro-batch on its way through the plan."""

    duck: Duck
    rows: Mapping[str, pa.Table]
    flush: bool
    first: bool
    stages: Iterator[_Stage]
    pipeline: MemoryPipeline

    def stream(self, node: Plan) -> _Stream:
        """A node's rows."""
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
                below.relation = duck.project(below.relation, node.expressions, len(node.input.schema), below.hidden)
                return below
            case Filter():
                below = self.stream(node.input)
                below.relation = duck.filter(below.relation, node.condition, len(node.schema))
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
                right = relation_of(duck, node.right, self.pipeline._beside, self.pipeline._settings)
                below.relation = duck.join(below.relation, right, node, below.hidden)
                return below
            case Sort() | Limit() | SetOperation():
                raise AssertionError(node)
            case _:
                return self._step(node, self.stream(node.input))

    def _scan(self, node: Scan) -> _Stream:
        split = self.pipeline._split(node)
        table = self.rows.get(node.table.name)
        if table is None:
            table = node.schema.arrow.empty_table()
        hidden = (KIND,) if is_updating(node) else ()
        if hidden and KIND not in table.column_names:
            table = table.append_column(KIND, pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), table.num_rows))
        return _Stream(self.duck.leaf(table, node.schema, hidden), (split,), hidden=hidden)

    def _watermark(self, node: WatermarkAssigner) -> _Stream:
        """Moves the watermark by all rows that come by, before any WHERE; a row without time stops the job or is dropped."""
        below, duck = self.stream(node.input), self.duck
        schema = node.input.schema
        table = duck.rows(below.relation, schema, below.hidden)
        at = physical(node.column)
        missing = table[at].is_null()
        if below.hidden:  # the delete of an upsert has its key only
            missing = pc.and_(missing, pc.not_equal(table[KIND], RowKind.DELETE.value))
        nulls = pc.sum(missing).as_py() or 0
        if nulls and self.pipeline._settings.null_rowtime != "drop":
            name = schema[node.column].name
            table = next(each.name for each in tables_of(streamed(node)))
            message = f"table `{table}`: the time attribute `{name}` is NULL"
            raise ConnectorError.of("null-rowtime", message, help=NULL_ROWTIME_HELP)
        if nulls:
            self.pipeline.drop(nulls)
            table = table.filter(pc.invert(missing))
        relation = duck.leaf(table, schema, below.hidden)
        moved = duck.milliseconds(duck.text(node.watermark, table.column_names), node.watermark.type)
        highest = duck.run(f"SELECT max({moved}) AS high FROM ({relation})")["high"][0].as_py()
        watermarks = {split: int(highest) for split in below.splits} if highest is not None else {}
        return _Stream(relation, below.splits, watermarks, below.hidden)

    def _step(self, node: StatefulNode, below: _Stream) -> _Stream:
        stage = next(self.stages)
        operator = stage.operator
        buckets = len(stage.stores)
        prepared = operator.prepare(self._prepared(node, below, operator))
        metas = [Meta(self.duck.now_ms, below.watermarks, self.flush)]
        filled: list[pl.DataFrame] = []
        if stage.past is not None and is_fillable(operator):
            filled = [operator.fill(store, [past]) for store, past in zip(stage.stores, stage.past, strict=True)]
            stage.past = None
        steps = [
            operator.step(store, [prepared.filter(pl.col("hash") % buckets == at) if buckets > 1 else prepared], metas)
            for at, store in enumerate(stage.stores)
        ]
        stage.stats = [step.stats for step in steps]
        rows = pl.concat([*filled, *(step.rows for step in steps)])
        if is_updating(node) and ORDER in rows.columns:
            rows = rows.sort(ORDER, maintain_order=True)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        hidden = (KIND,) if is_updating(node) else ()
        relation = self.duck.leaf(table, operator.schema, hidden)
        return _Stream(relation, (operator.name,), steps[0].meta.watermarks, hidden)

    def _prepared(self, node: StatefulNode, below: _Stream, operator: Operator) -> pl.DataFrame:
        """The columns that the operator wants of its input; `kind` and `seq` if it asks for them."""
        duck, columns = self.duck, [physical(at) for at in range(len(node.input.schema))]
        made = []
        for each in operator.inputs:
            text = duck.text(each.expression, columns)
            if each.as_ms:
                text = duck.milliseconds(text, each.expression.type, each.zone)
            if each.as_hash:
                text = _hash(text)
            made.append(f"{text} AS {each.name}")
        if operator.updating:
            made.append(f"{KIND} AS kind")
        inner = f"SELECT {', '.join(made)} FROM ({below.relation})"
        keys = operator.hash_columns
        hashed = _hash(*keys) if keys else "CAST(0 AS BIGINT)"
        table = duck.run(f"SELECT {hashed} AS hash, * FROM ({inner})")
        types = {each.name: each.type.arrow for each in operator.inputs} | {"kind": pa.int8()}
        fields = [pa.field(name, types.get(name, pa.int64())) for name in table.column_names]
        frame = pl.from_arrow(table.cast(pa.schema(fields)))
        assert isinstance(frame, pl.DataFrame)
        return frame.with_columns(pl.int_range(pl.len()).alias("seq")) if operator.ordered else frame


def _hash(*texts: str) -> str:
    return f"CAST(hash({', '.join(texts)}) % 9223372036854775807 AS BIGINT)"


def _reached(stage: _Stage) -> int | None:
    """Up to when the rows of a stage are final, in all buckets."""
    operator = stage.operator
    if not is_fillable(operator):
        return None
    return min(operator.reached(read_head(store, 0)) for store in stage.stores)


def _summed(name: str, stats: list[Stats]) -> Stats:
    if not stats:
        return Stats(name)
    return Stats(
        name, stats[0].watermark_ms, sum(each.late_rows for each in stats), sum(each.state_rows for each in stats)
    )
