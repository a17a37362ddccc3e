"""Functions of Lenses SQL that return up to n values of a group: the base of MAXK and others.

`MAXK(x, n)`: for n greater than 1 the result is an array; for n = 1, or without n, it is the value
itself. Source: the seed on Lenses streaming aggregations (`max_points: 90`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Signature, SqlArguments
from everfold.types import (
    ArrayType,
    BooleanType,
    DataType,
    FloatingType,
    NumericType,
    StringType,
    TemporalType,
)


def parse_limit(value: object) -> int | None:
    """Return a constant as a number of values, None if it is not a positive whole number."""
    if isinstance(value, Decimal) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class FirstN(Aggregate):
    """At most `n` of the non-null values; NULL, or an empty array, if there is none.

    A zero is 0.0, never -0.0.
    """

    dialect: ClassVar[str] = "lenses"
    arity = (1, 2)
    constant = 1
    default = 1
    distinct = Distinct.REFUSED

    def constant_value(self, value: object) -> object | None:
        return parse_limit(value)

    @staticmethod
    def limit(of: Signature) -> int:
        """Return the maximum number of values."""
        (most,) = of.constants
        assert isinstance(most, int)
        return most

    def result_type(self, of: Signature) -> DataType | None:
        (arg,) = of.args
        if not isinstance(arg, NumericType | StringType | BooleanType | TemporalType):
            return None
        element = arg.as_nullable()
        return element if self.limit(of) == 1 else ArrayType(element=element, nullable=False)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        found = self.choose_values(of, slots[0])
        return found.list.first() if self.limit(of) == 1 else found.fill_null([])

    @abstractmethod
    def choose_values(self, of: Signature, slot: pl.Expr) -> pl.Expr:
        """Return the list of the requested values from the settled slot."""

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        (arg,), (text,) = of.args, over.texts
        values = self.spark_list(of, _without_negative_zero(f"({text})", arg))
        return f"get({values}, 0)" if self.limit(of) == 1 else f"slice({values}, 1, {self.limit(of)})"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        (arg,), (text,) = of.args, over.texts
        values = self.duckdb_list(of, _without_negative_zero(f"({text})", arg))
        if self.limit(of) == 1:
            return f"({values})[1]"
        return f"(coalesce({values}, CAST([] AS {arg.duckdb}[])))[1:{self.limit(of)}]"

    @abstractmethod
    def spark_list(self, of: Signature, text: str) -> str:
        """Return all values of the argument in the function's order, in Spark SQL."""

    @abstractmethod
    def duckdb_list(self, of: Signature, text: str) -> str:
        """Return all values of the argument in the function's order, in DuckDB SQL.

        NULL if there is none.
        """


def without_negative_zero(arg: DataType, values: pl.Expr) -> pl.Expr:
    """Replace -0.0 by 0.0."""
    return pl.when(values == 0).then(values.abs()).otherwise(values) if isinstance(arg, FloatingType) else values


def _without_negative_zero(text: str, arg: DataType) -> str:
    return f"CASE WHEN {text} = 0 THEN abs({text}) ELSE {text} END" if isinstance(arg, FloatingType) else text
