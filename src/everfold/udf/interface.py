"""What a function of the user's is: the classes to derive from. Source of names and contracts: PyFlink's `pyflink.table.udf`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from everfold.types import DataType


class FunctionContext:
    """Where a function runs. It says nothing yet."""


class UserDefinedFunction:
    """A function that can be set up before its first call, and torn down after its last."""

    def open(self, function_context: FunctionContext) -> None:
        """Called before the first call, in each process that runs the function."""

    def close(self) -> None:
        """Called after the last call."""

    def is_deterministic(self) -> bool:
        """Whether the same arguments always give the same result."""
        return True


class ScalarFunction(UserDefinedFunction, ABC):
    """A function of a row: a value for each row's arguments."""

    @abstractmethod
    def eval(self, *args: Any) -> Any:
        """The value for the arguments of a row, NULL being None; of a vectorised function the column for whole columns."""


class AggregateFunction(UserDefinedFunction, ABC):
    """A function of a group of rows: the rows are taken into an accumulator one by one, and the value is made of that.

    Accumulators are changed in place: `accumulate`, `retract` and `merge` give nothing back. Between batches they are kept as values of their
    declared type, so nothing but what that type holds is remembered. A ROW comes back as `Row`, an ARRAY as `ListView` (a list), a MAP as
    `MapView` (a dict). A vectorised function takes whole columns, the rows of a group that came together, wherever the others take one row.
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """The accumulator of a group without rows."""

    @abstractmethod
    def accumulate(self, accumulator: Any, *args: Any) -> None:
        """Takes a row in."""

    @abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """The value of a group."""

    def retract(self, accumulator: Any, *args: Any) -> None:
        """Takes back a row that was taken in. Needed over input that changes."""
        raise NotImplementedError

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        """Takes in what other accumulators hold, whose rows came later. With it rows are accumulated before they travel to their group."""
        raise NotImplementedError

    def get_result_type(self) -> DataType | str:
        """The type of the value, unless `udaf` names it."""
        raise NotImplementedError

    def get_accumulator_type(self) -> DataType | str:
        """The type of the accumulator, unless `udaf` names it."""
        raise NotImplementedError
