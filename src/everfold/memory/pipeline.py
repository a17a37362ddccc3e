"""The in-process runner of a stream: the plan and the operators that Spark runs, batch by batch, without a JVM.

Scalar parts are DuckDB SQL, stateful nodes are operators over stores in memory. `restarted` goes on with new operator objects on what the
stores hold, as a job does that was stopped and started again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from everfold.compat import Terms, judge, shape_of, succeeding
from everfold.compat.reuse import is_complete
from everfold.errors import ConnectorError, StateError, UnsupportedFeature
from everfold.memory.batch import relation_of, run_batch
from everfold.memory.duck import Duck
from everfold.operators.backfill import NEW_OPERATOR, as_given, beginning, is_fillable, unfillable
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import NO_WATERMARK, Meta, Operator, Stats
from everfold.operators.reemit import begun, parted, repeating
from everfold.plan.changelog import AGAIN, GONE, KIND, ORDER, RowKind, is_updating
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
from everfold.state.bucket_head import read_head
from everfold.state.store import MemoryStore
from everfold.types import physical

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class _Stage:
    """A stateful node at work. past: what its next batch begins with, by bucket (`operators.backfill`). repeat: whether it begins with its rows as they are
    (`operators.reemit`)."""

    node: StatefulNode
    operator: Operator
    stores: list[MemoryStore]
    stats: list[Stats] = field(default_factory=list)
    past: list[pl.DataFrame] | None = None
    repeat: bool = False


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

    `beside`: the rows of the tables that joins read as a batch. `names`: of the operators, topmost first, where they are not numbered as rows come by them.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        *,
        buckets: int = 1,
        beside: Mapping[str, pa.Table] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._root, self._settings, self._buckets = root, settings, buckets
        self._names = dict(zip((id(node) for node in streamed(root.input) if is_stateful(node)), names, strict=False))
        self._beside = beside or {}
        self._stages: list[_Stage] = []
        self._dropped = 0
        self._started = False
        self._duck: Duck | None = None
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
        again = self._with(self._root, self._settings, [stage.operator.name for stage in self._by_place()])
        for stage, old in zip(again._stages, self._stages, strict=True):
            stage.stores, stage.stats = old.stores, old.stats
        again._dropped, again._started = self._dropped, self._started
        return again

    def changed(
        self,
        root: Root,
        version: int,
        settings: Settings | None = None,
        history: Mapping[str, pa.Table] | None = None,
        *,
        refresh: bool = False,
    ) -> MemoryPipeline:
        """A new pipeline by another query, as that version of the job, which goes on with this one's state. history: all rows that have come so far, by table: new
        aggregates are given their past with the next batch. refresh: the next batch gives the whole result again.

        StateError `no-backfill`, or `incompatible-change` where the judgement is that it cannot; this one is as it was then.
        """
        settings, old = settings or self._settings, shape_of(self._root)
        terms = Terms.of(settings)
        new = shape_of(root)
        judgement = judge([old], [new], terms)
        if not judgement.verdict.reuses:
            raise StateError.of(
                "incompatible-change", f"the change is {judgement.verdict.value}: the state cannot go on"
            )
        succession = succeeding(old, root, version, terms)
        others, kept = self._by_place(), succession.matching.old
        taken = {stage.operator.name for stage in others}
        fresh = (name for name in map("w{}".format, count(1)) if name not in taken)
        names = [others[kept[at]].operator.name if at in kept else next(fresh) for at in range(len(new.operators))]
        again = self._with(succession.root, settings, names)
        stages = again._by_place()
        for at, one in kept.items():
            stages[at].stores, stages[at].stats = others[one].stores, others[one].stats
        again._dropped, again._started = self._dropped, self._started
        begun = {id(stage.node) for at, stage in enumerate(stages) if at not in kept}
        givers = {id(node) for node in repeating(succession.root, version, refresh=refresh, fresh=begun)}
        for stage in stages:
            stage.repeat = id(stage.node) in givers
        if history is not None:
            for at, stage in enumerate(stages):
                if at not in kept and not is_complete(new, at, kept):
                    raise unfillable(NEW_OPERATOR, stage.node.span)
            for at in kept:
                again._recall(stages[at], version, history)
        return again

    def _with(self, root: Root, settings: Settings, names: Sequence[str]) -> MemoryPipeline:
        return MemoryPipeline(root, settings, buckets=self._buckets, beside=self._beside, names=names)

    def _recall(self, stage: _Stage, version: int, history: Mapping[str, pa.Table]) -> None:
        """Computes the past of a stage's new aggregates."""
        begun = beginning(stage.node, version)
        if begun is None:
            return
        reached = {id(each.node): _reached(each) for each in self._stages}
        duck = Duck(self._settings.local_time_zone, 0)
        begun = replace(begun, input=as_given(begun.input, lambda node: reached[id(node)]))
        operator = operator_of(begun, stage.operator.name, clock_of(begun, (), None))
        assert is_fillable(operator)
        since = reached[id(stage.node)]
        assert since is not None
        below = _Stream(relation_of(duck, begun.input, history))
        rows = _prepared(duck, begun, below, operator)
        found = operator.history(rows, since)
        stage.past = _dealt(found, len(stage.stores))

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
                return (node.table.name,)
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
                name = self._names.get(id(node), f"w{len(self._stages) + 1}")
                stores = [MemoryStore() for _ in range(self._buckets)]
                operator = operator_of(node, name, clock, updating=is_updating(node.input))
                self._stages.append(_Stage(node, operator, stores))
                return (name,)

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
        again = any(stage.repeat for stage in self._stages)
        run = _Batch(duck, rows, flush, first, again, iter(self._stages), self)
        try:
            found = run.stream(self._root.input)
            told = duck.rows(found.relation, schema, found.hidden)
            return _told(told) if again and found.hidden else told
        finally:
            duck.forget()

    def drop(self, rows: int) -> None:
        """Counts rows that had no time."""
        self._dropped += rows


