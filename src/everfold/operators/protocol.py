"""What every streaming operator is to the engine that runs it (Spark's workers, or the memory runner).

The engine evaluates `Operator.inputs` over the operator's input plan, hands the rows of a task to `prepare` (stateless: it makes
them fewer), sends what comes out to the buckets by its `hash` column, and calls `step` once a bucket and batch, always with the
batch's meta rows, so that every bucket computes the same watermark.
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

NO_WATERMARK = -(1 << 62)
"""A watermark before all time."""
END_OF_TIME = 1 << 62
TABLES = ""
"""The input of an operator that reads tables itself, among the names of the operators below it."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What a batch tells every bucket beside its rows.

    now_ms: processing time of the batch, the same when the batch is run again. watermarks: the greatest watermark seen by split of
    the input in this batch (a Kafka partition, a file source; for a later operator: the watermark of the operator before, by its
    name). flush: the tables that are read have ended. ended: operators below that have given all they had.
    """

    now_ms: int
    watermarks: dict[str, int] = field(default_factory=dict)
    flush: bool = False
    ended: Sequence[str] = ()

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, blob: bytes) -> Meta:
        """From JSON."""
        return cls(**json.loads(blob))

    @classmethod
    def joined(cls, metas: Iterable[Meta]) -> Meta:
        """One meta row out of those that the tasks of a batch sent."""
        watermarks: dict[str, int] = {}
        ended: set[str] = set()
        now_ms, flush = NO_WATERMARK, False
        for meta in metas:
            now_ms, flush = max(now_ms, meta.now_ms), flush or meta.flush
            ended.update(meta.ended)
            for split, at in meta.watermarks.items():
                watermarks[split] = max(watermarks.get(split, NO_WATERMARK), at)
        return cls(now_ms, watermarks, flush, tuple(sorted(ended)))


@dataclass(frozen=True, slots=True)
class Stats:
    """What a bucket of an operator reports after a batch; everything but the watermark is summed over the buckets.

    late_rows: dropped as late since the job began. state_rows: rows in its tables. watermark_ms: NO_WATERMARK before the first.
    ignored_rows: taken back though they were not there, and so ignored, since the job began.
    """

    operator: str
    watermark_ms: int = NO_WATERMARK
    late_rows: int = 0
    state_rows: int = 0
    ignored_rows: int = 0

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, blob: bytes) -> Stats:
        """From JSON."""
        return cls(**json.loads(blob))


@dataclass(frozen=True, slots=True)
class Step:
    """What a bucket gives for a batch: final rows or changes (physical columns c0, c1, … of the operator's schema, and `__kind`), the meta
    row for the operators behind it (the same in every bucket), and its report."""

    rows: pl.DataFrame
    meta: Meta
    stats: Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSpec:
    """What the operator's watermark is made of: the splits it must have heard of before time can move, and the idle timeout; and the inputs
    that must have ended before the operator flushes: operators below, TABLES for what it reads itself."""

    splits: tuple[str, ...]
    idle_timeout_ms: int | None = None
    processing_time: bool = False
    inputs: tuple[str, ...] = (TABLES,)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumn:
    """A column that the engine computes for `prepare`: `expression` is over the columns of the operator's input plan.

    as_ms: the expression is a TIMESTAMP or TIMESTAMP_LTZ and is wanted as BIGINT milliseconds: of the wall clock for TIMESTAMP, and
    for TIMESTAMP_LTZ of the wall clock in `zone` (so windows align there). as_hash: its 64-bit hash is wanted as BIGINT, the same for equal
    values in all batches of a job.
    """

    name: str
    expression: Expr
    type: DataType
    as_ms: bool = False
    as_hash: bool = False
    zone: str | None = None

    @classmethod
    def of(cls, name: str, expression: Expr) -> InputColumn:
        """The value of an expression as it is."""
        return cls(name=name, expression=expression, type=expression.type)


class Operator(Protocol):
    """The logic of one stateful plan node. Must pickle, and is cheap to make: workers make it again for each task."""

    @property
    def name(self) -> str:
        """Stable name within the job (`w1`, …): part of the state's names."""

    @property
    def inputs(self) -> tuple[InputColumn, ...]:
        """The columns that `prepare` wants, by name."""

    @property
    def hash_columns(self) -> tuple[str, ...]:
        """Those of `inputs` whose hash chooses the bucket: the keys. None: everything goes to one bucket."""

    @property
    def schema(self) -> Schema:
        """The columns of the rows that `step` gives, `__kind` apart: an updating plan node's operator adds that."""

    @property
    def updating(self) -> bool:
        """Whether its input's rows may be changes: then `prepare` gets their `kind` TINYINT."""

    @property
    def ordered(self) -> bool:
        """Whether it must know the order in which rows came: then `prepare` gets `seq` BIGINT, ascending; rows
        of an operator below have its `__order` there, and so may share it."""

    def prepare(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Makes a task's rows fewer. `rows` has `hash` BIGINT and the columns of `inputs`; so has the result a column `hash`."""

    def step(self, store: Store, prepared: Sequence[pl.DataFrame], metas: Sequence[Meta]) -> Step:
        """Takes a batch's prepared rows into the bucket's state, moves the clock, gives what is final."""
