"""Functions next to a script.

A failing function stops the job with exit code 1 and the location in the user's Python code.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everfold.cli.main import everfold
from everfold.errors import FunctionError

MODULE = """\
from everfold.udf import udf, udaf, AggregateFunction


@udf(input_types=['INT'], result_type='INT')
def inverse(value):
    return divided(60, value)


def divided(one, other):
    return one // other


class Total(AggregateFunction):
    def create_accumulator(self):
        return [0]

    def accumulate(self, accumulator, value):
        if value == 0:
            raise ValueError('no zeros')
        accumulator[0] += value

    def get_value(self, accumulator):
        return accumulator[0]

    def get_result_type(self):
        return 'BIGINT'

    def get_accumulator_type(self):
        return 'ARRAY<BIGINT>'
"""
SCRIPT = """\
CREATE TABLE numbers (n INT) WITH ('connector' = 'filesystem', 'path' = 'numbers', 'format' = 'json');
CREATE TEMPORARY FUNCTION inverse AS 'mine.inverse' LANGUAGE PYTHON;
CREATE TEMPORARY FUNCTION total AS 'mine.Total' LANGUAGE PYTHON;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a script's directory, with numbers and a module of functions."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "1.json").write_text("".join(f"{json.dumps({'n': n})}\n" for n in (1, 2, 3)))
    return tmp_path


def run(folder: Path, statement: str, *options: str) -> Result:
    script = folder / "job.sql"
    script.write_text(SCRIPT + statement)
    return CliRunner().invoke(everfold, ["run", str(script), "--engine", "memory", *options])


def add_zero(folder: Path) -> None:
    (folder / "numbers" / "2.json").write_text('{"n": 0}\n')


@pytest.mark.parametrize("batch", [[], ["--batch"]])
def test_a_module_next_to_the_script_is_found(folder: Path, batch: list[str]) -> None:
    result = run(folder, "SELECT SUM(inverse(n)) AS a FROM numbers", "--batch", "--format", "json")
    assert result.exception is None
    assert json.loads(result.stdout) == {"a": 110}


def test_a_failing_function_is_reported(folder: Path) -> None:
    add_zero(folder)
    result = run(folder, "SELECT inverse(n)\nFROM numbers")
    error = result.exception
    assert isinstance(error, FunctionError)
    assert error.exit_code == 1
    assert str(error).replace(str(folder), "") == (
        "error[function-failed]: the Python function `inverse` raised ZeroDivisionError: integer division or modulo by zero\n"
        " --> /job.sql:4:8\n"
        "  |\n"
        "4 | SELECT inverse(n)\n"
        "  |        ^^^^^^^^^^\n"
        "  = note: it was called as inverse(0)\n"
        "  = note: /mine.py:6 in inverse: return divided(60, value)\n"
        "  = note: /mine.py:10 in divided: return one // other"
    )
    assert error.diagnostics[0].to_json()["notes"] == list(error.diagnostics[0].notes)
    assert result.stdout == ""


def test_a_failing_aggregate_function_is_reported(folder: Path) -> None:
    add_zero(folder)
    result = run(folder, "SELECT total(n) AS t FROM numbers", "--batch")
    error = result.exception
    assert isinstance(error, FunctionError)
    assert "raised ValueError: no zeros" in str(error)
    assert f"{folder}/mine.py:19 in accumulate: raise ValueError('no zeros')" in str(error)
    assert result.stdout == ""
