"""Operators that are new in a job, beside and above those that go on: on Spark, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from spark.test_changed_query import Run, answered, now, put, run

__all__ = ["run"]
pytestmark = pytest.mark.spark
ACCEPT = ("--on-change", "accept")
RULES = "SET 'everfold.compat.rules' = 'extended';\n"
MINUTES = "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k"


def test_a_group_beside_one_that_goes_on(run: Run, tmp_path: Path) -> None:
    sums, most = (f"SELECT '{call}' AS what, k, {call}(x) AS v FROM t GROUP BY k" for call in ("SUM", "MAX"))

    def go(query: str, *options: str) -> dict[tuple[str, str], int]:
        changes = answered(run(f"{RULES}{query};", *options))
        return {(row["what"], row["k"]): row["v"] for row in changes if row["op"] in ("+I", "+U")}

    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "00:03")])
    assert go(sums) == {("SUM", "a"): 6, ("SUM", "b"): 9}
    put(tmp_path, "2.json", [("a", 2, "00:04"), ("c", 3, "00:05")])
    together = f"{most} UNION ALL {sums}"
    assert go(together, *ACCEPT) == {("SUM", "a"): 8, ("SUM", "c"): 3, ("MAX", "a"): 2, ("MAX", "c"): 3}
    put(tmp_path, "3.json", [("a", 1, "00:04"), ("b", 4, "00:05")])
    assert go(together) == {("SUM", "a"): 9, ("SUM", "b"): 13, ("MAX", "b"): 4}


def test_a_group_above_windows_that_go_on(run: Run, tmp_path: Path) -> None:
    windows = f"SELECT window_start, window_end, k, SUM(x) AS s {MINUTES}"
    query = f"{RULES}SELECT k, COUNT(*) AS n, SUM(s) AS s FROM ({windows}) GROUP BY k;"
    put(tmp_path, "1.json", [("a", 1, "00:01"), ("b", 9, "00:02"), ("a", 5, "01:03")])
    assert len(answered(run(f"{RULES}{windows};", "--suspend"))) == 2
    put(tmp_path, "2.json", [("a", 2, "01:04"), ("c", 3, "02:05")])
    # The window of a that is open when the query changes comes whole.
    assert now(answered(run(query, *ACCEPT, "--suspend"))) == {"a": {"k": "a", "n": 1, "s": 7}}
    put(tmp_path, "3.json", [("a", 2, "02:06"), ("c", 4, "04:05")])
    assert now(answered(run(query))) == {"a": {"k": "a", "n": 2, "s": 9}, "c": {"k": "c", "n": 2, "s": 7}}
