"""Reading case files: layers, shorthands, and errors with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.errors import EverfoldError
from everfold.testing.casefile import ExpectedError, find_case_files, loads

SUITE = """\
# oracle: flink 2.3
tables: |
  CREATE TABLE t (k STRING, n INT);
rows:
  t: |
    k | n
    a | 1
options:
  table.local-time-zone: Asia/Shanghai
modes: [batch, stream]
cases:
  - name: first
    sql: SELECT k, n FROM t
    expect: |  # STRING, DECIMAL(38, 2), ROW<`a` INT, `b` STRING>; a remark
      k | n
      a | 1
  - name: second
    batches: [1, 2]
    tolerance: 1.0e-9
    rows:
      t: |
        op | k | n
        +I | b | 2
    options:
      table.exec.mini-batch.enabled: true
    sql: |
      SELECT k
      FROM t
    changelog: |
      op | k
      +I | b
  - name: third
    batches: row
    sql: SELECT
    error:
      code: syntax
      words: [unexpected, "`SELECT`"]
  - name: fourth
    sql: SELECT k FROM t
    steps:
      - expect: |
          k
          a
      - on_change: accept
        rows:
          t: |
            k
            c
        expect: |
          k
          c
"""


def test_a_suite_is_read_into_cases_and_steps() -> None:
    first, second, third, fourth = loads(SUITE).cases
    (step,) = first.steps
    assert first.modes == ("stream", "batch")
    assert step.types == ("STRING", "DECIMAL(38, 2)", "ROW<`a` INT, `b` STRING>")
    assert step.tables[0].line == 3
    assert step.tables[0].padded_text.startswith("\n\nCREATE")
    assert step.rows["t"].table.cells() == [("a", "1")]
    (step,) = second.steps
    assert (step.batches, second.tolerance, step.changelog, step.sql.line) == ((1, 2), 1e-9, True, 27)
    assert step.options == {"table.local-time-zone": "Asia/Shanghai", "table.exec.mini-batch.enabled": "true"}
    assert step.rows["t"].table.kinds == ("+I",)
    assert step.expect is not None
    assert step.expect.kinds == ("+I",)
    assert third.steps[0].error == ExpectedError("syntax", ("unexpected", "`SELECT`"))
    one, two = fourth.steps
    assert fourth.modes == ("stream",)
    assert one.rows["t"].table.cells() == [("a", "1")]
    assert two.rows["t"].table.cells() == [("c",)]
    assert two.sql.text == "SELECT k FROM t"
    assert (one.on_change, two.on_change) == ("refuse", "accept")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("tables: |", "table: |", 2, "did you mean `tables`?"),
        ("a | 1\noptions", "a\noptions", 7, "expected a value for each of k, n"),
        ("modes: [batch, stream]", "modes: [both]", 10, "`stream` and `batch`"),
        ("batches: [1, 2]", "batches: [1, x]", 18, "`one`, `row` or a list"),
        ("tolerance: 1.0e-9", "tolerance: much", 19, "must be a number"),
        ("  - name: second", "  - name: first", 17, "the other one is on line 12"),
        ("    sql: SELECT k, n FROM t\n", "", 12, "`sql` is missing"),
        ("    sql: SELECT\n", "    sql: SELECT\n    sql: SELECT\n", 35, "duplicate key `sql`"),
        ("    sql: SELECT\n", "    sql: SELECT\n    expect: k\n", 37, "can be expected"),
        (
            "    sql: SELECT k FROM t\n",
            "    sql: SELECT k FROM t\n    expect: k\n",
            40,
            "a case with `steps` cannot have `expect`",
        ),
        ("      - on_change: accept\n", "      - on_change: reset\n", 44, "must be `refuse`, `accept` or `backfill`"),
        (
            "    steps:\n      - expect",
            "    steps:\n      - on_change: accept\n        expect",
            41,
            "is not allowed in the first step",
        ),
        ("tables: |", "tables: [|", 2, "this is not valid YAML"),
    ],
)
def test_an_error_shows_its_line(old: str, new: str, line: int, words: str) -> None:
    assert old in SUITE
    with pytest.raises(EverfoldError) as caught:
        loads(SUITE.replace(old, new), Path("some.case.yaml"))
    assert caught.value.exit_code == 2
    assert f"some.case.yaml:{line}:" in str(caught.value) or "YAML" in words
    assert words in str(caught.value)


def test_case_files_are_found_in_directories(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.case.yaml").write_text(SUITE)
    assert find_case_files([tmp_path]) == [tmp_path / "a" / "x.case.yaml"]
    with pytest.raises(EverfoldError, match="no file"):
        find_case_files([_create_empty(tmp_path)])
    with pytest.raises(EverfoldError, match="does not exist"):
        find_case_files([tmp_path / "nothing"])


def _create_empty(folder: Path) -> Path:
    made = folder / "empty"
    made.mkdir()
    return made
