"""The base classes of user-defined functions.

Source of names and contracts: PyFlink's `pyflink.table.udf`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from everfold.types import DataType


class FunctionContext:
    """The context of a function. It is empty for now."""


class UserDefinedFunction:
    """A function with a setup before its first call and a teardown after its last."""

    def open(self, function_context: FunctionContext) -> None:
        """Prepare for calls.

        Called before the first call, in each process that runs the function.
        """

    def close(self) -> None:
        """Release resources. Called after the last call."""

    def is_deterministic(self) -> bool:
        """Return whether the same arguments always give the same result."""
        return True


class ScalarFunction(UserDefinedFunction, ABC):
    """A function that computes one value from the arguments of a row."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """Return the value for the arguments of a row, with None for NULL.

        A vectorized function returns a column for whole columns.
        """


class AggregateFunction(UserDefinedFunction, ABC):
    """A function over a group of rows.

    Rows are added to an accumulator one by one, and the value is computed from the accumulator.

    Accumulators are changed in place: `accumulate`, `retract` and `merge` return nothing. Between
    batches they are stored as values of their declared type, so only what that type holds is kept.
    A ROW is restored as `Row`, an ARRAY as `ListView` (a list), a MAP as `MapView` (a dict). A
    vectorized function gets whole columns (the rows of a group that arrive together) where other
    functions get one row.
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return the accumulator of an empty group."""

    @abstractmethod
    def accumulate(self, accumulator: Any, *args: Any) -> None:
        """Add a row to the accumulator."""

    @abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """Return the value of a group."""

    def retract(self, accumulator: Any, *args: Any) -> None:
        """Remove a row that was added before. Required if the input retracts rows."""
        raise NotImplementedError

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        """Add the contents of other accumulators, whose rows came later.

        If it is defined, rows are accumulated before they are shuffled to their group.
        """
        raise NotImplementedError

    def get_result_type(self) -> DataType | str:
        """Return the type of the value, unless `udaf` specifies it."""
        raise NotImplementedError

    def get_accumulator_type(self) -> DataType | str:
        """Return the type of the accumulator, unless `udaf` specifies it."""
        raise NotImplementedError
