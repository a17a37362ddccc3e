"""The worker scan: a task decodes the rows of a table and computes an operator's input itself.

Decoding, watermark, WHERE, projection, assignment of windows and the hash of the key run in the
Python worker that pre-aggregates and packs the rows, so only packed blobs cross to the JVM. Scalar
expressions run as the DuckDB SQL of the memory engine. Catalyst computes what is not proven to be
equal there (`plan/worker_expressions.py`), and what a source cannot decode in a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from everfold.connectors.null_rowtime import NullRowtime
from everfold.connectors.skipped_rows import BAD_RECORD, EXAMPLE_CHARACTERS, NO_TIME
from everfold.connectors.worker_reader import HANDLE, Piece, WorkerReader, drop_front
from everfold.memory.duck import Duck, connect
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import NO_WATERMARK, Meta, Operator, to_milliseconds
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.plan.emitted_changes import changelog_of, is_updating
from everfold.plan.expressions import Expr, InputRef, inputs_of, split_shift
from everfold.plan.nodes import (
    Filter,
    Plan,
    Project,
    Scan,
    StatefulNode,
    Union,
    WatermarkAssigner,
    WindowTableFunction,
    is_proctime,
    is_stateful,
)
from everfold.plan.parts import children
from everfold.plan.worker_expressions import reason_not_in_worker
from everfold.spark.task_input import FLUSH, TABLE, Chunk, TaskReads, read_time, split_commands
from everfold.spark.worker_inputs import add_hashes, depends_on_zone, reason_not_prepared
from everfold.state.segments import take_rows
from everfold.types import TimestampType, physical_name

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

_BRANCH_BYTES = 2
_HEADER_BYTES = len(TABLE) + _BRANCH_BYTES
"""What precedes a handle in its blob: the kind, and the position of its table in a UNION ALL."""
_LEAF = "decoded"
_ROW = "__row"
"""The number of a decoded row."""
_NOW = "now_us"
"""The variable of DuckDB that is the processing time of the batch, in microseconds."""
_CHUNK_ROWS, _CHUNK_BYTES = 500_000, 64 << 20
"""What is computed at once. Pieces that fit into the processor's cache are folded a quarter faster
than two million rows.
"""


@dataclass(frozen=True, slots=True)
class ScanQuery:
    """What is computed from the decoded rows of a table, as DuckDB SQL over the relation `decoded`.

    rows: the operator's inputs that are computed, and `_ROW` if others are passed on; None if every
        row is passed on with all its inputs.
    passed: the decoded column and whether it becomes milliseconds, for each input that is passed
        on.
    types: Arrow types of the operator's inputs. keys: the inputs whose hash is that of the row.
    hashes: the inputs that are replaced by their hash.
    has_changes: whether the operator needs the row kind of each row.
    time: one row with the greatest watermark and the number of rows without a time; None if the
        table has no time attribute. latest: the decoded column whose greatest value determines the
        greatest watermark, None if all rows are needed for it. timeless: TRUE for each row without
        a time. drops_timeless: whether such rows are skipped. table, column: named in the error for
        them.
    """

    table: str
    rows: str | None
    passed: Mapping[str, tuple[str, bool]]
    types: pa.Schema
    keys: tuple[str, ...]
    hashes: tuple[str, ...] = ()
    has_changes: bool = False
    time: str | None = None
    latest: str | None = None
    timeless: str = ""
    drops_timeless: bool = False
    column: str = ""

    def compute(self, decoded: pa.Table, now_ms: int) -> pl.DataFrame:
        """Return the operator's inputs from decoded rows. now_ms: the processing time."""
        import polars as pl
        import pyarrow as pa

        if self.rows is None:
            passed = self._pass_on(decoded)
            return passed.with_columns(_kinds_of(decoded)) if self.has_changes else passed
        found = _run(self.rows, decoded, now_ms)
        names = [name for name in self.types.names if name not in self.passed]
        fields = [self.types.field(name) for name in names]
        computed = pl.DataFrame(pl.from_arrow(found.select(names).cast(pa.schema(fields))))
        if self.passed:
            passed = take_rows(self._pass_on(decoded), found.column(_ROW).to_numpy())
            computed = passed.hstack(computed.get_columns()).select_seq(self.types.names)
        return computed.with_columns(_kinds_of(found)) if self.has_changes else computed

    def make_empty(self) -> pl.DataFrame:
        """Return no rows."""
        import polars as pl

        rows = pl.DataFrame(pl.from_arrow(self.types.empty_table()))
        return rows.with_columns(pl.Series(KIND, [], pl.Int8)) if self.has_changes else rows

    def _pass_on(self, decoded: pa.Table) -> pl.DataFrame:
        """Return the inputs that are decoded columns, of all rows."""
        import polars as pl
        import pyarrow as pa

        columns = {}
        for name, (source, as_ms) in self.passed.items():
            values, of = decoded.column(source), self.types.field(name).type
            values = to_milliseconds(values) if as_ms else values
            columns[name] = values if pa.types.is_string_view(values.type) else values.cast(of)
        return pl.DataFrame(pl.from_arrow(pa.table(columns)))


