"""Every function and operator has Flink's type and value on Spark.

One SELECT per family of expressions. With the tests on DuckDB, both engines agree with Flink, and
with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from jvm import SHORT_LIVED_DRIVER
from unit.sql.functions.flink_answers import answers, expected_outcome, is_outcome, outcomes_of, row
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
    from everfold.spark.regex_functions import add_regex_functions
    from everfold.spark.session import create_session, start_spark

    log_file = tmp_path_factory.mktemp("functions") / "spark.log"
    session: SparkSession = create_session(
        start_spark(master="local[2]", conf=SHORT_LIVED_DRIVER, log_file=log_file), 1
    )
    session.createDataFrame(row()).createOrReplaceTempView("functions_row")

    def evaluate_on_spark(texts: Sequence[str]) -> Sequence[Any]:
        add_regex_functions(session, " ".join(texts))
        columns = ", ".join(f"{text} AS x{at}" for at, text in enumerate(texts))
        (found,) = session.sql(f"SELECT {columns} FROM functions_row").toArrow().to_pylist()
        return list(found.values())

    return evaluate_on_spark


@pytest.mark.parametrize("family", sorted({answer.family for answer in answers()}))
def test_a_family_has_flinks_answers(evaluate: Callable[[Sequence[str]], Sequence[Any]], family: str) -> None:
    outcomes = outcomes_of(family, "spark", evaluate)
    wrong = [
        f"{answer.expression}: {outcomes[answer.expression]}, not {expected_outcome(answer, 'spark')}"
        for answer in answers()
        if answer.family == family and not is_outcome(expected_outcome(answer, "spark"), outcomes[answer.expression])
    ]
    assert not wrong, "\n".join(wrong)


def test_constants_are_evaluated_unchanged(evaluate: Callable[[Sequence[str]], Sequence[Any]]) -> None:
    found = evaluate([to_spark(Literal(value=constant, type=type_), []) for constant, type_ in CONSTANTS])
    assert list(found) == [constant for constant, _ in CONSTANTS]


def test_nested_calls_are_evaluated(evaluate: Callable[[Sequence[str]], Sequence[Any]]) -> None:
    money = DecimalType(precision=10, scale=2)
    expr: Expr = Literal(value=Decimal(2), type=money)
    for _ in range(8):
        expr = cast(build("/", (cast(cast(expr, STRING), money), Literal(value=Decimal(2), type=money))), money)
    (found,) = evaluate([to_spark(expr, [])])
    assert found == Decimal("0.01")
