"""The Python functions that `python_functions.case.yaml` calls."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from everfold.types import DataType
from everfold.udf import AggregateFunction, DataTypes, ListView, MapView, Row, ScalarFunction, udaf, udf

# --- scalar functions, declared in every possible way ---------------------------------------------


@udf(input_types=["BIGINT", "BIGINT"], result_type="BIGINT")
def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


class Scaled(ScalarFunction):
    """Multiply a number by a factor that is set when the function is opened."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.opened = 0

    def open(self, function_context: object) -> None:
        self.opened = self.factor

    def close(self) -> None:
        self.opened = 0

    def eval(self, value: int | None) -> int | None:
        return None if value is None else value * self.opened


times_ten = udf(Scaled(10), input_types=DataTypes.INT(), result_type=DataTypes.INT())
shout = udf(lambda text: "nothing" if text is None else text.upper() + "!", result_type="STRING")
to_base = udf(functools.partial(int, base=16), input_types=["STRING"], result_type="INT")


@udf(result_type="INT")
def arguments(*args: Any) -> int:
    return len(args)


@udf(result_type="STRING")
def type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__


@udf(result_type="ROW<name STRING, length INT>")
def described(text: str) -> Row:
    return Row(text, len(text))


@udf(result_type=DataTypes.ARRAY(DataTypes.STRING()))
def words(text: str | None) -> list[str] | None:
    return None if text is None else text.split()


@udf(result_type="MAP<STRING, INT>")
def letters(text: str) -> dict[str, int]:
    return {letter: text.count(letter) for letter in sorted(set(text))}


@udf(result_type="STRING")
def flattened(row: Row, items: list[int], counts: dict[str, int]) -> str:
    return f"{row.a}/{row['b']} {items} {sorted(counts.items())}"


@udf(input_types=["DATE", "TIME(3)", "TIMESTAMP(3)"], result_type="TIMESTAMP(3)")
def latest(day: date, at: time, moment: datetime) -> datetime:
    return max(datetime.combine(day, at), moment) + timedelta(milliseconds=1)


@udf(input_types=["DECIMAL(10, 2)"], result_type="DECIMAL(12, 3)")
def taxed(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount * Decimal("1.195")


@udf(result_type="INT", deterministic=False)
def ticket() -> int:
    return next(_TICKETS)


_TICKETS = iter(range(1_000_000))

# --- vectorized functions -------------------------------------------------------------------------


@udf(input_types=["BIGINT", "BIGINT"], result_type="BIGINT", func_type="arrow")
def arrow_plus(a: pa.Array, b: pa.Array) -> pa.Array:
    return pc.add(a, b)


@udf(input_types=["BIGINT", "BIGINT"], result_type="BIGINT", func_type="polars")
def polars_plus(a: pl.Series, b: pl.Series) -> pl.Series:
    return a + b


@udf(input_types=["DOUBLE"], result_type="DOUBLE", func_type="pandas")
def pandas_half(a: Any) -> Any:
    return a / 2


# --- aggregate functions --------------------------------------------------------------------------


class Mean(AggregateFunction):
    """The weighted mean; NULL without rows. It supports retraction, and its accumulators merge."""

    def create_accumulator(self) -> Row:
        return Row(0, 0)

    def accumulate(self, accumulator: Row, value: int | None, weight: int | None) -> None:
        if value is not None and weight is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator: Row, value: int | None, weight: int | None) -> None:
        if value is not None and weight is not None:
            accumulator[0] -= value * weight
            accumulator[1] -= weight

    def merge(self, accumulator: Row, accumulators: Iterable[Row]) -> None:
        for other in accumulators:
            accumulator[0] += other[0]
            accumulator[1] += other[1]

    def get_value(self, accumulator: Row) -> float | None:
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def get_result_type(self) -> str:
        return "DOUBLE"

    def get_accumulator_type(self) -> str:
        return "ROW<total BIGINT, weight BIGINT>"


weighted_mean = udaf(Mean(), input_types=["BIGINT", "BIGINT"])


