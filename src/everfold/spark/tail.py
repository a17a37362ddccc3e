"""The tail of an operator: what happens to its output rows before another engine needs them.

The rows leave the stateful step packed in Arrow blobs. Filters and projections above the operator
are evaluated where the blobs are unpacked, if workers may evaluate them
(`plan.worker_expressions`). A sink or the exchange of the next operator takes the rows there. Only
other nodes need them as typed rows in Catalyst.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from everfold.operators.protocol import InputColumn, Meta, Operator
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.expressions import Expr, InputRef, column_references, conjunction, inputs_of, substitute, walk
from everfold.plan.worker_expressions import reason_not_in_worker
from everfold.spark.exchange import ROWS
from everfold.spark.task_input import CHUNK_ROWS, CONTROL, FLUSH, FORWARDED, META, Chunk, read_time
from everfold.spark.worker_inputs import add_hashes, reason_not_prepared, to_milliseconds
from everfold.spark.worker_scalars import evaluate_expressions
from everfold.types import Schema, physical_name

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

_ALIGNMENT = 64
_MAX_PARTS = 1000
"""Largest number of parts of an expression; nested projections can multiply them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """Unpacks an operator's rows, and evaluates filters and projections over them.

    schema: of the operator. is_timed: whether rows are ordered by the end of their window, and not
    by a column `__order`. has_row_kinds: whether rows have a kind. conditions, expressions: over
    the operator's columns; rows for which a condition is not TRUE are dropped.
    """

    schema: Schema
    is_timed: bool
    has_row_kinds: bool
    conditions: tuple[Expr, ...] = ()
    expressions: tuple[Expr, ...] = ()

    @classmethod
    def of(cls, operator: Operator, *, is_timed: bool, has_row_kinds: bool) -> OutputRows:
        """Return the rows of an operator as they are."""
        columns = column_references(operator.schema)
        return cls(schema=operator.schema, is_timed=is_timed, has_row_kinds=has_row_kinds, expressions=columns)

    def project(self, expressions: Sequence[Expr]) -> OutputRows | None:
        """Return the rows with these columns, None if a worker must not evaluate them."""
        moved = tuple(substitute(each, self.expressions) for each in expressions)
        return replace(self, expressions=moved) if all(map(_is_allowed, moved)) else None

    def filter(self, condition: Expr) -> OutputRows | None:
        """Return the rows for which a condition is TRUE, None if a worker must not evaluate it."""
        moved = substitute(condition, self.expressions)
        return replace(self, conditions=(*self.conditions, moved)) if _is_allowed(moved) else None

    @property
    def is_plain(self) -> bool:
        """Whether all rows are kept, and every column is a column of the operator."""
        return not self.conditions and all(isinstance(each, InputRef) for each in self.expressions)

    def fields(self, hidden: Sequence[str] = ()) -> list[pa.Field]:
        """Return the Arrow fields of the rows."""
        import pyarrow as pa

        data = [pa.field(physical_name(at), each.type.arrow) for at, each in enumerate(self.expressions)]
        return data + [pa.field(name, _hidden_type(name)) for name in hidden]

    def count(self, blob: pa.Buffer) -> int:
        """Return the number of rows in a blob."""
        import pyarrow.compute as pc

        rows = decode_rows(blob)
        if not self.conditions:
            return int(rows.num_rows)
        return pc.sum(self._find_wanted(self._convert(rows, self.conditions, ()))).as_py() or 0

    def read(self, blob: pa.Buffer, hidden: Sequence[str] = ()) -> pa.Table:
        """Return the rows of a blob, with these hidden columns: `__order` and `__kind`."""
        import pyarrow as pa

        rows = self._convert(decode_rows(blob), (*self.conditions, *self.expressions), hidden)
        if self.conditions:
            rows = rows.filter(self._find_wanted(rows))
        columns = self._evaluate(rows, self.expressions)
        return pa.Table.from_arrays(
            [*columns, *(rows.column(name) for name in hidden)],
            schema=pa.schema(self.fields(hidden)),
        )

    def null_row(self, hidden: Sequence[str]) -> pa.Table:
        """Return one row of NULLs, for a payload without rows."""
        import pyarrow as pa

        fields = self.fields(hidden)
        return pa.Table.from_arrays([pa.nulls(1, of.type) for of in fields], schema=pa.schema(fields))

    def _convert(self, rows: pa.Table, expressions: Sequence[Expr], hidden: Sequence[str]) -> pa.Table:
        """Return the columns that expressions read, in their Arrow types, and the hidden ones."""
        import pyarrow as pa

        used = sorted(frozenset[int]().union(*map(inputs_of, expressions)) or {0})
        columns = {physical_name(at): rows.column(physical_name(at)).cast(self.schema[at].type.arrow) for at in used}
        for name in hidden:
            if name == ORDER and self.is_timed:
                columns[name] = to_milliseconds(rows.column(physical_name(len(self.schema) - 2)))
            else:
                columns[name] = rows.column(name).cast(_hidden_type(name))
        return pa.table(columns)

    def _find_wanted(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether it is kept; NULL means no."""
        (wanted,) = self._evaluate(rows, [conjunction(self.conditions)])
        return wanted

    def _evaluate(self, rows: pa.Table, expressions: Sequence[Expr]) -> list[pa.ChunkedArray]:
        return evaluate_expressions(lambda at: rows.column(physical_name(at)), self.schema, expressions)


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
                rows = self.rows.read(payload, self.hidden) if kind == ROWS else self.rows.null_row(self.hidden)
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
        """Yield the rows in chunks of bounded size."""
        waiting: list[pa.Table] = []
        metas: list[Meta] = []
        reports: list[bytes] = []
        controls: list[str] = []
        for batch in batches:
            controls += batch.column(CONTROL).drop_null().to_pylist()
            metas.append(Meta(read_time(batch), {}, FLUSH in controls))
            for kind, payload in read_payloads(batch.column("payload").drop_null()):
                if kind == ROWS:
                    waiting.append(self.rows.read(payload, self.hidden))
                elif kind == META:
                    metas.append(Meta.decode(payload[1:].to_pybytes()))
                else:
                    reports.append(payload.to_pybytes())
            if sum(each.num_rows for each in waiting) >= CHUNK_ROWS:
                yield Chunk(self._prepare(waiting), Meta.merge(metas), [], [])
                waiting = []
        if metas:
            yield Chunk(self._prepare(waiting), Meta.merge(metas), reports, controls)

    def _prepare(self, tables: Sequence[pa.Table]) -> pl.DataFrame:
        import pyarrow as pa

        rows = pa.concat_tables(tables or [pa.schema(self.rows.fields(self.hidden)).empty_table()])
        columns = {}
        for each, values in zip(self.inputs, rows.columns, strict=False):
            columns[each.name] = to_milliseconds(values) if each.as_ms else values
        columns |= {name: rows.column(name) for name in self.hidden}
        hashed = [each.name for each in self.inputs if each.as_hash]
        return add_hashes(pa.table(columns), self.keys, hashed)


@dataclass(frozen=True, slots=True)
class Tail:
    """Rows of an operator that are still packed.

    stepped: the frame of the payloads. rows: how to unpack them.
    """

    stepped: DataFrame
    rows: OutputRows

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


def read_payloads(payloads: pa.Array) -> Iterator[tuple[bytes, pa.Buffer]]:
    """Yield the kind of each payload, and the rest of it for rows, the whole of it for others."""
    for payload in payloads:
        blob = payload.as_buffer()
        kind = bytes(blob[:1])
        yield kind, blob[1:] if kind == ROWS else blob


def _hidden_type(name: str) -> pa.DataType:
    import pyarrow as pa

    return pa.int8() if name == KIND else pa.int64()


def decode_rows(payload: pa.Buffer) -> pa.Table:
    """Return the rows of an Arrow IPC stream at any position in memory."""
    import pyarrow as pa

    if payload.address % _ALIGNMENT:
        # Engines may read columns with instructions that require aligned addresses.
        aligned = pa.allocate_buffer(payload.size)
        memoryview(aligned)[:] = memoryview(payload)
        payload = aligned
    return pa.ipc.open_stream(payload).read_all()


def _is_allowed(expression: Expr) -> bool:
    size = sum(1 for _ in islice(walk(expression), _MAX_PARTS))
    return size < _MAX_PARTS and reason_not_in_worker(expression) is None
