"""`udf`, `udaf`, `DataTypes` and `Row` as in PyFlink."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import polars as pl
import pytest

from everfold.sql.dialects.flink import parse_type
from everfold.types import BIGINT, STRING, DataType
from everfold.udf import AggregateFunction, DataTypes, Row, ScalarFunction, udaf, udf
from everfold.udf.declared import DeclaredFunction


class Twice(ScalarFunction):
    def eval(self, value: int) -> int:
        return value * 2


class Random(ScalarFunction):
    def is_deterministic(self) -> bool:
        return False

    def eval(self) -> int:
        return 4


class Count(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0]

    def accumulate(self, accumulator: list[int], value: object) -> None:
        accumulator[0] += 1

    def get_value(self, accumulator: list[int]) -> int:
        return accumulator[0]

    def get_result_type(self) -> DataType:
        return DataTypes.BIGINT()

    def get_accumulator_type(self) -> DataType:
        return DataTypes.ARRAY(DataTypes.BIGINT())


def test_a_function_is_declared_in_many_ways() -> None:
    @udf(result_type=DataTypes.BIGINT())
    def plus_one(value: int) -> int:
        return value + 1

    class Callable:
        def __call__(self, value: int) -> int:
            return value + 1

    ways = [
        plus_one,
        udf(lambda value: value + 1, result_type="BIGINT"),
        udf(Callable(), [DataTypes.BIGINT()], DataTypes.BIGINT()),
        udf(Callable, "BIGINT", "BIGINT"),
    ]
    assert [each(1) for each in ways] == [2, 2, 2, 2]
    assert [each.name for each in ways] == ["plus_one", "<lambda>", "Callable", "Callable"]
    assert [each.input_types for each in ways] == [None, None, (BIGINT,), ("BIGINT",)]
    assert udf(Twice(), result_type="INT")(3) == udf(Twice, result_type="INT")(3) == 6
    assert udf(Twice(), result_type="INT", name="double").name == "double"


def test_determinism_is_declared_or_asked_of_the_function() -> None:
    assert udf(Twice(), result_type="INT").deterministic
    assert not udf(Random(), result_type="INT").deterministic
    assert not udf(Twice(), result_type="INT", deterministic=False).deterministic


def test_an_aggregate_function_declares_its_own_types() -> None:
    own = udaf(Count())
    assert (own.result_type, own.accumulator_type, own.name) == (BIGINT, DataTypes.ARRAY(BIGINT), "Count")
    assert udaf(Count, result_type="INT").result_type == "INT"

    @udaf(result_type="DOUBLE", func_type="polars")
    def mean(values: pl.Series) -> object:
        return values.mean()

    assert isinstance(mean, DeclaredFunction)
    assert (mean.name, mean.func_type) == ("mean", "polars")
    with pytest.raises(TypeError, match="only a query"):
        own(1)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: udf(7, result_type="INT"), "udf takes a callable"),  # type: ignore[call-overload]
        (lambda: udaf(lambda value: value, result_type="INT"), "udaf takes an AggregateFunction"),
    ],
)
def test_wrong_declarations_are_refused(declare: object, words: str) -> None:
    assert callable(declare)
    with pytest.raises(TypeError, match=words):
        declare()


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (DataTypes.BOOLEAN(), "BOOLEAN"),
        (DataTypes.TINYINT(), "TINYINT"),
        (DataTypes.SMALLINT(), "SMALLINT"),
        (DataTypes.INT(nullable=False), "INT NOT NULL"),
        (DataTypes.FLOAT(), "FLOAT"),
        (DataTypes.DOUBLE(), "DOUBLE"),
        (DataTypes.DECIMAL(10, 2), "DECIMAL(10, 2)"),
        (DataTypes.CHAR(3), "CHAR(3)"),
        (DataTypes.VARCHAR(3), "VARCHAR(3)"),
        (DataTypes.STRING(), "STRING"),
        (DataTypes.BINARY(2), "BINARY(2)"),
        (DataTypes.VARBINARY(2), "VARBINARY(2)"),
        (DataTypes.BYTES(), "BYTES"),
        (DataTypes.DATE(), "DATE"),
        (DataTypes.TIME(3), "TIME(3)"),
        (DataTypes.TIMESTAMP(3), "TIMESTAMP(3)"),
        (DataTypes.TIMESTAMP_LTZ(), "TIMESTAMP_LTZ(6)"),
        (DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(3), "TIMESTAMP_LTZ(3)"),
        (DataTypes.ARRAY(DataTypes.INT()), "ARRAY<INT>"),
        (DataTypes.LIST_VIEW(DataTypes.INT()), "ARRAY<INT>"),
        (DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()), "MAP<STRING, INT>"),
        (DataTypes.MAP_VIEW(DataTypes.STRING(), DataTypes.INT()), "MAP<STRING, INT>"),
        (DataTypes.MULTISET(DataTypes.STRING()), "MULTISET<STRING>"),
        (DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", STRING)]), "ROW<a INT, b STRING>"),
        (DataTypes.ROW([DataTypes.INT(), DataTypes.STRING()]), "ROW<f0 INT, f1 STRING>"),
    ],
)
def test_data_types_equal_the_types_of_sql(made: DataType, text: str) -> None:
    assert made == parse_type(text)


def test_a_row_is_mutable_and_comparable() -> None:
    row = Row(total=1, n=2)
    row.total += 5
    row["n"] = 3
    row[1] += 1
    assert list(row) == [row[0], row.n] == [6, 4]
    assert row.as_dict() == {"total": 6, "n": 4}
    assert row == Row(6, 4) != (6, 4)
    assert hash(row) == hash(Row(6, 4))
    assert (repr(row), repr(Row(1, "a"))) == ("Row(total=6, n=4)", "Row(1, 'a')")
    assert len(row) == 2
    assert pickle.loads(pickle.dumps(row)).total == 6


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: Row(1, a=2), TypeError),
        (lambda: Row(1, 2).total, AttributeError),
        (lambda: Row(a=1)["b"], KeyError),
        (lambda: setattr(Row(a=1), "b", 2), AttributeError),
    ],
)
def test_a_row_refuses_unknown_fields(wrong: object, kind: type[Exception]) -> None:
    assert callable(wrong)
    with pytest.raises(kind):
        wrong()


def test_optional_methods_raise_not_implemented() -> None:
    with pytest.raises(NotImplementedError):
        Count().retract([0], 1)
    others: Iterable[list[int]] = []
    with pytest.raises(NotImplementedError):
        Count().merge([0], others)
