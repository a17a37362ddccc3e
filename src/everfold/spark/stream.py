"""Lowering to a stream: scalar parts to Catalyst, stateful nodes to `transformWithState`.

In addition to its data columns `c0, c1, …` a stream has hidden ones (`exchange`): what advances its
watermark, whether a WHERE excluded the row, the meta rows of the previous operator, and `__kind` if
rows may be changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Protocol

from everfold.connectors.file_order import FILE
from everfold.connectors.null_rowtime import LOCATION, raise_null_rowtime
from everfold.connectors.skipped_rows import count_null_rowtime
from everfold.connectors.worker_reader import WorkerInput
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import TABLES, Operator
from everfold.plan.changelog import KIND, ORDER, REEMIT, REEMIT_DELETE, ChangelogMode, RowKind
from everfold.plan.emitted_changes import changelog_of, is_updating
from everfold.plan.expressions import inputs_of
from everfold.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Plan,
    Project,
    Scan,
    StatefulNode,
    Table,
    Union,
    Unnest,
    WatermarkAssigner,
    WindowAggregate,
    WindowTableFunction,
    is_stateful,
)
from everfold.plan.walk import tables_of, walk_streamed
from everfold.plan.windows import Session
from everfold.spark.delivery import Delivery
from everfold.spark.exchange import WIRE, Pack
from everfold.spark.operator_inputs import hash_sql, input_columns_sql, input_type
from everfold.spark.output_rows import OutputRows
from everfold.spark.processor import PAYLOAD, BucketProcessor
from everfold.spark.python import pickle_operator, ship_functions
from everfold.spark.scalar import Scalars
from everfold.spark.tail import Tail
from everfold.spark.task_input import (
    COMMAND,
    CONTROL,
    FORWARDED,
    HASH,
    KEEP,
    NOW,
    SPLIT,
    WATERMARK,
    CatalystRows,
    TaskInput,
)
from everfold.spark.worker_scan import UnionScan, WorkerScan, make_scan_query, mark_handles, plan_worker_scans
from everfold.types import Schema, physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = (SPLIT, WATERMARK, KEEP, FORWARDED, ORDER, LOCATION, FILE)
_MATCHED = "__matched"
_NO_SPLIT = f"CAST(NULL AS STRING) AS {SPLIT}"
_NO_WATERMARK = f"CAST(NULL AS BIGINT) AS {WATERMARK}"
_NO_META = f"CAST(NULL AS BINARY) AS {FORWARDED}"
_NO_ORDER = f"CAST(NULL AS BIGINT) AS {ORDER}"
_NO_PLACE = f"CAST(NULL AS STRING) AS {LOCATION}"
_NO_FILE = f"CAST(NULL AS STRING) AS {FILE}"
_NO_KIND = f"CAST(NULL AS TINYINT) AS {KIND}"
_INSERT = f"CAST({RowKind.INSERT.value} AS TINYINT) AS {KIND}"


@dataclass(frozen=True, slots=True)
class SourceStream:
    """An opened source: its frame (`c0, …`, `__split`) and the splits known at the start."""

    frame: DataFrame
    splits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkerSource:
    """A source that workers decode, and the splits known at the start."""

    input: WorkerInput
    splits: tuple[str, ...]


class WorkerSources(Protocol):
    """Opens the tables of a job for workers."""

    def can_stream_in_worker(self, table: Table, columns: Sequence[int]) -> bool:
        """Return whether workers can decode some columns of a table."""

    def stream_in_worker(self, table: Table, name: str, columns: Sequence[int]) -> WorkerSource:
        """Open some columns of a table, under a source name."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A lowered plan.

    rows: its frame, or the tail of the operator that the rows come from. splits: its watermark is
    the minimum over these. is_guarded: whether expressions must not be evaluated for some rows.
    has_row_kinds: whether rows have a kind. inputs: the operators that the rows come from, TABLES
    for tables. has_files: whether rows are from files.
    """

    rows: DataFrame | Tail
    schema: Schema
    splits: tuple[str, ...] = ()
    is_guarded: bool = False
    has_row_kinds: bool = False
    inputs: tuple[str, ...] = (TABLES,)
    has_files: bool = False

    @property
    def tail(self) -> Tail | None:
        """The tail of an operator if the rows are still packed."""
        return self.rows if isinstance(self.rows, Tail) else None

    @property
    def frame(self) -> DataFrame:
        """The typed rows with their hidden columns."""
        if not isinstance(self.rows, Tail):
            return self.rows
        data = [physical_name(at) for at in range(len(self.schema))]
        hidden = [_NO_SPLIT, _NO_WATERMARK, f"{FORWARDED} IS NULL AS {KEEP}", FORWARDED, ORDER, _NO_PLACE, _NO_FILE]
        return self.rows.to_frame().selectExpr(*data, *hidden, *([KIND] if self.has_row_kinds else []))

    @property
    def has_meta_rows(self) -> bool:
        """Whether the rows include meta rows of an operator."""
        return self.inputs != (TABLES,)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the hidden columns."""
        return (*_HIDDEN, KIND) if self.has_row_kinds else _HIDDEN

    def replace_hidden(self, **others: str) -> list[str]:
        """Return the hidden columns, some of them replaced by other SQL."""
        return [others.get(name, name) for name in self.hidden]

    def with_frame(self, frame: DataFrame, schema: Schema, *, guarded: bool = False) -> Stream:
        """Return the stream with another frame and schema."""
        return replace(self, rows=frame, schema=schema, is_guarded=self.is_guarded or guarded)

    @property
    def guard(self) -> str | None:
        """The condition under which a row's expressions are evaluated."""
        return KEEP if self.is_guarded else None


