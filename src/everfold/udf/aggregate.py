"""Run aggregate functions over groups.

Rows are added to accumulators, accumulators are merged, and values are computed from them. The rows
of a group are a list of structs: the arguments `a0`, `a1`, …, and, if rows may be retracted,
`sign`: +1 for an insert and -1 for a retraction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from everfold.errors import Span
from everfold.types import DataType
from everfold.udf import columns, failure
from everfold.udf.declared import ColumnsFunction, FunctionWrapper
from everfold.udf.function import PythonFunction
from everfold.udf.interface import AggregateFunction, FunctionContext, ScalarFunction
from everfold.udf.row import Row
from everfold.udf.running import FUNCTION_ERRORS, wrap_errors
from everfold.udf.values import WrongValue, arrow_column, python_values, round_trip

if TYPE_CHECKING:
    import pyarrow as pa

    Lists: TypeAlias = pa.ListArray | pa.LargeListArray

SIGN = "sign"


def argument_name(at: int) -> str:
    """Return the name of the struct field of an argument."""
    return f"a{at}"


class AggregateRun:
    """Calls of an open AggregateFunction.

    args, result: the types of its arguments and its value. span: the location of the call in the
    SQL.
    """

    def __init__(self, of: PythonFunction, args: Sequence[DataType], result: DataType, span: Span | None) -> None:
        assert isinstance(of.function, AggregateFunction), of
        assert of.accumulator is not None, of
        self._of, self._args, self._result, self._span = of, tuple(args), result, span
        self._function, self._accumulator = of.function, of.accumulator
        self._new_accumulator = AccumulatorFactory(of, span)

    def fold(self, accumulators: Lists, rows: Lists) -> pa.ListArray:
        """Merge the accumulators of each group and add its rows.

        The result has a list with one accumulator per group; it is empty for a group with neither
        accumulators nor rows. Raises FunctionError.
        """
        import pyarrow as pa

        split = _columns_of if self._of.is_vectorized else _rows_of
        groups = zip(self._decode(accumulators), split(rows, self._of, self._args), strict=True)
        made = [self._accumulate(given, list(new)) for given, new in groups]
        ends = [0]
        for each in made:
            ends.append(ends[-1] + len(each))
        flat = [accumulator for each in made for accumulator in each]
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), self._encode(flat))

    def values(self, accumulators: Lists) -> pa.Array:
        """Return the value of each group, which has at most one accumulator.

        Raises FunctionError.
        """
        groups = [each[0] if each else self._new_accumulator() for each in self._decode(accumulators)]
        values: list[Any] = []
        get_value = self._function.get_value
        with wrap_errors(self._of, self._span, lambda: self._call("get_value", groups[len(values)])):
            for accumulator in groups:
                values.append(get_value(accumulator))
        try:
            return arrow_column(values, self._result)
        except WrongValue as wrong:
            call = self._call("get_value", groups[wrong.at])
            raise failure.wrong_result_error(self._of, call, values[wrong.at], wrong.why, self._span) from None

    # --- a group ----------------------------------------------------------------------------------

    def _accumulate(self, given: list[Any], new: list[_Step]) -> list[Any]:
        if not given and not new:
            return []
        accumulator = given[0] if given else self._new_accumulator()
        if len(given) > 1:
            with wrap_errors(self._of, self._span, lambda: self._call("merge", accumulator, given[1:])):
                self._function.merge(accumulator, given[1:])
        accumulate, retract = self._function.accumulate, self._function.retract
        step: _Step = ((), 1)
        try:
            for step in new:
                (accumulate if step[1] > 0 else retract)(accumulator, *step[0])
        except FUNCTION_ERRORS as error:
            raise failure.function_failed_error(
                self._of, self._step_call(accumulator, step), error, self._span
            ) from error
        return [accumulator]

    def _call(self, method: str, *args: Any) -> str:
        return failure.call_text(self._of, args, method)

    def _step_call(self, accumulator: Any, step: _Step) -> str:
        args, sign = step
        method = "accumulate" if sign > 0 else "retract"
        if not self._of.is_vectorized:
            return self._call(method, accumulator, *args)
        return failure.columns_text(self._of, [accumulator, *columns.first_values(args)], len(args[0]), method)

    # --- Arrow ------------------------------------------------------------------------------------

    def _decode(self, accumulators: Lists) -> Iterator[list[Any]]:
        flat = python_values(accumulators.flatten(), self._accumulator, views=True)
        return (flat[start:end] for start, end in _bounds(accumulators))

    def _encode(self, accumulators: list[Any]) -> pa.Array:
        try:
            return arrow_column(accumulators, self._accumulator)
        except WrongValue as wrong:
            raise failure.wrong_accumulator_error(self._of, accumulators[wrong.at], wrong.why, self._span) from None


class AccumulatorFactory:
    """Create accumulators of a function.

    They have the same form as accumulators that are restored from state, whatever
    `create_accumulator` returns.
    """

    def __init__(self, of: PythonFunction, span: Span | None) -> None:
        assert isinstance(of.function, AggregateFunction), of
        assert of.accumulator is not None, of
        self._of, self._span, self._create = of, span, of.function.create_accumulator
        self._in_form = round_trip(of.accumulator, views=True)

    def __call__(self) -> Any:
        """Return a new accumulator. Raises FunctionError."""
        made = None
        try:
            made = self._create()
            return self._in_form(made)
        except WrongValue as wrong:
            raise failure.wrong_accumulator_error(self._of, made, wrong.why, self._span) from None
        except FUNCTION_ERRORS as error:
            call = failure.call_text(self._of, (), "create_accumulator")
            raise failure.function_failed_error(self._of, call, error, self._span) from error


class ColumnsRun:
    """Calls of an open function that computes the value of a group from whole columns.

    args, result, span: as for AggregateRun.
    """

    def __init__(self, of: PythonFunction, args: Sequence[DataType], result: DataType, span: Span | None) -> None:
        assert isinstance(of.function, ColumnsFunction), of
        self._of, self._args, self._result, self._span = of, tuple(args), result, span
        self._callable = of.function.wrapped

    def values(self, rows: Lists) -> pa.Array:
        """Return the value of each group. Raises FunctionError."""
        flat = _arguments(rows.flatten(), self._args)
        groups = [_slice_columns(flat, start, end, self._of) for start, end in _bounds(rows)]
        values: list[Any] = []
        with wrap_errors(self._of, self._span, lambda: self._call(groups[len(values)])):
            for args in groups:
                values.append(columns.unwrap_scalar(self._callable(*args)))
        try:
            return arrow_column(values, self._result)
        except WrongValue as wrong:
            call = self._call(groups[wrong.at])
            raise failure.wrong_result_error(self._of, call, values[wrong.at], wrong.why, self._span) from None

    def _call(self, args: Sequence[Any]) -> str:
        return failure.columns_text(self._of, columns.first_values(args), len(args[0]))


_Step: TypeAlias = tuple[Sequence[Any], int]
"""A call that adds or retracts rows: its arguments and the sign."""


def _rows_of(rows: Lists, of: PythonFunction, types: Sequence[DataType]) -> Iterator[Iterator[_Step]]:
    """Yield the rows of each group one by one."""
    flat = rows.flatten()
    lists = [python_values(column, type_) for column, type_ in zip(_arguments(flat, types), types, strict=True)]
    steps = list(zip(zip(*lists, strict=True), _signs(flat), strict=True))
    return (iter(steps[start:end]) for start, end in _bounds(rows))


def _columns_of(rows: Lists, of: PythonFunction, types: Sequence[DataType]) -> Iterator[Iterator[_Step]]:
    """Yield the rows of each group as columns: consecutive rows with the same sign together."""
    flat = rows.flatten()
    arguments, signs = _arguments(flat, types), _signs(flat)

    def batches(start: int, end: int) -> Iterator[_Step]:
        for sign, positions in groupby(range(start, end), key=signs.__getitem__):
            batch = list(positions)
            yield _slice_columns(arguments, batch[0], batch[-1] + 1, of), sign

    return (batches(start, end) for start, end in _bounds(rows))


def _arguments(flat: pa.StructArray, types: Sequence[DataType]) -> list[pa.Array]:
    return [columns.cast_to_declared(flat.field(argument_name(at)), of) for at, of in enumerate(types)]


def _slice_columns(arguments: Sequence[pa.Array], start: int, end: int, of: PythonFunction) -> list[Any]:
    return [columns.to_function_column(column.slice(start, end - start), of.func_type) for column in arguments]


def _signs(flat: pa.StructArray) -> list[int]:
    if flat.type.get_field_index(SIGN) < 0:
        return [1] * len(flat)
    signs: list[int] = flat.field(SIGN).to_pylist()
    return signs


def _bounds(lists: Lists) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each list's elements in the flattened lists."""
    import pyarrow.compute as pc

    end = 0
    for length in pc.fill_null(pc.list_value_length(lists), 0).to_pylist():
        yield end, end + length
        end += length


