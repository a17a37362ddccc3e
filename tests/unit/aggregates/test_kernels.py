"""Values and types of the basic aggregates.

Expected values come from Flink 2.3 (asked with the oracle), except for NaN and for a DECIMAL sum
after an overflow: the docstrings of the functions explain why.
"""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal as D  # noqa: N817
from typing import Any

import polars as pl
import pytest
from unit.aggregates.calls import call, compute_all_ways, compute_in_duckdb, rows, value

from everfold.aggregates.folding import Fold, fold_rows, fold_slots
from everfold.aggregates.registry import Signature, lookup, names
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    ArrayType,
    DataType,
    DecimalType,
    IntervalType,
)

NAN = float("nan")
BIG, MINUS_BIG = D("9" * 36 + ".99"), D("-" + "9" * 36 + ".99")


def decimal(precision: int, scale: int) -> DecimalType:
    return DecimalType(precision=precision, scale=scale)


CASES = [
    ("SUM", TINYINT, [127, 1, 1, None], -127),
    ("SUM", INT, [2**31 - 1, 1], -(2**31)),
    ("SUM", BIGINT, [2**63 - 1, 1, 1], -(2**63) + 1),
    ("SUM", FLOAT, [0.5, 0.25], 0.75),
    ("SUM", FLOAT, [16777216.0, 1.0, 1.0], 16777218.0),  # Flink adds in single precision: 16777216
    ("SUM", DOUBLE, [0.5, 0.25, -2.0], -1.25),
    ("SUM", decimal(10, 2), [D(1), D(1), D(3)], D("5.00")),
    ("SUM", decimal(38, 2), [BIG, BIG, D("0.01")], None),
    ("SUM", decimal(38, 2), [BIG, MINUS_BIG, D("-0.05")], D("-0.05")),
    ("SUM", decimal(38, 2), [BIG, MINUS_BIG, MINUS_BIG], MINUS_BIG),
    ("SUM", decimal(38, 2), [MINUS_BIG, D("-0.01")], None),
    ("SUM", INT, [None, None], None),
    ("SUM", decimal(38, 2), [None], None),
    ("AVG", TINYINT, [127, 1, 1], 43),
    ("AVG", INT, [-2, -6, -6], -4),
    ("AVG", INT, [-2, -6, -7], -5),
    ("AVG", INT, [2**31 - 1, 1], 2**30),
    ("AVG", BIGINT, [2**63 - 1, 1, 1], -3074457345618258602),
    ("AVG", FLOAT, [0.5, 0.25], 0.375),
    ("AVG", decimal(10, 2), [D(1), D(1), D(3)], D("1.666667")),
    ("AVG", decimal(10, 7), [D("0.0000005"), D(0)], D("0.0000003")),
    ("AVG", decimal(10, 6), [D("0.000001"), D(0)], D("0.000001")),
    ("AVG", decimal(10, 6), [D("-0.000001"), D(0)], D("-0.000001")),
    ("AVG", decimal(38, 20), [D(1), D(1), D(0)], D("0.66666666666666666667")),
    ("AVG", decimal(38, 0), [D(2), D(0), D(0)], D("0.666667")),
    ("AVG", decimal(38, 0), [D(4 * 10**37), D(0), D(0)], None),
    ("AVG", decimal(4, 2), [None], None),
    ("AVG", INT, [None], None),
    ("MIN", STRING, ["é", "z", "Z"], "Z"),
    ("MAX", STRING, ["é", "z", "Z"], "é"),
    ("MIN", BOOLEAN, [True, False, None], False),
    ("MAX", TIME, [3_723_004, 1000], 3_723_004),
    ("MAX", DOUBLE, [1.0, NAN], NAN),
    ("MAX", DOUBLE, [NAN, 1.0], NAN),
    ("MIN", DOUBLE, [NAN, 1.0], 1.0),
    ("MIN", DOUBLE, [NAN], NAN),
    ("MIN", DOUBLE, [-0.0, 0.0], 0.0),
    ("MAX", FLOAT, [-0.0], 0.0),
    ("MIN", INT, [None], None),
    ("MIN", decimal(10, 2), [D("-1"), D(3)], D("-1.00")),
    ("COUNT", STRING, ["a", None, "b"], 2),
    ("COUNT", ArrayType(element=INT), [[1], None], 1),
    ("COUNT", INT, [None], 0),
]


