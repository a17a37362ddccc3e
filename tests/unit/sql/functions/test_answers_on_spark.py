"""The same expressions on Spark: a SELECT a family, so that both engines are known to agree with Flink, and with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from unit.sql.functions.flink_answers import answers, happened, outcomes_of, row, wanted
from unit.sql.functions.test_registry import CONSTANTS

from everfold.plan.expressions import Expr, Literal
from everfold.sql.functions import build, cast
from everfold.sql.functions.render import to_spark
from everfold.types import STRING, DecimalType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], Sequence[Any]]:
    from everfold.spark.session import create_session, start_spark

    log_file = tmp_path_factory.mktemp("functions") / "spark.log"
    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session: SparkSession = create_session(start_spark(master="local[2]", conf=conf, log_file=log_file), 1)
    session.createDataFrame(row()).createOrReplaceTempView("functions_row")

    def evaluated(texts: Sequence[str]) -> Sequence[Any]:
        columns = ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))
        (found,) = session.sql(f"SELECT {columns} FROM functions_row").toArrow().to_pylist()
        return list(found.values())

    return evaluated


@pytest.mark.parametrize("family", sorted({answer.family for answer in answers()}))
def test_family(evaluate: Callable[[Sequence[str]], Sequence[Any]], family: str) -> None:
    outcomes = outcomes_of(family, "spark", evaluate)
    wrong = [
        f"{answer.expression}: {outcomes[answer.expression]}, not {wanted(answer, 'spark')}"
        for answer in answers()
        if answer.family == family and not happened(wanted(answer, "spark"), outcomes[answer.expression])
    ]
    assert not wrong, "\n".join(wrong)


def test_constants(evaluate: Callable[[Sequence[str]], Sequence[Any]]) -> None:
    found = evaluate([to_spark(Literal(value=constant, type=type_), []) for constant, type_ in CONSTANTS])
    assert list(found) == [constant for constant, _ in CONSTANTS]


def test_nested_calls(evaluate: Callable[[Sequence[str]], Sequence[Any]]) -> None:
    money = DecimalType(precision=10, scale=2)
    expr: Expr = Literal(value=Decimal(2), type=money)
    for _ in range(8):
        expr = cast(build("/", (cast(cast(expr, STRING), money), Literal(value=Decimal(2), type=money))), money)
    (found,) = evaluate([to_spark(expr, [])])
    assert found == Decimal("0.01")