class Trail(AggregateFunction):
    """The values in their order, as a string.

    It supports retraction, and its accumulators do not merge.
    """

    def create_accumulator(self) -> Row:
        return Row(ListView(), MapView())

    def accumulate(self, accumulator: Row, value: str | None) -> None:
        accumulator.values.add(value)
        accumulator.counts[value or "-"] = accumulator.counts.get(value or "-", 0) + 1

    def retract(self, accumulator: Row, value: str | None) -> None:
        accumulator.values.remove(value)
        accumulator.counts[value or "-"] -= 1

    def get_value(self, accumulator: Row) -> str:
        most = max(accumulator.counts.values(), default=0)
        return f"{most}:" + ">".join(value or "-" for value in accumulator.values)

    def get_result_type(self) -> DataType:
        return DataTypes.STRING()

    def get_accumulator_type(self) -> DataType:
        return DataTypes.ROW(
            [
                DataTypes.FIELD("values", DataTypes.LIST_VIEW(DataTypes.STRING())),
                DataTypes.FIELD("counts", DataTypes.MAP_VIEW(DataTypes.STRING(), DataTypes.INT())),
            ]
        )


class Longest(AggregateFunction):
    """The longest string; of several with that length, the first. It cannot retract."""

    def create_accumulator(self) -> list[str]:
        return []

    def accumulate(self, accumulator: list[str], value: str | None) -> None:
        if value is not None and (not accumulator or len(value) > len(accumulator[0])):
            accumulator[:] = [value]

    def merge(self, accumulator: list[str], accumulators: Iterable[list[str]]) -> None:
        for other in accumulators:
            for value in other:
                self.accumulate(accumulator, value)

    def get_value(self, accumulator: list[str]) -> str | None:
        return accumulator[0] if accumulator else None

    def get_result_type(self) -> str:
        return "STRING"

    def get_accumulator_type(self) -> str:
        return "ARRAY<STRING>"


class ArrowSum(AggregateFunction):
    """A sum that reads whole columns."""

    def create_accumulator(self) -> list[int]:
        return [0]

    def accumulate(self, accumulator: list[int], values: pa.Array) -> None:
        accumulator[0] += pc.sum(values).as_py() or 0

    def retract(self, accumulator: list[int], values: pa.Array) -> None:
        accumulator[0] -= pc.sum(values).as_py() or 0

    def merge(self, accumulator: list[int], accumulators: Iterable[list[int]]) -> None:
        accumulator[0] += sum(each[0] for each in accumulators)

    def get_value(self, accumulator: list[int]) -> int:
        return accumulator[0]


arrow_sum = udaf(
    ArrowSum(), input_types=["BIGINT"], result_type="BIGINT", accumulator_type="ARRAY<BIGINT>", func_type="arrow"
)


@udaf(input_types=["BIGINT"], result_type="DOUBLE", func_type="polars")
def polars_median(values: pl.Series) -> float | None:
    median = values.median()
    assert median is None or isinstance(median, float)
    return median


@udaf(result_type="BIGINT", func_type="pandas")
def pandas_span(values: Any) -> int | None:
    return None if values.isna().all() else int(values.max() - values.min())


# --- invalid functions ----------------------------------------------------------------------------


@udf(result_type="INT")
def inverse(value: int) -> int:
    return _divided(100, value)


def _divided(a: int, b: int) -> int:
    return a // b


@udf(result_type="BIGINT")
def liar(value: int) -> str:
    return f"number {value}"


@udf(result_type="TINYINT")
def too_large(value: int) -> int:
    return value * 1000


@udf(result_type="BIGINT NOT NULL")
def nothing(value: int) -> None:
    return None


@udf(result_type="BIGINT", func_type="arrow")
def too_short(a: pa.Array) -> pa.Array:
    return a.slice(1)


@udf(result_type="STRING", func_type="polars")
def wrong_column(a: pl.Series) -> pl.Series:
    return a


def undeclared(value: int) -> int:
    return value


class Fussy(Longest):
    """An aggregate that raises for an empty value."""

    def accumulate(self, accumulator: list[str], value: str | None) -> None:
        if not value:
            raise ValueError("nothing to take in")
        super().accumulate(accumulator, value)


class Forgetful(Longest):
    """An aggregate whose accumulator holds values of another type than declared."""

    def accumulate(self, accumulator: list[Any], value: str | None) -> None:
        accumulator.append(7)


class WrongValue(Longest):
    """An aggregate that returns a string and declares a number."""

    def get_result_type(self) -> str:
        return "INT"


class Lacking(AggregateFunction):
    """An aggregate without required methods."""

    def create_accumulator(self) -> None:
        return None


NUMBER = 7