def _add_kinds(rows: pa.Table) -> pa.Table:
    """Add the row kind to rows of a table that only adds rows."""
    import pyarrow as pa

    return rows.append_column(KIND, pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), rows.num_rows))


def _kinds_of(rows: pa.Table) -> pl.Series:
    import polars as pl

    return pl.Series(KIND, pl.from_arrow(rows.column(KIND)), dtype=pl.Int8)


@dataclass(frozen=True, slots=True)
class WorkerScan:
    """The input of an operator's exchange in a task that decodes a table itself.

    split: the only split of the table, or the one of rows whose reader names none. by_file: whether
    rows of different files are in different chunks.
    """

    query: ScanQuery
    reader: WorkerReader
    split: str
    by_file: bool = False

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the rows in chunks of bounded size; the last one has the watermarks of all."""
        waiting: list[Piece] = []
        times = TaskTimes(self.query)
        rows = size = handles = read = 0
        now, controls = NO_WATERMARK, list[str]()
        for batch in batches:
            now = max(now, read_time(batch))
            lines, found = split_commands(batch)
            controls += lines
            handles += batch.num_rows - len(lines)
            read += batch.num_rows
            for piece in self.reader.read(drop_front(found, _HEADER_BYTES)) if len(found) else ():
                if self.query.has_changes and KIND not in piece.rows.column_names:
                    piece = replace(piece, rows=_add_kinds(piece.rows))
                if self.by_file and waiting and piece.file != waiting[-1].file:
                    yield self._compute(waiting, times, now, handles)
                    waiting, rows, size, handles = [], 0, 0, 0
                waiting.append(piece)
                rows += piece.rows.num_rows
                size += piece.rows.nbytes
                if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                    yield self._compute(waiting, times, now, handles)
                    waiting, rows, size, handles = [], 0, 0, 0
        if read:
            chunk = self._compute(waiting, times, now, handles)
            yield replace(chunk, meta=Meta(now, times.find_watermarks(), FLUSH in controls), controls=controls)

    def _compute(self, pieces: Sequence[Piece], times: TaskTimes, now: int, handles: int) -> Chunk:
        """Return rows, without what they say about time, which is added to that of the task."""
        import pyarrow as pa

        timeless, location = 0, None
        for split, found in _group_by_split(pieces, self.split):
            missing, place = times.add(split, found)
            timeless, location = timeless + missing, location or place
        if pieces:
            rows = self.query.compute(pa.concat_tables([piece.rows for piece in pieces]), now)
        else:
            rows = self.query.make_empty()
        count = sum(piece.rows.num_rows for piece in pieces)
        skipped, examples = _find_skipped(pieces)
        if timeless:
            skipped[NO_TIME], examples[NO_TIME] = timeless, (location or "", "")
        report = TaskReads(self.query.table, handles, count, skipped, examples)
        frame = add_hashes(rows, self.query.keys, self.query.hashes)
        file = pieces[0].file if self.by_file and pieces else None
        return Chunk(frame, None, [report.encode()] if pieces or handles else [], [], file)


@dataclass(slots=True)
class TaskTimes:
    """What the rows of a task say about time.

    DuckDB takes longer to plan a query than to compare many times, so it is asked once for rows
    whose order is that of one column.
    """

    query: ScanQuery
    _watermarks: dict[str, int] = field(default_factory=dict)
    _latest: dict[str, list[pa.Table]] = field(default_factory=dict)

    def add(self, split: str, pieces: Sequence[Piece]) -> tuple[int, str | None]:
        """Add rows of a split; return how many have no time, and the location of the first of them,
        None if it is not known.

        Raises the report of `NullRowtime` unless such rows are skipped.
        """
        import pyarrow as pa

        if self.query.time is None:
            return 0, None
        rows = pa.concat_tables([piece.rows for piece in pieces])
        latest = self._find_latest(rows)
        if latest is not None:
            self._latest.setdefault(split, []).append(latest)
            return 0, None
        missing = self._advance(split, rows)
        location = self._locate_timeless(pieces) if missing else None
        if missing and not self.query.drops_timeless:
            raise NullRowtime(self.query.table, self.query.column, location).reported()
        return missing, location

    def find_watermarks(self) -> dict[str, int]:
        """Return the greatest watermark of each split."""
        import pyarrow as pa

        for split, rows in self._latest.items():
            self._advance(split, pa.concat_tables(rows))
        self._latest.clear()
        return self._watermarks

    def _advance(self, split: str, rows: pa.Table) -> int:
        """Advance the watermark of a split, and return the number of rows without a time."""
        assert self.query.time is not None
        found = _run(self.query.time, rows)
        greatest = found.column("greatest")[0].as_py()
        if greatest is not None:
            self._watermarks[split] = max(greatest, self._watermarks.get(split, NO_WATERMARK))
        return int(found.column("missing")[0].as_py())

    def _find_latest(self, rows: pa.Table) -> pa.Table | None:
        """Return the only row that the greatest watermark depends on, None if there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        latest = self.query.latest
        if latest is None or not rows.num_rows or rows.column(latest).null_count:
            return None
        greatest = pa.repeat(pc.max(rows.column(latest)), 1)
        return rows.slice(0, 1).set_column(rows.schema.get_field_index(latest), latest, greatest)

    def _locate_timeless(self, pieces: Sequence[Piece]) -> str | None:
        """Return the location of the first row without a time, None if it is not known."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for piece in pieces:
            at = pc.index(_run(self.query.timeless, piece.rows).column(0), pa.scalar(True)).as_py()
            if at >= 0:
                return piece.locate(at)
        return None


@dataclass(frozen=True, slots=True)
class UnionScan:
    """The input of an exchange that is a UNION ALL of tables, by their positions in it."""

    scans: tuple[WorkerScan, ...]

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the rows in chunks of bounded size. An Arrow batch has rows of one branch."""
        for at, group in groupby(batches, _find_branch):
            yield from self.scans[at].read(group)


