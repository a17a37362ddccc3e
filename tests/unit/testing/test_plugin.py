"""The pytest plugin, run in a separate pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CASES = """\
tables: CREATE TABLE t (k STRING, n INT);
rows:
  t: |
    k | n
    a | 1
modes: [stream, batch]
cases:
  - name: right
    sql: SELECT k, n FROM t
    expect: |
      k | n
      a | 1
  - name: wrong
    modes: [batch]
    sql: SELECT k, n FROM t
    expect: |
      k | n
      a | 2
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        f"--rootdir={folder}",
        *arguments,
        str(folder),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_cases_are_items_by_engine_and_mode(tmp_path: Path) -> None:
    (tmp_path / "some.case.yaml").write_text(CASES)
    done = run_pytest(tmp_path, "-v")
    assert done.returncode == 1
    assert "right [memory-stream] PASSED" in done.stdout
    assert "right [memory-batch] PASSED" in done.stdout
    assert "some.case.yaml:13: wrong\n  k | n\n- a | 2\n+ a | 1" in done.stdout.replace(
        "+ a | 1\n- a | 2", "- a | 2\n+ a | 1"
    )
    assert "Traceback" not in done.stdout
    assert "1 failed, 2 passed" in done.stdout


def test_a_wrong_file_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "some.case.yaml").write_text(CASES.replace("expect:", "expected:", 1))
    done = run_pytest(tmp_path)
    assert done.returncode != 0
    assert "some.case.yaml:10:5" in done.stdout
    assert "did you mean `expect`?" in done.stdout


def test_engines_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "some.case.yaml").write_text(CASES)
    done = run_pytest(tmp_path, "--collect-only", "-q", "--everfold-engine=all")
    assert "right [spark-stream]" in done.stdout
    assert "6 tests collected" in done.stdout


def test_a_scan_by_catalyst_selects_the_cases_that_depend_on_it(tmp_path: Path) -> None:
    totals = CASES.replace("SELECT k, n FROM t", "SELECT k, SUM(n) AS n FROM t GROUP BY k", 1)
    (tmp_path / "totals.case.yaml").write_text(totals)
    (tmp_path / "rows.case.yaml").write_text(CASES)
    done = run_pytest(tmp_path, "--collect-only", "-q", "--everfold-engine=spark", "--everfold-scan=catalyst")
    assert [line for line in done.stdout.splitlines() if "::" in line] == ["totals.case.yaml::right [spark-stream]"]
