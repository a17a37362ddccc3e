"""The protocol between streaming operators and the engine that runs them (Spark's workers, or the
memory runner).

The engine evaluates `Operator.inputs` over the operator's input plan, passes the rows of a task to
`prepare` (stateless: it reduces their number), sends the result to the buckets by its `hash`
column, and calls `step` once per bucket and batch, always with the meta rows of the batch, so that
every bucket computes the same watermark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from everfold.plan.expressions import Expr
from everfold.state.store import Store
from everfold.types import DataType, Schema

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

NO_WATERMARK = -(1 << 62)
"""A watermark before all times."""
END_OF_TIME = 1 << 62
TABLE = "table"
"""The column of prepared rows that tells which table of the state each is for, from 0."""
TABLES = ""
"""The name of the tables that an operator reads itself, among the names of its inputs."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What a batch sends to every bucket in addition to its rows.

    now_ms: processing time of the batch, the same when the batch is run again. watermarks: the
    greatest watermark in this batch, by split of the input (a Kafka partition, a file source; for a
    later operator: the watermark of the operator before, by its name). flush: the tables that are
    read have ended. ended: operators below that have emitted all their rows. files: the column
    `__file` of the files that were read, "" for other rows, each with the arrival number of the
    first row from there on, if the operator follows their order.
    """

    now_ms: int
    watermarks: dict[str, int] = field(default_factory=dict)
    flush: bool = False
    ended: Sequence[str] = ()
    files: Sequence[tuple[str, int]] = ()

    def encode(self) -> bytes:
        """Encode as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, blob: bytes) -> Meta:
        """Decode from JSON."""
        return cls(**json.loads(blob))

    @classmethod
    def merge(cls, metas: Iterable[Meta]) -> Meta:
        """Merge the meta rows that the tasks of a batch sent."""
        watermarks: dict[str, int] = {}
        ended: set[str] = set()
        files: list[tuple[str, int]] = []
        now_ms, flush = NO_WATERMARK, False
        for meta in metas:
            now_ms, flush = max(now_ms, meta.now_ms), flush or meta.flush
            ended.update(meta.ended)
            files += meta.files
            for split, at in meta.watermarks.items():
                watermarks[split] = max(watermarks.get(split, NO_WATERMARK), at)
        return cls(now_ms, watermarks, flush, tuple(sorted(ended)), tuple(files))


@dataclass(frozen=True, slots=True)
class LateRow:
    """An example of a row that an operator has dropped as late.

    time_ms: of the row, or the end of its last window. watermark_ms: before the batch, None without
    one. values: of columns, as strings.
    """

    time_ms: int
    is_window_end: bool
    watermark_ms: int | None
    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Stats:
    """What a bucket of an operator reports after a batch. All but watermarks are summed over the
    buckets.

    late_rows: dropped as late since the job began. state_rows: rows in its tables. watermark_ms:
    NO_WATERMARK before the first one. ignored_rows: retractions that matched no row and were
    ignored, since the job began. late: examples of the late rows of the batch.

    The engine adds what happened in the batch. rows_out, retractions: rows that it emitted, and how
    many of them retract an earlier one. page_rows, page_bytes, column_bytes: of the pages that it
    wrote. splits: the greatest watermarks in the batch; one bucket reports them for all.
    """

    operator: str
    watermark_ms: int = NO_WATERMARK
    late_rows: int = 0
    state_rows: int = 0
    ignored_rows: int = 0
    rows_out: int = 0
    retractions: int = 0
    page_rows: int = 0
    page_bytes: int = 0
    column_bytes: dict[str, int] = field(default_factory=dict)
    splits: dict[str, int] = field(default_factory=dict)
    late: tuple[LateRow, ...] = ()

    def encode(self) -> bytes:
        """Encode as JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, default=asdict).encode()

    @classmethod
    def decode(cls, blob: bytes) -> Stats:
        """Decode from JSON."""
        members = json.loads(blob)
        return cls(**{**members, "late": tuple(LateRow(**each) for each in members["late"])})


@dataclass(frozen=True, slots=True)
class Step:
    """What a bucket returns for a batch.

    rows: final rows or changes, with the physical columns c0, c1, … of the operator's schema, and
    `__kind`. meta: the meta row for the operators after it, the same in every bucket. stats: its
    report.
    """

    rows: pl.DataFrame
    meta: Meta
    stats: Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSpec:
    """The configuration of an operator's clock.

    splits: those that must have delivered before the watermark can advance. inputs: those that must
    have ended before the operator flushes: operators below, TABLES for the tables that it reads
    itself. name: by which the operators above know this one, empty for the name of the operator.
    """

    splits: tuple[str, ...]
    idle_timeout_ms: int | None = None
    processing_time: bool = False
    inputs: tuple[str, ...] = (TABLES,)
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumn:
    """A column that the engine computes for `prepare`.

    expression: over the columns of the operator's input plan. as_ms: the expression is a TIMESTAMP
    or TIMESTAMP_LTZ and is converted to BIGINT milliseconds of the wall clock, for TIMESTAMP_LTZ of
    the wall clock in `zone` (so windows align there). as_hash: the column is the 64-bit hash of the
    expression as BIGINT, the same for equal values in all batches of a job.
    """

    name: str
    expression: Expr
    type: DataType
    as_ms: bool = False
    as_hash: bool = False
    zone: str | None = None

    @classmethod
    def of(cls, name: str, expression: Expr) -> InputColumn:
        """Return the value of an expression unchanged."""
        return cls(name=name, expression=expression, type=expression.type)


def to_milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return timestamps in microseconds as BIGINT milliseconds, rounded down."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = times.cast(pa.int64())
    if not micros.null_count:  # takes a fifth of the time
        return pa.chunked_array([micros.to_numpy() // 1000])
    whole = pc.divide(micros, 1000)
    return pc.subtract(whole, pc.less(micros, pc.multiply(whole, 1000)).cast(pa.int64()))


class Operator(Protocol):
    """The logic of one stateful plan node.

    It must pickle and be cheap to create, since workers create it again for each task.
    """

    @property
    def name(self) -> str:
        """Stable name within the job (`w1`, …), part of the names of the state."""

    @property
    def inputs(self) -> tuple[InputColumn, ...]:
        """The columns that `prepare` needs, by name."""

    @property
    def hash_columns(self) -> tuple[str, ...]:
        """Those of `inputs` whose hash determines the bucket: the keys.

        If empty, all rows go to one bucket.
        """

    @property
    def schema(self) -> Schema:
        """The columns of the rows that `step` returns, except `__kind`, which the operator of an
        updating plan node adds.
        """

    @property
    def updating(self) -> bool:
        """Whether its input may contain changes. Then `prepare` receives their `kind` TINYINT."""

    @property
    def ordered(self) -> bool:
        """Whether it needs the arrival order of rows.

        Then `prepare` receives `seq` BIGINT, ascending; rows of an operator below have its
        `__order` there, and so may share a value.
        """

    @property
    def follows_order(self) -> bool:
        """Whether its result depends on the arrival order of rows, and not only the order of the
        rows that it emits. Then `prepare` receives rows of different files separately.
        """

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Reduce the number of a task's rows.

        rows: `hash` BIGINT and the columns of `inputs`. The result also has a column `hash`. If it
        has a column `table` TINYINT, its rows are sorted by it; `step` may then receive the rows of
        each table apart, and those of tables after the first without columns that are all NULL.
        """

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Merge a batch's prepared rows into the bucket's state, advance the clock, and return the
        final rows.
        """