def _find_branch(batch: pa.RecordBatch) -> int:
    """Return the branch of a batch; lines of control files belong to none, and go to the first."""
    _, found = split_commands(batch)
    return int.from_bytes(found[0].as_py()[len(TABLE) : _HEADER_BYTES], "big") if len(found) else 0


def _find_skipped(pieces: Sequence[Piece]) -> tuple[dict[str, int], dict[str, tuple[str, str]]]:
    """Return the number of records that were not readable in full, and the first of them."""
    flawed = [piece for piece in pieces if piece.skipped]
    if not flawed:
        return {}, {}
    location, record = flawed[0].example
    example = location, record[:EXAMPLE_CHARACTERS]
    return {BAD_RECORD: sum(piece.skipped for piece in flawed)}, {BAD_RECORD: example}


def _group_by_split(pieces: Sequence[Piece], default: str) -> Iterator[tuple[str, list[Piece]]]:
    names = dict.fromkeys(piece.split or default for piece in pieces)
    yield from ((name, [piece for piece in pieces if (piece.split or default) == name]) for name in names)


def _run(sql: str, rows: pa.Table, now_ms: int = 0) -> pa.Table:
    connection = connect()
    connection.register(_LEAF, rows)
    if _NOW in sql:
        connection.execute(f"SET VARIABLE {_NOW} = {now_ms * 1000}")
    return connection.sql(sql).to_arrow_table()


# --- on the driver --------------------------------------------------------------------------------


