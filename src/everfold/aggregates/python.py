"""Python aggregate functions of users as registry entries, created for each call.

An AggregateFunction keeps two lists. `accumulators` holds those of parts of the group, in order;
`rows` holds the arguments of rows that are not yet in an accumulator. If the function can merge
accumulators, rows are accumulated as early as possible: inserts where they are read, changes when
they reach their group. Otherwise rows are kept as long as they may still be combined with earlier
ones: until a window has its value, or until they reach the single accumulator of an unbounded
group. A function over whole columns keeps the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everfold.aggregates import lists
from everfold.aggregates.distinct import OverDistinct
from everfold.aggregates.folding import Eager
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import NotInBatchEngine, Signature, Slot, SqlArguments
from everfold.errors import Span
from everfold.types import BIGINT, ArrayType, DataType, RowField, RowType
from everfold.udf.aggregate import SIGN, AggregateRun, ColumnsRun, argument_name
from everfold.udf.declared import ColumnsFunction
from everfold.udf.function import PythonFunction
from everfold.udf.running import open_function

if TYPE_CHECKING:
    import pyarrow as pa


def create_python_entry(of: PythonFunction, result: DataType, span: Span | None) -> PythonAggregate:
    """Return the entry of a function with values of type `result`; `span` locates the call."""
    whole = isinstance(of.function, ColumnsFunction)
    return ColumnsAggregate(of, result, span) if whole else AccumulatingAggregate(of, result, span)


class PythonAggregate(Eager):
    """The common base of the entries of user functions."""

    is_ordered = True
    skips_nulls = False

    def __init__(self, function: PythonFunction, result: DataType, span: Span | None) -> None:
        self._function, self._result, self._span = function, result, span

    def result_type(self, of: Signature) -> DataType:
        return self._result

    def compute_values(self, of: Signature, rows: pl.Series) -> pl.Series:
        """Compute the values of whole groups, given as lists of rows."""
        raise NotImplementedError

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        raise NotInBatchEngine("Python functions have no SQL")

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        raise NotInBatchEngine("Python functions have no SQL")


class AccumulatingAggregate(PythonAggregate):
    """An AggregateFunction."""

    def __init__(self, function: PythonFunction, result: DataType, span: Span | None) -> None:
        super().__init__(function, result, span)
        self.is_retractable = function.has_retract  # type: ignore[misc]

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        assert self._function.accumulator is not None
        rows = _row_type(of.args, signed=of.retracting)
        return (
            Slot("accumulators", ArrayType(element=self._function.accumulator.as_nullable())),
            Slot("rows", ArrayType(element=rows)),
        )

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        accumulators, _ = self.slots(of)
        return pl.lit(None, dtype=accumulators.type.polars), _rows(columns, sign).implode()

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return [lists.concat_lists(slot) for slot in slots]

    def settle_frame(self, of: Signature, slots: pl.DataFrame, whole: bool) -> Sequence[pl.Series] | None:
        foldable = self._function.has_merge and (whole or not of.retracting)
        return self.compact_frame(of, slots) if foldable else None

    def compact_frame(self, of: Signature, slots: pl.DataFrame) -> Sequence[pl.Series] | None:
        accumulators, rows = slots.get_columns()
        if not rows.list.len().sum() and not (accumulators.list.len() > 1).any():
            return None
        with open_function(self._function, self._span):
            folded = self._run(of).fold(_arrow(accumulators), _arrow(rows))
        return _series(folded), rows.list.head(0)

    def value(self, of: Signature, slots: pl.DataFrame) -> pl.Series:
        accumulators, _ = self.compact_frame(of, slots) or slots.get_columns()
        with open_function(self._function, self._span):
            return _series(self._run(of).values(_arrow(accumulators)))

    def compute_values(self, of: Signature, rows: pl.Series) -> pl.Series:
        run, nothing = self._run(of), pl.Series([None], dtype=self.slots(of)[0].type.polars)
        with open_function(self._function, self._span):
            return _series(run.values(run.fold(_arrow(nothing.new_from_index(0, len(rows))), _arrow(rows))))

    def _run(self, of: Signature) -> AggregateRun:
        return AggregateRun(self._function, of.args, self._result, self._span)


class ColumnsAggregate(PythonAggregate):
    """A function that computes the value from the columns of all rows."""

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return lists.sequence_slots(_row_type(of.args, signed=False), of.retracting)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return lists.collect_sequence(_rows(columns, None), None, sign)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return [lists.concat_lists(slot) for slot in slots]

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return lists.net_sequence(*slots) if of.retracting and whole else None

    def value(self, of: Signature, slots: pl.DataFrame) -> pl.Series:
        return self.compute_values(of, slots.to_series())

    def compute_values(self, of: Signature, rows: pl.Series) -> pl.Series:
        with open_function(self._function, self._span):
            return _series(ColumnsRun(self._function, of.args, self._result, self._span).values(_arrow(rows)))


class OverDistinctRows(OverDistinct, Eager):
    """A user function over distinct combinations of arguments."""

    def __init__(self, entry: PythonAggregate) -> None:
        super().__init__(entry)
        self._python = entry

    def value(self, of: Signature, slots: pl.DataFrame) -> pl.Series:
        name = slots.columns[0]
        values = lists.present_values(pl.col(name)) if of.retracting else pl.col(name)
        element = pl.element()
        fields = [element] if len(of.args) == 1 else [element.struct.field(f"f{at}") for at in range(len(of.args))]
        rows = slots.select_seq(values.list.eval(_rows(fields, None))).to_series()
        return self._python.compute_values(Signature(of.args), rows)


def _row_type(args: Sequence[DataType], *, signed: bool) -> RowType:
    fields = [RowField(name=argument_name(at), type=arg.as_nullable()) for at, arg in enumerate(args)]
    return RowType(fields=(*fields, *([RowField(name=SIGN, type=BIGINT)] if signed else [])))


def _rows(columns: Sequence[pl.Expr], sign: pl.Expr | None) -> pl.Expr:
    """Return the arguments of each row as one struct."""
    arguments = [column.alias(argument_name(at)) for at, column in enumerate(columns)]
    return pl.struct(*arguments, *([] if sign is None else [sign.alias(SIGN)]))


def _arrow(column: pl.Series) -> pa.Array:
    return column.to_arrow(compat_level=pl.CompatLevel.oldest())


def _series(column: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(column))
