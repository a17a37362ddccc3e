"""A registered Python function as plans carry it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from everfold.types import DataType
from everfold.udf.interface import AggregateFunction, UserDefinedFunction

FuncType: TypeAlias = Literal["general", "arrow", "polars", "pandas"]
"""What a function is called with: Python values, or whole columns of one of these kinds."""
FUNC_TYPES: tuple[FuncType, ...] = get_args(FuncType)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A function of the user's. Two are equal when they go by the same name in SQL and come from the same place in Python.

    name: as SQL calls it. identifier: module and attribute. accumulator: the type of an AggregateFunction's accumulator.
    """

    name: str
    identifier: str
    function: UserDefinedFunction = field(compare=False, repr=False)
    func_type: FuncType = "general"
    deterministic: bool = True
    accumulator: DataType | None = None

    @property
    def vectorised(self) -> bool:
        """Whether it is called with whole columns."""
        return self.func_type != "general"

    @property
    def retracts(self) -> bool:
        """Whether an AggregateFunction says how a row is taken back."""
        return self._defines("retract")

    @property
    def merges(self) -> bool:
        """Whether an AggregateFunction says how accumulators become one."""
        return self._defines("merge")

    def _defines(self, method: str) -> bool:
        of = type(self.function)
        return isinstance(self.function, AggregateFunction) and getattr(of, method) is not getattr(
            AggregateFunction, method
        )
