"""The tail of an operator: where its output rows go.

Rows for a sink are delivered in the stateful step (`delivery`). Others leave it packed in Arrow
blobs. Filters and projections above the operator (`output_rows`) are evaluated where the blobs are
unpacked: in the exchange of the next operator, or in a worker that returns typed rows, for nodes
that need them in Catalyst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everfold.operators.protocol import InputColumn, Meta, Operator, to_milliseconds
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.expressions import Expr
from everfold.spark.delivery import Delivery
from everfold.spark.output_rows import OutputRows, decode_rows, read_payloads
from everfold.spark.task_input import CHUNK_ROWS, FLUSH, FORWARDED, META, ROWS, Chunk, read_time, split_commands
from everfold.spark.worker_inputs import add_hashes, reason_not_prepared
from everfold.types import physical_name

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Unpack:
    """The worker function that returns typed rows for Catalyst.

    Meta and statistics rows are passed on in `__meta`, the last column.
    """

    rows: OutputRows

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the hidden columns before `__meta`."""
        return (ORDER, KIND) if self.rows.has_row_kinds else (ORDER,)

    @property
    def types(self) -> str:
        """The columns in Spark DDL."""
        types = [f"{physical_name(at)} {each.type.spark}" for at, each in enumerate(self.rows.expressions)]
        types += [f"{name} {'TINYINT' if name == KIND else 'BIGINT'}" for name in self.hidden]
        return ", ".join([*types, f"{FORWARDED} BINARY"])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack the payloads in the first column."""
        import pyarrow as pa

        schema = pa.schema([*self.rows.fields(self.hidden), pa.field(FORWARDED, pa.binary())])
        for batch in batches:
            for kind, payload in read_payloads(batch.column(0)):
                rows = (
                    self.rows.read(decode_rows(payload), self.hidden)
                    if kind == ROWS
                    else self.rows.null_row(self.hidden)
                )
                meta = (
                    pa.nulls(rows.num_rows, pa.binary())
                    if kind == ROWS
                    else pa.array([payload.to_pybytes()], pa.binary())
                )
                columns = [*rows.columns, meta]
                yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


@dataclass(frozen=True, slots=True)
class OperatorRows:
    """The input of an operator's exchange in a task: the packed rows of the operator below.

    rows: their columns are the inputs of the operator. inputs, keys: of the operator. hidden: the
    hidden columns that it needs.
    """

    rows: OutputRows
    inputs: tuple[InputColumn, ...]
    keys: tuple[str, ...]
    hidden: tuple[str, ...]

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the rows in chunks of bounded size.

        The first bucket of the operator below says what is known about time, so the tasks of the
        other buckets say nothing.
        """
        waiting: list[pa.Table] = []
        metas: list[Meta] = []
        is_empty = True
        reports: list[bytes] = []
        controls: list[str] = []
        for batch in batches:
            is_empty = False
            lines, payloads = split_commands(batch)
            if lines:
                controls += lines
                metas.append(Meta(read_time(batch), {}, FLUSH in lines))
            for kind, payload in read_payloads(payloads):
                if kind == ROWS:
                    waiting.append(self.rows.read(decode_rows(payload), self.hidden))
                elif kind == META:
                    metas.append(Meta.decode(payload[1:].to_pybytes()))
                else:
                    reports.append(payload.to_pybytes())
            if sum(each.num_rows for each in waiting) >= CHUNK_ROWS:
                yield Chunk(self._prepare(waiting), None, [], [])
                waiting = []
        if not is_empty:
            meta = Meta.merge(metas) if metas else None
            yield Chunk(self._prepare(waiting), meta, reports, controls)

    def _prepare(self, tables: Sequence[pa.Table]) -> pl.DataFrame:
        import polars as pl
        import pyarrow as pa

        rows = pa.concat_tables(tables or [pa.schema(self.rows.fields(self.hidden)).empty_table()])
        columns = {}
        for each, values in zip(self.inputs, rows.columns, strict=False):
            columns[each.name] = to_milliseconds(values) if each.as_ms else values
        columns |= {name: rows.column(name) for name in self.hidden}
        hashed = [each.name for each in self.inputs if each.as_hash]
        return add_hashes(pl.DataFrame(pl.from_arrow(pa.table(columns))), self.keys, hashed)


@dataclass(frozen=True, slots=True)
class Tail:
    """Rows of an operator that are still packed.

    step: returns the frame of the operator's payloads, also with its rows delivered to a sink.
    rows: how to evaluate the rows.
    """

    step: Callable[[Delivery | None], DataFrame]
    rows: OutputRows

    @property
    def stepped(self) -> DataFrame:
        """The frame of the payloads."""
        return self.step(None)

    def project(self, expressions: Sequence[Expr]) -> Tail | None:
        """Return the tail with these columns, None if a worker must not evaluate them."""
        rows = self.rows.project(expressions)
        return None if rows is None else replace(self, rows=rows)

    def filter(self, condition: Expr) -> Tail | None:
        """Return the tail with a condition, None if a worker must not evaluate it."""
        rows = self.rows.filter(condition)
        return None if rows is None else replace(self, rows=rows)

    def to_frame(self) -> DataFrame:
        """Return the typed rows with their hidden columns."""
        unpack = Unpack(self.rows)
        return self.stepped.mapInArrow(unpack, unpack.types)

    def feed(self, operator: Operator) -> OperatorRows | None:
        """Return the rows as input of the next operator, None if Catalyst must prepare them."""
        if not operator.inputs or reason_not_prepared(operator) is not None:
            return None
        rows = self.rows.project([each.expression for each in operator.inputs])
        if rows is None:
            return None
        hidden = (*[ORDER] * operator.ordered, *[KIND] * operator.updating)
        return OperatorRows(rows, tuple(operator.inputs), tuple(operator.hash_columns), hidden)