@pytest.mark.parametrize(("name", "of", "values", "expected"), CASES)
def test_value(name: str, of: DataType, values: list[Any], expected: Any) -> None:
    fold = call(name, of)
    frame = rows([of], values)
    for found in compute_all_ways(frame, fold):
        assert (
            found == pytest.approx(expected, rel=0, abs=0, nan_ok=True)
            if isinstance(expected, float)
            else found == expected
        )
    twin, type_ = compute_in_duckdb(frame, fold)
    assert repr(twin) == repr(expected) or (twin == expected and expected != 0)
    result = fold.entry.result_type(fold.of)
    assert result is not None
    assert type_ == result.duckdb


def test_count_of_rows_and_with_filter() -> None:
    fold = call("COUNT")
    frame = pl.DataFrame({"k": [1, 1, 2], "f": [True, None, None]})
    assert fold_rows(frame, [], [fold], [])["count"].to_list() == [3]
    filtered = Fold(fold.entry, fold.of, ("f",), ("count",))
    assert fold_rows(frame, [], [filtered], [])["count"].to_list() == [1]
    assert frame.select(filtered.lifted or [])["count"].to_list() == [1, 0, 0]


def test_a_slot_that_an_old_page_lacks_counts_as_null() -> None:
    for name in ("SUM", "AVG", "MAX"):
        fold = call(name, INT)
        old = pl.DataFrame({slot: pl.Series([None], dtype=pl.Int64) for slot in fold.slots})
        new = pl.DataFrame({"x": pl.Series([4], dtype=pl.Int32)}).select(fold.lifted or [])
        both = pl.concat([old.cast(dict(new.schema)), new])  # type: ignore[arg-type]
        assert value(fold_slots(both, [], [fold]), fold) == 4


def test_a_sum_that_overflows_temporarily_is_not_lost() -> None:
    fold = call("SUM", decimal(38, 2))
    lost = fold_rows(rows([decimal(38, 2)], [BIG, BIG]), [], [fold], [])
    assert value(lost, fold) is None
    back = fold_rows(rows([decimal(38, 2)], [MINUS_BIG]), [], [fold], [])
    assert value(fold_slots(pl.concat([lost, back]), [], [fold]), fold) == BIG


@pytest.mark.parametrize("name", ["SUM", "AVG", "MIN", "MAX"])
@pytest.mark.parametrize("of", [BYTES, ArrayType(element=INT), IntervalType(), NULL])
def test_wrong_argument_types_are_refused(name: str, of: DataType) -> None:
    entry = lookup(name)
    assert entry is not None
    assert entry.result_type(Signature((of,))) is None


def test_result_types() -> None:
    def of(name: str, arg: DataType) -> str:
        entry = lookup(name)
        assert entry is not None
        return str(entry.result_type(Signature((arg,))))

    assert of("SUM", decimal(10, 2)) == "DECIMAL(38, 2)"
    assert of("AVG", decimal(10, 2)) == "DECIMAL(38, 6)"
    assert of("AVG", decimal(10, 8)) == "DECIMAL(38, 8)"
    assert of("SUM", TINYINT.as_nullable(False)) == "TINYINT"
    assert of("MAX", TIMESTAMP_LTZ3) == "TIMESTAMP_LTZ(3)"
    assert of("MIN", DATE) == "DATE"
    assert of("MIN", TIMESTAMP3) == "TIMESTAMP(3)"
    assert of("COUNT", BYTES) == "BIGINT NOT NULL"
    for text in (STRING, BOOLEAN, TIMESTAMP3):
        assert of("SUM", text) == "None"


def test_the_registry_imports_no_engine() -> None:
    code = (
        "import sys, everfold.aggregates; from everfold.aggregates.registry import Signature, lookup; from everfold.types import INT;"
        "lookup('SUM').result_type(Signature((INT,)));"
        "sys.exit(any(m in sys.modules for m in ('polars', 'duckdb', 'pyarrow', 'pyspark')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_aggregates_of_flink_are_registered() -> None:
    assert set(names()) == {
        *(
            "APPROX_COUNT_DISTINCT",
            "ARRAY_AGG",
            "AVG",
            "COLLECT",
            "COUNT",
            "FIRST_VALUE",
            "JSON_ARRAYAGG",
            "JSON_OBJECTAGG",
        ),
        *(
            "LAST_VALUE",
            "LISTAGG",
            "MAX",
            "MIN",
            "PERCENTILE",
            "SINGLE_VALUE",
            "STDDEV",
            "STDDEV_POP",
            "STDDEV_SAMP",
            "SUM",
        ),
        *("VARIANCE", "VAR_POP", "VAR_SAMP"),
    }