class RowListFunction(ScalarFunction, FunctionWrapper):
    """An aggregate function as a scalar function of a list with all rows of a group.

    Batch execution uses it, since its groups are complete.
    """

    def __init__(self, of: PythonFunction, args: Sequence[DataType], span: Span | None) -> None:
        self._of, self._args, self._span = of, tuple(args), span
        self.wrapped = of.function

    def open(self, function_context: FunctionContext) -> None:
        self._of.function.open(function_context)

    def close(self) -> None:
        self._of.function.close()

    def eval(self, rows: Sequence[Row] | None) -> Any:
        """Return the value of a group. NULL is an empty group."""
        function, rows = self._of.function, rows or []
        if isinstance(function, ColumnsFunction):
            given = self._columns(rows)
            with self._wrap_errors("", given):
                return columns.unwrap_scalar(function.wrapped(*given))
        assert isinstance(function, AggregateFunction)
        accumulator = AccumulatorFactory(self._of, self._span)()
        if not self._of.is_vectorized:
            args: tuple[Any, ...] = ()
            with wrap_errors(
                self._of, self._span, lambda: failure.call_text(self._of, (accumulator, *args), "accumulate")
            ):
                for row in rows:
                    args = tuple(row)
                    function.accumulate(accumulator, *args)
        elif rows:
            given = self._columns(rows)
            with self._wrap_errors("accumulate", given):
                function.accumulate(accumulator, *given)
        with wrap_errors(self._of, self._span, lambda: failure.call_text(self._of, (accumulator,), "get_value")):
            return function.get_value(accumulator)

    def _columns(self, rows: Sequence[Row]) -> list[Any]:
        made = [arrow_column([row[at] for row in rows], of.as_nullable()) for at, of in enumerate(self._args)]
        return [columns.to_function_column(column, self._of.func_type) for column in made]

    def _wrap_errors(self, method: str, given: Sequence[Any]) -> AbstractContextManager[None]:
        rows = len(given[0]) if given else 0
        return wrap_errors(
            self._of,
            self._span,
            lambda: failure.columns_text(self._of, columns.first_values(given), rows, method),
        )
