"""The SQL forms of aggregates on Spark: the cases of the kernel tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from unit.aggregates import test_bags, test_distinct, test_sequences, test_variance
from unit.aggregates.calls import call

from everfold.aggregates.decimals import write_spark_sum
from everfold.aggregates.registry import SqlArguments
from everfold.plan.expressions import Literal
from everfold.sql.functions.render import to_spark
from everfold.types import BOOLEAN, DOUBLE, INT, STRING, ArrayType, DataType, DecimalType, MultisetType, RowType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
WIDE = Context(prec=80)

Case = tuple[str, tuple[DataType, ...], tuple[object, ...], list[Any], Any, bool, bool]
"""Function, argument types, constants, rows, expected, DISTINCT, filtered by `f`."""


def cases() -> Iterator[Case]:
    """Return the cases of the unit tests."""
    for of, values, results in test_variance.CASES:
        for name, expected in zip(test_variance.FUNCTIONS, results, strict=True):
            yield name, (of,), (), values, expected, False, False
    for name, of, constants, values, expected in test_sequences.CASES:
        yield name, (of,), constants, values, expected, False, False
    for nulls, expected in (("NULL", '{"a":null,"ab":"x","b":2}'), ("ABSENT", '{"ab":"x","b":2}')):
        yield "JSON_OBJECTAGG", (STRING, STRING), (nulls,), test_sequences.PAIRS, expected, False, False
    for of, values, entries in test_bags.COLLECTED:
        yield "COLLECT", (of,), (), values, sorted(entries, key=repr), False, False
    for of, values, share, expected in test_bags.SHARES:
        yield "PERCENTILE", (of,), (share,), values, expected, False, False
    weighted = [(1.5, 2), (-0.5, 1), (1.5, 2), (7.0, 0), (8.0, -3), (9.0, None), (None, 100), (3.0, 3)]
    yield "PERCENTILE", (DOUBLE, INT), (0.5,), weighted, 1.5, False, False
    for name, of, constants, values, expected in test_distinct.CASES:
        yield name, (of,), constants, values, expected, True, False
    yield "ARRAY_AGG", (INT,), (), [(None, True), (2, False), (1, None), (None, True)], [None, None], False, True
    yield "JSON_ARRAYAGG", (STRING,), ("NULL",), [(None, True), ("1", False)], "[null]", False, True
    yield "APPROX_COUNT_DISTINCT", (INT,), (), [1, 2, None, 2], 2, False, False


def test_batch_aggregates_match_the_kernels(spark: SparkSession) -> None:
    from everfold.spark.session import create_session

    session = create_session(spark, 1)
    session.conf.set("spark.sql.leafNodeDefaultParallelism", "1")
    wrong = []
    for part in _group_cases():
        answer = session.sql(_query(part))
        for at, (found, case) in enumerate(zip(answer.toArrow().to_pylist()[0].values(), part, strict=True)):
            fold = call(case[0], *case[1], constants=case[2])
            result = fold.entry.result_type(fold.of)
            assert result is not None
            assert answer.schema[at].dataType.simpleString() == result.spark.lower().replace(" ", ""), case
            if not _same(found, case[4], isinstance(result, MultisetType)):
                wrong.append(f"{case}: {found}")
    assert not wrong, "\n".join(wrong)


def _group_cases() -> list[list[Case]]:
    """Group the cases over the same rows; each group is one query."""
    parts: dict[str, list[Case]] = {}
    for case in cases():
        if not any(isinstance(of, ArrayType | RowType) for of in case[1]):
            parts.setdefault(repr((case[1], case[3], case[6])), []).append(case)
    return list(parts.values())


def _query(part: Sequence[Case]) -> str:
    _, of, _, values, _, _, filtered = part[0]
    types = (*of, BOOLEAN) if filtered else of
    rows = [value if len(types) > 1 else (value,) for value in values] or [(None,) * len(types)]
    texts = ", ".join(
        f"({', '.join(to_spark(Literal(value=cell, type=type_), []) for cell, type_ in zip(row, types, strict=True))})"
        for row in rows
    )
    columns = "xyz"[: len(of)]
    calls = []
    for name, _, constants, _, _, distinct, _ in part:
        fold = call(name, *of, constants=constants)
        calls.append(fold.entry.spark_sql(fold.of, SqlArguments(tuple(columns), distinct, "f" if filtered else None)))
    names = ", ".join([*columns, *["f"] * filtered])
    selected = ", ".join(f"{sql} AS r{at}" for at, sql in enumerate(calls))
    return f"SELECT {selected} FROM VALUES {texts} AS t({names}){'' if values else ' WHERE FALSE'}"


def _same(found: Any, expected: Any, multiset: bool) -> bool:
    if multiset:
        return bool(sorted(dict(found).items(), key=repr) == expected)
    if isinstance(expected, list) and isinstance(found, Sequence):
        return len(found) == len(expected) and all(map(_close, found, expected))
    return _close(found, expected)


def _close(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and found is not None:
        return bool(math.isclose(found, expected, rel_tol=1e-6) or (found != found and expected != expected))
    if isinstance(expected, Decimal) and found is not None:
        return bool(abs(found - expected) <= abs(expected) * Decimal("1e-15"))
    return bool(found == expected)


def test_sums_of_long_decimals_are_exact(spark: SparkSession) -> None:
    """Compared with Python's decimals: sums that exceed 38 digits in between or at the end."""
    from everfold.spark.session import create_session

    session = create_session(spark, 2)
    random = Random(7)
    biggest = 10**38 - 1
    wrong = []
    for scale in (0, 1, 10, 19, 20, 21, 37, 38):
        groups = [
            [random.choice((-1, 1)) * random.randrange(10 ** random.randrange(1, 39)) for _ in range(8)]
            for _ in range(20)
        ]
        groups += [[biggest, 1, -5], [biggest, 1], [-biggest, -1, 1], [-biggest, -1], [10**20, -1], [-(10**20), 1], [0]]
        groups += [
            [biggest, -biggest, biggest],
            [biggest, biggest, -1, -biggest],
            [3, 3, 3],
            [10**38 - 10**20, 10**20 - 1],
        ]
        values = ", ".join(
            f"({at}, CAST('{Decimal(value).scaleb(-scale, WIDE)}' AS DECIMAL(38,{scale})))"
            for at, group in enumerate(groups)
            for value in group
        )
        type_ = DecimalType(precision=38, scale=scale)
        texts = [to_spark_total(type_, distinct=distinct) for distinct in (False, True)]
        rows = session.sql(
            f"SELECT g, {', '.join(texts)} FROM VALUES {values} AS t(g, v) GROUP BY g ORDER BY g"
        ).collect()
        for group, (_, total, of_distinct) in zip(groups, rows, strict=True):
            for found, exact in ((total, sum(group)), (of_distinct, sum(set(group)))):
                expected = Decimal(exact).scaleb(-scale, WIDE) if abs(exact) <= biggest else None
                if found != expected:
                    wrong.append(f"{scale}: {group}: {found}, not {expected}")
    assert not wrong, "\n".join(wrong)


def to_spark_total(of: DecimalType, *, distinct: bool) -> str:
    return write_spark_sum(SqlArguments(("v",), distinct=distinct), of)
