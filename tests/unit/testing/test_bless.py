"""`everfold test --bless` replaces wrong expected results, and changes nothing else in the file."""

from __future__ import annotations

from pathlib import Path

from everfold.testing.bless import bless
from everfold.testing.casefile import load
from everfold.testing.engines import create_engine
from everfold.testing.runner import run_file

FILE = """\
tables: |
  CREATE TABLE t (k STRING, v INT);
rows:
  t: |
    k | v
    a | 1
    b | 2
cases:
  - name: in a batch  # a remark
    modes: [batch]
    sql: SELECT k, SUM(v) AS s FROM t GROUP BY k
    expect: |  # STRING, BIGINT; the types too
      k | s
      a | 7

  - name: an error stays
    sql: SELECT nothing FROM t
    error: unknown-column
  - name: in a stream
    sql: SELECT v + 1 AS w FROM t
    expect: |
      w
      9
"""


def test_wrong_expected_results_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "some.case.yaml"
    path.write_text(FILE)
    file = load(path)
    assert bless(file, file.cases, create_engine("memory")) == 2
    expected = FILE.replace("STRING, BIGINT;", "STRING, INT;").replace("      a | 7", "      a | 1\n      b | 2")
    assert path.read_text() == expected.replace("      9\n", "      2\n      3\n")
    assert all(outcome.passed for outcome in run_file(load(path), [create_engine("memory")]))
