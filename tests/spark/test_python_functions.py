"""Python functions on Spark: they reach workers that lack the user's modules, and their
exceptions come back unchanged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everfold import TableEnvironment
from everfold.errors import FunctionError
from everfold.udf import DataTypes, udf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELPER = """
FACTOR = 10

def scaled(value):
    return None if value is None else value * FACTOR
"""
MODULE = """
import pyarrow.compute as pc

import my_helper
from everfold.udf import AggregateFunction, Row, udaf, udf


@udf(input_types=['BIGINT'], result_type='BIGINT')
def scaled(value):
    return my_helper.scaled(value)


@udf(input_types=['BIGINT', 'BIGINT'], result_type='BIGINT', func_type='arrow')
def added(one, other):
    return pc.add(one, other)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return Row(0, 0)

    def accumulate(self, accumulator, value):
        if value < 0:
            raise ValueError('no negative ones')
        accumulator.total += my_helper.scaled(value)
        accumulator.n += 1

    def retract(self, accumulator, value):
        accumulator.total -= my_helper.scaled(value)
        accumulator.n -= 1

    def get_value(self, accumulator):
        return accumulator.total / accumulator.n if accumulator.n else None

    def get_result_type(self):
        return 'DOUBLE'

    def get_accumulator_type(self):
        return 'ROW<total BIGINT, n BIGINT>'


@udaf(result_type='BIGINT', func_type='polars')
def span(values):
    return values.max() - values.min()
"""
DDL = """
CREATE TABLE numbers (k STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'numbers', 'format' = 'json');
CREATE TABLE written (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'written', 'format' = 'json');
CREATE TEMPORARY FUNCTION scaled AS 'my_functions.scaled' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION added AS 'my_functions.added' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION mean AS 'my_functions.Mean' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION span AS 'my_functions.span' LANGUAGE PYTHON;
"""
NUMBERS = [("a", 1), ("b", 4), ("a", 3), ("b", None), ("a", 8)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Make a folder with numbers, and modules that only this process can import."""
    (tmp_path / "my_helper.py").write_text(HELPER)
    (tmp_path / "my_functions.py").write_text(MODULE)
    (tmp_path / "numbers").mkdir()
    lines = [json.dumps({"k": k, "n": n, "ts": f"2026-01-01 00:00:{at:02}"}) for at, (k, n) in enumerate(NUMBERS)]
    (tmp_path / "numbers" / "1.json").write_text("\n".join(lines) + "\n")
    yield tmp_path
    for name in ("my_functions", "my_helper"):
        sys.modules.pop(name, None)


@pytest.fixture
def environment(spark: SparkSession, folder: Path) -> TableEnvironment:
    made = TableEnvironment(spark, base_folder=folder)
    made.execute_sql(DDL)
    return made


def test_scalar_functions_in_a_stream(environment: TableEnvironment) -> None:
    offset = 1000
    environment.create_temporary_function("moved", udf(lambda n: (n or 0) + offset, result_type=DataTypes.INT()))
    rows = environment.sql_query(
        "SELECT k, scaled(n) AS x1, added(scaled(n), 1) + 1 AS x2, moved(n) AS x3 FROM numbers WHERE scaled(n) > 10"
    ).collect()
    assert sorted(map(tuple, rows)) == [("a", 30, 32, 1003), ("a", 80, 82, 1008), ("b", 40, 42, 1004)]
    assert environment.list_user_defined_functions() == ["added", "mean", "moved", "scaled", "span"]
    assert environment.drop_temporary_function("moved")
    assert not environment.drop_temporary_function("moved")


def test_aggregate_functions_in_windows_and_in_batch(environment: TableEnvironment) -> None:
    query = """
        SELECT k, mean(n) FILTER (WHERE n IS NOT NULL) AS x1, span(n) AS x2, COUNT(*) AS n
        FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k
    """
    expected = [("a", 40.0, 7, 3), ("b", 40.0, 0, 2)]
    assert sorted(map(tuple, environment.sql_query(query).collect())) == expected
    environment.config.set("execution.runtime-mode", "batch")
    assert sorted(map(tuple, environment.sql_query(query).collect())) == expected


def test_an_exception_in_a_function_is_reported_and_nothing_is_written(
    environment: TableEnvironment, folder: Path
) -> None:
    environment.create_temporary_function("inverse", udf(lambda n: 60 // (n - 4), result_type="BIGINT"))
    with pytest.raises(FunctionError) as caught:
        environment.execute_sql("INSERT INTO written SELECT inverse(n) FROM numbers WHERE n > 2")
    found = caught.value.diagnostics[0]
    assert found.message.startswith("the Python function `inverse` raised ZeroDivisionError")
    assert found.notes[0] == "it was called as inverse(4)"
    assert Path(__file__).name in found.notes[1]
    assert found.span is not None
    assert found.span.text[found.span.start : found.span.end] == "inverse(n)"
    assert [each.name for each in folder.glob("written/**/*") if each.is_file() and not each.name.startswith(".")] == []


def test_an_exception_in_an_aggregate_function_is_reported(environment: TableEnvironment) -> None:
    with pytest.raises(FunctionError) as caught:
        environment.sql_query("SELECT mean(0 - n) AS x FROM numbers WHERE n IS NOT NULL").collect()
    assert "it was called as mean.accumulate(Row(total=0, n=0), -1)" in str(caught.value)
    assert "my_functions.py:24 in accumulate: raise ValueError('no negative ones')" in str(caught.value)