@dataclass(slots=True)
class _Batch:
    """A micro-batch on its way through the plan. again: whether rows are given again in it."""

    duck: Duck
    rows: Mapping[str, pa.Table]
    flush: bool
    first: bool
    again: bool
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
                right = relation_of(duck, node.right, self.pipeline._beside)
                below.relation = duck.join(below.relation, right, node, below.hidden)
                return below
            case Sort() | Limit() | SetOperation():
                raise AssertionError(node)
            case _:
                return self._step(node, self.stream(node.input))

    def _scan(self, node: Scan) -> _Stream:
        split = node.table.name
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
        rows, given = _prepared(self.duck, node, below, operator), None
        if operator.updating:
            rows, given = parted(rows, "kind")
        # No rows are not prepared, as a task of Spark prepares none: of a global group they would make one of nothing.
        prepared = _dealt(operator.prepare(rows), buckets) if rows.height else []
        counted = _dealt(operator.prepare(given), buckets) if given is not None and given.height else []
        metas = [Meta(self.duck.now_ms, below.watermarks, self.flush)]
        changed: list[pl.DataFrame] = []
        steps = []
        for at, store in enumerate(stage.stores):
            past = [stage.past[at]] if stage.past is not None else []
            first = begun(operator, store, 0, repeat=stage.repeat, past=past, given=counted[at : at + 1])
            changed += first.changes
            steps.append(operator.step(store, [*first.rows, *prepared[at : at + 1]], metas))
        stage.past, stage.repeat = None, False
        stage.stats = [step.stats for step in steps]
        rows = pl.concat([*changed, *(step.rows for step in steps)])
        if ORDER in rows.columns:
            rows = rows.sort(ORDER, maintain_order=True)
        table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        hidden = (KIND,) if is_updating(node) else ()
        relation = self.duck.leaf(table, operator.schema, hidden)
        return _Stream(relation, (operator.name,), steps[0].meta.watermarks, hidden)


def _prepared(duck: Duck, node: StatefulNode, below: _Stream, operator: Operator) -> pl.DataFrame:
    """The columns that the operator wants of its input; `kind` and `seq` if it asks for them."""
    columns = [physical(at) for at in range(len(node.input.schema))]
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
    keys = operator.hash_columns
    if made:
        hashed = _hash(*keys) if keys else "CAST(0 AS BIGINT)"
        table = duck.run(f"SELECT {hashed} AS hash, * FROM (SELECT {', '.join(made)} FROM ({below.relation}))")
    else:
        # Only how many rows there are: COUNT(*) of all of them.
        table = duck.run(f"SELECT CAST(0 AS BIGINT) AS hash FROM ({below.relation})")
    types = {each.name: each.type.arrow for each in operator.inputs} | {"kind": pa.int8()}
    fields = [pa.field(name, types.get(name, pa.int64())) for name in table.column_names]
    frame = pl.from_arrow(table.cast(pa.schema(fields)))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.int_range(pl.len()).alias("seq")) if operator.ordered else frame


def _dealt(rows: pl.DataFrame, buckets: int) -> list[pl.DataFrame]:
    """The rows of each bucket."""
    return [rows.filter(pl.col("hash") % buckets == at) for at in range(buckets)] if buckets > 1 else [rows]


def _told(rows: pa.Table) -> pa.Table:
    """Rows with the kinds that a sink is told: those that are given again are so now, those that are left out now are gone."""
    kinds = rows[KIND]
    kinds = pc.if_else(pc.equal(kinds, AGAIN), pa.scalar(RowKind.UPDATE_AFTER.value, pa.int8()), kinds)
    kinds = pc.if_else(pc.equal(kinds, GONE), pa.scalar(RowKind.DELETE.value, pa.int8()), kinds)
    return rows.set_column(rows.schema.get_field_index(KIND), KIND, kinds)


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
    late, rows, ignored = (
        sum(of) for of in zip(*((s.late_rows, s.state_rows, s.ignored_rows) for s in stats), strict=True)
    )
    return Stats(name, stats[0].watermark_ms, late, rows, ignored)