def mark_handles(handles: DataFrame, branch: int) -> DataFrame:
    """Return the handles of a table as blobs. branch: its position in a UNION ALL."""
    header = TABLE + branch.to_bytes(_BRANCH_BYTES, "big")
    return handles.selectExpr(f"concat(X'{header.hex()}', {HANDLE}) AS payload")


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A part of a plan that workers can run: from a scan up to the input of an operator.

    columns: the positions of the table's columns that are needed, at least one.
    """

    scan: Scan
    columns: tuple[int, ...]
    node: Plan


def plan_worker_scans(node: StatefulNode) -> tuple[ScanPlan, ...] | str:
    """Return the parts of the plan that workers can run below an operator, or why they cannot.

    There is one part for each table of a UNION ALL.
    """
    operator = operator_of(node, node.operator_id, clock_of(node, (), None), updating=is_updating(node.input))
    needed = frozenset[int]().union(*(inputs_of(each.expression) for each in operator.inputs))
    reason = reason_not_prepared(operator)
    if reason is not None:
        return reason
    found: list[ScanPlan] = []
    for branch in _split_unions(node.input):
        plan = _plan_scan(branch, needed)
        if isinstance(plan, str):
            return plan
        found.append(plan)
    return tuple(found)


def _split_unions(node: Plan) -> Iterator[Plan]:
    """Yield a plan without UNION ALL for each of its branches."""
    match node:
        case Union():
            for each in node.inputs:
                yield from _split_unions(each)
        case Project() | Filter() | WatermarkAssigner() | WindowTableFunction() if not is_stateful(node):
            yield from (replace(node, input=each) for each in _split_unions(node.input))
        case _:
            yield node


def _plan_scan(node: Plan, needed: frozenset[int]) -> ScanPlan | str:
    below = node
    while not isinstance(below, Scan):
        found = _columns_below(below, needed)
        if isinstance(found, str):
            return found
        below, needed = found
    return ScanPlan(below, tuple(sorted(needed or {0})), node)


def _columns_below(node: Plan, needed: frozenset[int]) -> tuple[Plan, frozenset[int]] | str:
    """Return the input of a node and the columns of it that are needed, or why workers cannot run
    the node.
    """
    expressions: Sequence[Expr]
    match node:
        case Project():
            expressions = [node.expressions[at] for at in sorted(needed)]
            passed = frozenset[int]()
        case Filter():
            expressions, passed = [node.condition], needed
        case WatermarkAssigner():
            expressions, passed = [node.watermark], needed | {node.column}
        case WindowTableFunction() if not is_stateful(node):
            if depends_on_zone(node.input.schema[node.time_column].type, node.zone):
                return f"windows in the zone {node.zone}"
            expressions = []
            passed = frozenset(at for at in needed if at < len(node.input.schema)) | {node.time_column}
        case _:
            return f"{type(node).__name__} is not computed in workers"
    reason = next(filter(None, map(_reason_not_computed, expressions)), None)
    return reason or (node.input, passed.union(*map(inputs_of, expressions)))


def _reason_not_computed(expression: Expr) -> str | None:
    return None if is_proctime(expression) else reason_not_in_worker(expression)


def make_scan_query(plan: ScanPlan, operator: Operator, zone: str, *, drops_timeless: bool) -> ScanQuery:
    """Return the SQL of a part of a plan that `plan_worker_scans` has returned."""
    duck = Duck(zone, 0, now_sql=f"getvariable('{_NOW}')")
    return _QueryWriter(duck, plan, drops_timeless, has_changes=operator.updating).finish(operator)


class _QueryWriter:
    """Writes the SQL of a part of a plan, from the scan upwards."""

    def __init__(self, duck: Duck, plan: ScanPlan, drops_timeless: bool, *, has_changes: bool) -> None:
        self._duck, self._plan, self._drops = duck, plan, drops_timeless
        self._kind = (KIND,) if has_changes else ()
        self._time: str | None = None
        self._latest: str | None = None
        self._timeless = self._column = ""

    def write(self, node: Plan, hidden: tuple[str, ...]) -> str:
        """Return a node's rows as SQL. hidden: columns behind those of the node."""
        duck = self._duck
        match node:
            case Scan():
                return self._write_scan(node, hidden)
            case WatermarkAssigner():
                return self._write_watermark(node, hidden)
            case Project():
                return duck.project(self.write(node.input, hidden), node.expressions, len(node.input.schema), hidden)
            case Filter():
                return duck.filter(self.write(node.input, hidden), node.condition, len(node.schema))
            case WindowTableFunction():
                return duck.assign_windows(self.write(node.input, hidden), node, hidden)
        raise AssertionError(node)

    def _write_scan(self, node: Scan, hidden: tuple[str, ...]) -> str:
        """Return the decoded columns; those that nobody needs are NULL."""
        columns = []
        for at, of in enumerate(node.schema):
            name = physical_name(at)
            source = name if at in self._plan.columns else "NULL"
            plain = at in self._plan.columns and not isinstance(of.type, TimestampType)
            columns.append(name if plain else f"CAST({source} AS {of.type.duckdb}) AS {name}")
        columns += ["row_number() OVER () - 1 AS " + _ROW if name == _ROW else name for name in hidden]
        return f"SELECT {', '.join(columns)} FROM {_LEAF}"

    def _write_watermark(self, node: WatermarkAssigner, hidden: tuple[str, ...]) -> str:
        timed = self.write(node.input, self._kind)
        columns = [physical_name(at) for at in range(len(node.input.schema))]
        missing = f"{physical_name(node.column)} IS NULL"
        if changelog_of(node.input) is ChangelogMode.UPSERT:  # a deleted row has only its key
            missing = f"({missing} AND {KIND} <> {RowKind.DELETE.value})"
        moved = self._duck.milliseconds(self._duck.render_sql(node.watermark, columns), node.watermark.type)
        counted = f"count(*) FILTER (WHERE {missing}) AS missing"
        self._time = f"SELECT CAST(max({moved}) AS BIGINT) AS greatest, {counted} FROM ({timed})"
        shift = split_shift(node.watermark)
        if isinstance(node.input, Scan) and shift is not None and shift[0].position == node.column:
            self._latest = physical_name(node.column)
        self._timeless, self._column = f"SELECT {missing} FROM ({timed})", node.schema[node.column].name
        hidden = (*hidden, *(name for name in self._kind if name not in hidden))
        below = self.write(node.input, hidden)
        return f"SELECT * FROM ({below}) WHERE NOT {missing}" if self._drops else below

    def finish(self, operator: Operator) -> ScanQuery:
        """Return the query of an operator's inputs."""
        import pyarrow as pa

        passed = self._find_passed(operator)
        hidden = (*((_ROW,) if passed else ()), *self._kind)
        below = self.write(self._plan.node, hidden)
        columns = [physical_name(at) for at in range(len(self._plan.node.schema))]
        texts, fields = [], []
        for each in operator.inputs:
            fields.append(pa.field(each.name, pa.int64() if each.as_ms else each.expression.type.arrow))
            if each.name not in passed:
                text = self._duck.render_sql(each.expression, columns)
                if each.as_ms:
                    text = self._duck.milliseconds(text, each.expression.type, each.zone)
                texts.append(f"{text} AS {each.name}")
        if not fields:
            texts, fields = ["CAST(0 AS BIGINT) AS __none"], [pa.field("__none", pa.int64())]
        needed = texts or not self._keeps_rows()
        return ScanQuery(
            table=self._plan.scan.table.name,
            rows=f"SELECT {', '.join([*texts, *hidden])} FROM ({below})" if needed else None,
            passed=passed,
            types=pa.schema(fields),
            keys=tuple(operator.hash_columns),
            hashes=tuple(each.name for each in operator.inputs if each.as_hash),
            has_changes=operator.updating,
            time=self._time,
            latest=self._latest,
            timeless=self._timeless,
            drops_timeless=self._drops,
            column=self._column,
        )

    def _find_passed(self, operator: Operator) -> dict[str, tuple[str, bool]]:
        """Return the decoded column of each input that is one, and whether to convert it to ms."""
        found = {each.name: (each.expression, each.as_ms) for each in operator.inputs}
        node = self._plan.node
        while not isinstance(node, Scan):
            known = {name: (each.position, ms) for name, (each, ms) in found.items() if isinstance(each, InputRef)}
            (below,) = children(node)
            if isinstance(node, Project):
                found = {name: (node.expressions[at], ms) for name, (at, ms) in known.items()}
            else:
                found = {
                    name: each for name, each in found.items() if name in known and known[name][0] < len(below.schema)
                }
            node = below
        return {
            name: (physical_name(each.position), ms) for name, (each, ms) in found.items() if isinstance(each, InputRef)
        }

    def _keeps_rows(self) -> bool:
        """Return whether all decoded rows, and no others, are the operator's input."""
        node = self._plan.node
        while isinstance(node, WatermarkAssigner | Project):
            if isinstance(node, WatermarkAssigner) and self._drops:
                return False
            node = node.input
        return isinstance(node, Scan)
