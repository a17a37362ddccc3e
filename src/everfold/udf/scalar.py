"""Run scalar functions over columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everfold.errors import Span
from everfold.types import DataType
from everfold.udf import columns, failure
from everfold.udf.function import PythonFunction
from everfold.udf.interface import ScalarFunction
from everfold.udf.running import wrap_errors
from everfold.udf.values import WrongValue, arrow_column, python_values

if TYPE_CHECKING:
    import pyarrow as pa


class ScalarRun:
    """Calls of an open scalar function.

    args, result: the types of its arguments and its value. span: the location of the call in the
    SQL.
    """

    def __init__(self, of: PythonFunction, args: Sequence[DataType], result: DataType, span: Span | None) -> None:
        assert isinstance(of.function, ScalarFunction), of
        self._of, self._args, self._result, self._span = of, tuple(args), result, span
        self._function = of.function

    def __call__(self, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the values for the rows of argument columns. Raises FunctionError."""
        return self._by_column(arguments, rows) if self._of.is_vectorized else self._by_row(arguments, rows)

    def _by_row(self, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
        lists = [python_values(column, of) for column, of in zip(arguments, self._args, strict=True)]
        calls: list[tuple[Any, ...]] = list(zip(*lists, strict=True)) if lists else [()] * rows
        evaluate = self._function.eval
        values: list[Any] = []
        with wrap_errors(self._of, self._span, lambda: failure.call_text(self._of, calls[len(values)])):
            for args in calls:
                values.append(evaluate(*args))
        try:
            return arrow_column(values, self._result)
        except WrongValue as wrong:
            call = failure.call_text(self._of, calls[wrong.at])
            raise failure.wrong_result_error(self._of, call, values[wrong.at], wrong.why, self._span) from None

    def _by_column(self, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
        kind = self._of.func_type
        given = [columns.to_function_column(column, kind) for column in arguments]
        with wrap_errors(self._of, self._span, lambda: self._call(given, rows)):
            value = self._function.eval(*given)
        try:
            return columns.from_function_column(value, self._result, rows)
        except WrongValue as wrong:
            raise failure.wrong_result_error(self._of, self._call(given, rows), value, wrong.why, self._span) from None

    def _call(self, given: Sequence[Any], rows: int) -> str:
        return failure.columns_text(self._of, columns.first_values(given), rows)
