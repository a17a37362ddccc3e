"""Functions of Lenses SQL that give up to so many values of a group: what MAXK and its like have in common.

`MAXK(x, n)`: with n greater than 1 the result is an array, with n of 1, or none, the value itself. Source: the seed on Lenses streaming aggregations
(`max_points: 90`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Over, Signature
from everfold.types import (
    ArrayType,
    BooleanType,
    DataType,
    FloatingType,
    NumericType,
    StringType,
    TemporalType,
)


def whole_number(value: object) -> int | None:
    """A constant that says how many values are wanted; None if it does not."""
    if isinstance(value, Decimal) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class Several(Aggregate):
    """Some of the values that are not NULL, at most `n`; NULL, or an empty array, if there is none. A zero is 0.0, never -0.0."""

    dialect: ClassVar[str] = "lenses"
    arity = (1, 2)
    constant = 1
    default = 1
    distinct = Distinct.REFUSED

    def constant_value(self, value: object) -> object | None:
        return whole_number(value)

    @staticmethod
    def most(of: Signature) -> int:
        """How many values are wanted."""
        (most,) = of.constants
        assert isinstance(most, int)
        return most

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        if not isinstance(arg, NumericType | StringType | BooleanType | TemporalType):
            return None
        element = arg.as_nullable()
        return element if self.most(of) == 1 else ArrayType(element=element, nullable=False)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        found = self.chosen(of, slots[0])
        return found.list.first() if self.most(of) == 1 else found.fill_null([])

    @abstractmethod
    def chosen(self, of: Signature, slot: pl.Expr) -> pl.Expr:
        """The list of the values wanted, out of the settled slot."""

    def spark_sql(self, of: Signature, over: Over) -> str:
        (arg,), (text,) = of.args, over.texts
        values = self.spark_list(of, _unsigned(f"({text})", arg))
        return f"get({values}, 0)" if self.most(of) == 1 else f"slice({values}, 1, {self.most(of)})"

    def duckdb_sql(self, of: Signature, over: Over) -> str:
        (arg,), (text,) = of.args, over.texts
        values = self.duckdb_list(of, _unsigned(f"({text})", arg))
        if self.most(of) == 1:
            return f"({values})[1]"
        return f"(coalesce({values}, CAST([] AS {arg.duckdb}[])))[1:{self.most(of)}]"

    @abstractmethod
    def spark_list(self, of: Signature, text: str) -> str:
        """All values of the argument in the order wanted, in Spark SQL."""

    @abstractmethod
    def duckdb_list(self, of: Signature, text: str) -> str:
        """All values of the argument in the order wanted, in DuckDB SQL; NULL if there is none."""


def unsigned(arg: DataType, values: pl.Expr) -> pl.Expr:
    """Values of a type, without a sign before zero."""
    return pl.when(values == 0).then(values.abs()).otherwise(values) if isinstance(arg, FloatingType) else values


def _unsigned(text: str, arg: DataType) -> str:
    return f"CASE WHEN {text} = 0 THEN abs({text}) ELSE {text} END" if isinstance(arg, FloatingType) else text