def _no_lookup_tables(plan: Plan) -> DataFrame:
    raise AssertionError(plan)


@dataclass(slots=True)
class StreamLowering:
    """Creates the streaming DataFrame of a plan, whose operators and sources are named.

    open_source: opens a table under a source name.
    worker_sources: opens tables that workers decode. Without it, Catalyst decodes all tables.
    control_folder: the folder where the runner writes control files.
    bucket_ids: see `buckets`.
    epoch: the epoch of the state; pages of earlier epochs are discarded.
    query_digest, foreign_operators: see `BucketProcessor`. state_names: the names that operators
    have in the state, where these differ from their own.
    named_sources: whether Spark knows the sources by name; False if a stream of the caller has no
    name.
    has_batch_time: whether the runner sets the time of a batch (`task_input.BATCH_TIME`).
    has_reemitted_rows: whether the first batch may have re-emitted rows.
    read_lookup_table: reads the lookup table of a join.
    fused: whether workers that unpack an operator's rows also do what follows, as far as they can.
    """

    spark: SparkSession
    zone: str
    open_source: Callable[[Table, str], SourceStream]
    control_folder: str
    bucket_ids: tuple[int, ...]
    idle_timeout_ms: int | None = None
    drop_null_rowtime: bool = False
    epoch: int = 0
    query_digest: str | None = None
    foreign_operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state_names: Mapping[str, str] = field(default_factory=dict)
    named_sources: bool = True
    has_batch_time: bool = False
    has_reemitted_rows: bool = False
    read_lookup_table: Callable[[Plan], DataFrame] = _no_lookup_tables
    worker_sources: WorkerSources | None = None
    fused: bool = True
    operators: list[StatefulNode] = field(default_factory=list)

    @property
    def _now(self) -> list[str]:
        """The column with the time of the batch, if a column is needed for it."""
        return [] if self.has_batch_time else [f"unix_millis(current_timestamp()) AS {NOW}"]

    @property
    def _scalars(self) -> Scalars:
        return Scalars(self.spark, self.zone)

    def lower(self, node: Plan) -> Stream:
        """Return the stream of a plan's rows."""
        match node:
            case Scan():
                return self._scan(node)
            case WatermarkAssigner():
                return self._watermark(node)
            case Project():
                below = self.lower(node.input)
                tail = None if below.tail is None else below.tail.project(node.expressions)
                if tail is not None:
                    return replace(below, rows=tail, schema=node.schema)
                frame = self._scalars.project(
                    below.frame, node.expressions, len(below.schema), below.hidden, below.guard
                )
                return below.with_frame(frame, node.schema)
            case Filter():
                below = self.lower(node.input)
                if below.tail is not None and not (self.has_reemitted_rows and below.has_row_kinds):
                    tail = below.tail.filter(node.condition)
                    if tail is not None:
                        return replace(below, rows=tail, schema=node.schema)
                condition = self._scalars.render_sql(node.condition, len(below.schema), below.guard)
                found = {KEEP: f"{KEEP} AND coalesce({condition}, FALSE) AS {KEEP}"}
                if self.has_reemitted_rows and below.has_row_kinds:
                    # A re-emitted row that is now excluded must be deleted downstream.
                    found[KIND] = (
                        f"if({KIND} = {REEMIT} AND NOT coalesce({condition}, FALSE), {REEMIT_DELETE}, {KIND}) AS {KIND}"
                    )
                    found[KEEP] = f"{KEEP} AND ({KIND} >= {REEMIT} OR coalesce({condition}, FALSE)) AS {KEEP}"
                columns = [*self._data(below.schema), *below.replace_hidden(**found)]
                return below.with_frame(below.frame.selectExpr(*columns), node.schema, guarded=True)
            case Union():
                return self._union(node)
            case Unnest():
                below = self.lower(node.input)
                frame = self._scalars.unnest(below.frame, node, below.hidden, below.guard)
                kept = KEEP if node.outer else f"{KEEP} AND __position IS NOT NULL AS {KEEP}"
                frame = frame.selectExpr(*self._data(node.schema), *below.replace_hidden(**{KEEP: kept}))
                return below.with_frame(frame, node.schema, guarded=True)
            case WindowTableFunction() if not is_stateful(node):
                return self._assign_windows(node)
            case Join():
                return self._join(node)
            case _:
                assert is_stateful(node), "checked by the preflight"
                return self._operator(node)

    @staticmethod
    def _data(schema: Schema) -> list[str]:
        return [physical_name(at) for at in range(len(schema))]

    def _scan(self, node: Scan) -> Stream:
        source = self.open_source(node.table, node.source_name)
        split = _NO_SPLIT if len(source.splits) == 1 else SPLIT
        has_files = FILE in source.frame.columns
        columns = [*self._data(node.schema), split, _NO_WATERMARK, f"TRUE AS {KEEP}", _NO_META, _NO_ORDER]
        columns.append(LOCATION if LOCATION in source.frame.columns else _NO_PLACE)
        columns.append(FILE if has_files else _NO_FILE)
        changes = is_updating(node)
        if changes:
            columns.append(KIND if KIND in source.frame.columns else _INSERT)
        frame = source.frame.selectExpr(*columns)
        return Stream(frame, node.schema, source.splits, has_row_kinds=changes, has_files=has_files)

    def _watermark(self, node: WatermarkAssigner) -> Stream:
        below = self.lower(node.input)
        at = physical_name(node.column)
        frame, kept = below.frame, KEEP
        # The delete of an upsert has only its key, and so no time.
        timeless = f"{at} IS NULL"
        if changelog_of(node.input) is ChangelogMode.UPSERT:
            timeless = f"({at} IS NULL AND {KIND} <> {RowKind.DELETE.value})"
        table = next((each.name for each in tables_of(walk_streamed(node))), "")
        if self.drop_null_rowtime:
            kept = f"{KEEP} AND NOT {timeless} AS {KEEP}"
            frame = count_null_rowtime(frame, f"{KEEP} AND {timeless}", table, LOCATION)
        else:
            missing_time = raise_null_rowtime(table, node.schema[node.column].name)
            checked = f"CASE WHEN {timeless} THEN {missing_time} ELSE {at} END AS {at}"
            columns = [checked if name == at else name for name in self._data(below.schema)]
            frame = frame.selectExpr(*columns, *below.hidden)
        watermark = self._scalars.render_sql(node.watermark, len(below.schema))
        moved = f"{self._scalars.milliseconds(watermark, node.watermark.type)} AS {WATERMARK}"
        frame = frame.selectExpr(*self._data(below.schema), *below.replace_hidden(**{WATERMARK: moved, KEEP: kept}))
        return below.with_frame(frame, node.schema, guarded=self.drop_null_rowtime)

    def _join(self, node: Join) -> Stream:
        """Join each row with the matching rows of the lookup table.

        An excluded row stays in the stream without a match, because it advances the watermark.
        """
        from pyspark.sql import functions as F  # noqa: N812

        below, right = self.lower(node.left), self.read_lookup_table(node.right)
        width, more = len(node.left.schema), len(node.right.schema)
        if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
            # One matching row is enough: IN compares all columns of the lookup table, EXISTS none.
            compared = node.condition is not None and inputs_of(node.condition)
            right = right.distinct() if compared else right.limit(1)
        moved = right.selectExpr(
            *(f"{physical_name(at)} AS {physical_name(width + at)}" for at in range(more)), f"TRUE AS {_MATCHED}"
        )
        condition = (
            ""
            if node.condition is None
            else f" AND ({self._scalars.render_sql(node.condition, width + more, below.guard)})"
        )
        frame = below.frame.join(moved, F.expr(f"{KEEP}{condition}"), "left")
        kept = {
            JoinKind.LEFT: KEEP,
            JoinKind.ANTI: f"{KEEP} AND {_MATCHED} IS NULL AS {KEEP}",
        }.get(node.kind, f"{KEEP} AND {_MATCHED} IS NOT NULL AS {KEEP}")
        frame = frame.selectExpr(*self._data(node.schema), *below.replace_hidden(**{KEEP: kept}))
        return below.with_frame(frame, node.schema, guarded=node.kind is not JoinKind.LEFT)

    def _union(self, node: Union) -> Stream:
        streams = [self.lower(each) for each in node.inputs]
        changes = any(each.has_row_kinds for each in streams)
        rows = union_all([self._for_union(each, changes) for each in streams])
        splits = tuple(split for each in streams for split in each.splits)
        guarded = any(each.is_guarded for each in streams)
        inputs = tuple(dict.fromkeys(name for each in streams for name in each.inputs))
        has_files = any(stream.has_files for stream in streams)
        return Stream(rows, node.schema, splits, guarded, changes, inputs, has_files)

    def _for_union(self, stream: Stream, changes: bool) -> DataFrame:
        """Return the stream with the name of its split in each row, and with row kinds.

        In a union, NULL would not identify the only split of a stream.
        """
        split_name = {}
        if len(stream.splits) == 1:
            split_name = {SPLIT: f"coalesce({SPLIT}, '{stream.splits[0]}') AS {SPLIT}"}
        kinds = [_INSERT] if changes and not stream.has_row_kinds else []
        return stream.frame.selectExpr(*self._data(stream.schema), *stream.replace_hidden(**split_name), *kinds)

    def _assign_windows(self, node: WindowTableFunction) -> Stream:
        assert not isinstance(node.window, Session)
        below = self.lower(node.input)
        width = len(below.schema)
        of = below.schema[node.time_column]
        at = self._scalars.milliseconds(physical_name(node.time_column), of.type, node.zone)
        ends = self._scalars.window_ends(node.window, at)
        if below.has_meta_rows:  # they have no time, and explode would drop them
            ends = f"IF({at} IS NULL, array(CAST(NULL AS BIGINT)), {ends})"
        ends = f"explode({ends}) AS __end"
        frame = below.frame.selectExpr(*self._data(below.schema), *below.hidden, ends)
        start = self._scalars.window_start(node.window, "__end")
        appended = self._scalars.window_columns(start, "__end", of.type, node.zone, width)
        frame = frame.selectExpr(*self._data(below.schema), *appended, *below.hidden)
        return below.with_frame(frame, node.schema)

    # --- operators --------------------------------------------------------------------------------

    def _operator(self, node: StatefulNode) -> Stream:
        # Operators of one query have different names in the state: they are copied together.
        name, state_name = node.operator_id, self._state_name(node)
        timed = isinstance(node, WindowTableFunction | WindowAggregate)
        ship_functions(node)
        packed, operator = self._pack_input(node)
        self.operators.append(node)
        first, strangers = self.bucket_ids[0], self.foreign_operators.get(name, ())
        pickled = pickle_operator(operator)

        def step(delivery: Delivery | None) -> DataFrame:
            processor = BucketProcessor(state_name, pickled, first, self.query_digest, self.epoch, strangers, delivery)
            return packed.groupBy("bucket").transformWithState(processor, PAYLOAD, "Append", "None")

        changes = is_updating(node)
        tail = Tail(step, OutputRows.of(operator, is_timed=timed, has_row_kinds=changes))
        names = (state_name,)
        stream = Stream(tail, operator.schema, names, is_guarded=True, has_row_kinds=changes, inputs=names)
        return stream if self.fused else replace(stream, rows=stream.frame)

    def _state_name(self, node: StatefulNode) -> str:
        return self.state_names.get(node.operator_id, node.operator_id)

    def _pack_input(self, node: StatefulNode) -> tuple[DataFrame, Operator]:
        """Return the packed rows of an operator's input, and the operator."""
        scanned = self._scan_in_workers(node)
        if scanned is not None:
            return scanned
        below = self.lower(node.input)
        operator = self._create_operator(node, below.splits, below.inputs, updating=below.has_row_kinds)
        packed_rows = None if below.tail is None else below.tail.feed(operator)
        if below.tail is not None and packed_rows is not None:
            rows = self._with_commands(below.tail.stepped, operator)
            return self._pack(rows, operator, packed_rows), operator
        split = below.splits[0] if len(below.splits) == 1 else ""
        return self._pack(self._exchange_input(below, operator), operator, CatalystRows(split)), operator

    def _pack(self, rows: DataFrame, operator: Operator, task_input: TaskInput) -> DataFrame:
        return rows.mapInArrow(Pack(operator, self.bucket_ids, task_input), WIRE)

    def _with_commands(self, blobs: DataFrame, operator: Operator) -> DataFrame:
        """Return what workers decode, with the time of the batch and the lines of control files."""
        line = f"concat(X'{COMMAND.hex()}', CAST(value AS BINARY)) AS payload"
        commands = self._control_lines(operator).selectExpr(line, *self._now)
        return blobs.selectExpr("payload", *self._now).union(commands)

    def _create_operator(
        self, node: StatefulNode, splits: tuple[str, ...], inputs: tuple[str, ...], *, updating: bool
    ) -> Operator:
        clock = replace(clock_of(node, splits, self.idle_timeout_ms, inputs), name=self._state_name(node))
        return operator_of(node, node.operator_id, clock, self.epoch, updating=updating)

    def _scan_in_workers(self, node: StatefulNode) -> tuple[DataFrame, Operator] | None:
        """Return the packed input of an operator that workers decode, None if they cannot."""
        opener = self.worker_sources
        plans = plan_worker_scans(node)
        if opener is None or isinstance(plans, str):
            return None
        if not all(opener.can_stream_in_worker(plan.scan.table, plan.columns) for plan in plans):
            return None
        sources = [opener.stream_in_worker(each.scan.table, each.scan.source_name, each.columns) for each in plans]
        splits = tuple(split for source in sources for split in source.splits)
        operator = self._create_operator(node, splits, (TABLES,), updating=is_updating(node.input))
        scans = [
            WorkerScan(
                make_scan_query(plan, operator, self.zone, drops_timeless=self.drop_null_rowtime),
                source.input.reader,
                source.splits[0],
                by_file=operator.follows_order,
            )
            for plan, source in zip(plans, sources, strict=True)
        ]
        task_input = scans[0] if len(scans) == 1 else UnionScan(tuple(scans))
        handles = [mark_handles(source.input.frame, at) for at, source in enumerate(sources)]
        return self._pack(self._with_commands(union_all(handles), operator), operator, task_input), operator

    def _control_lines(self, operator: Operator) -> DataFrame:
        reader = self.spark.readStream
        if self.named_sources:
            reader = reader.name(f"control_{operator.name}")
        return reader.text(self.control_folder)

    def _exchange_input(self, below: Stream, operator: Operator) -> DataFrame:
        keys = operator.hash_columns
        inputs = input_columns_sql(self._scalars, operator.inputs, keys, len(below.schema), below.guard)
        empty = {WATERMARK: _NO_WATERMARK}
        if len(below.splits) != 1:
            empty[SPLIT] = _NO_SPLIT
        if below.is_guarded:
            empty[KEEP] = f"FALSE AS {KEEP}"
        if below.has_meta_rows:
            empty[FORWARDED] = _NO_META
        if operator.ordered and below.has_meta_rows:
            empty[ORDER] = _NO_ORDER
        elif operator.follows_order and below.has_files:
            empty[FILE] = _NO_FILE
        if operator.updating:
            empty[KIND] = _NO_KIND
        hidden = tuple(empty)
        data = below.frame.selectExpr(*inputs, *hidden)
        hashed = hash_sql(operator.inputs, keys)
        names = [each.name for each in operator.inputs]
        data = data.selectExpr(f"{hashed} AS {HASH}", *names, *hidden, *self._now, f"CAST(NULL AS STRING) AS {CONTROL}")
        absent = [f"CAST(NULL AS {input_type(each)}) AS {each.name}" for each in operator.inputs]
        control = self._control_lines(operator)
        return data.union(
            control.selectExpr(f"0L AS {HASH}", *absent, *empty.values(), *self._now, f"value AS {CONTROL}")
        )


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, whose columns are the same."""
    return reduce(lambda one, other: one.union(other), frames)
