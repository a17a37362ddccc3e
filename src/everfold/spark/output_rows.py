"""The rows that an operator emits, and what is evaluated above it.

Filters and projections above an operator are expressions over its columns. Workers evaluate them
where they have its rows, if they may (`plan.worker_expressions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from everfold.operators.protocol import Operator, to_milliseconds
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.expressions import Expr, column_references, conjunction, inputs_of, substitute, walk
from everfold.plan.worker_expressions import reason_not_in_worker
from everfold.spark.task_input import ROWS
from everfold.spark.worker_scalars import evaluate_expressions
from everfold.types import Schema, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

_ALIGNMENT = 64
_MAX_PARTS = 1000
"""Largest number of parts of an expression; nested projections can multiply them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRows:
    """Evaluates filters and projections over an operator's rows.

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

    def fields(self, hidden: Sequence[str] = ()) -> list[pa.Field]:
        """Return the Arrow fields of the rows."""
        import pyarrow as pa

        data = [pa.field(physical_name(at), each.type.arrow) for at, each in enumerate(self.expressions)]
        return data + [pa.field(name, hidden_type(name)) for name in hidden]

    def count(self, rows: pa.Table) -> int:
        """Return how many rows of the operator are kept."""
        import pyarrow.compute as pc

        if not self.conditions:
            return int(rows.num_rows)
        return pc.sum(self._find_wanted(self._convert(rows, self.conditions, ()))).as_py() or 0

    def read(self, rows: pa.Table, hidden: Sequence[str] = ()) -> pa.Table:
        """Return the rows from those of the operator, with hidden columns: `__order`, `__kind`."""
        import pyarrow as pa

        rows = self._convert(rows, (*self.conditions, *self.expressions), hidden)
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

        used = set[int]().union(*map(inputs_of, expressions))
        if not all(map(inputs_of, expressions)):
            used.add(0)  # a constant has a value for each row, which takes a column
        columns = {
            physical_name(at): rows.column(physical_name(at)).cast(self.schema[at].type.arrow) for at in sorted(used)
        }
        for name in hidden:
            if name == ORDER and self.is_timed:
                columns[name] = to_milliseconds(rows.column(physical_name(len(self.schema) - 2)))
            else:
                columns[name] = rows.column(name).cast(hidden_type(name))
        return pa.table(columns)

    def _find_wanted(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether it is kept; NULL means no."""
        (wanted,) = self._evaluate(rows, [conjunction(self.conditions)])
        return wanted

    def _evaluate(self, rows: pa.Table, expressions: Sequence[Expr]) -> list[pa.ChunkedArray]:
        return evaluate_expressions(lambda at: rows.column(physical_name(at)), self.schema, expressions)


def read_payloads(payloads: pa.Array) -> Iterator[tuple[bytes, pa.Buffer]]:
    """Yield the kind of each payload, and the rest of it for rows, the whole of it for others."""
    for payload in payloads:
        blob = payload.as_buffer()
        kind = bytes(blob[:1])
        yield kind, blob[1:] if kind == ROWS else blob


def decode_rows(payload: pa.Buffer) -> pa.Table:
    """Return the rows of an Arrow IPC stream at any position in memory."""
    import pyarrow as pa

    if payload.address % _ALIGNMENT:
        # Engines may read columns with instructions that require aligned addresses.
        aligned = pa.allocate_buffer(payload.size)
        memoryview(aligned)[:] = memoryview(payload)
        payload = aligned
    return pa.ipc.open_stream(payload).read_all()


def hidden_type(name: str) -> pa.DataType:
    import pyarrow as pa

    return pa.int8() if name == KIND else pa.int64()


def _is_allowed(expression: Expr) -> bool:
    size = sum(1 for _ in islice(walk(expression), _MAX_PARTS))
    return size < _MAX_PARTS and reason_not_in_worker(expression) is None
