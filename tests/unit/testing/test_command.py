"""The command `everfold test`, without its process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everfold.cli.cases import test as run_command
from everfold.errors import UsageError

CASES = """\
tables: CREATE TABLE t (k STRING, n INT);
rows:
  t: |
    k | n
    a | 1
cases:
  - name: some
    sql: SELECT k, n FROM t
    expect: |
      k | n
      a | 1
"""


def test_a_file_that_cannot_be_read_is_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.case.yaml").write_text("cases: [\n")
    (tmp_path / "b.case.yaml").write_text(CASES.replace("expect:", "expected:"))
    (tmp_path / "c.case.yaml").write_bytes(b"\xff")
    (tmp_path / "d.case.yaml").write_text(CASES)
    (tmp_path / "e.case.yaml").write_text(CASES.replace("      a | 1", "      a | 2"))
    assert run_command([tmp_path], ["memory"], as_json=False, rewrite=False) == 1
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "1 passed, 4 failed"
    assert f"{tmp_path}/a.case.yaml:2: invalid case file\n    error[bad-case-file]: this is not valid YAML" in shown
    assert f"{tmp_path}/b.case.yaml:9: invalid case file\n" in shown
    assert "did you mean `expect`?" in shown
    assert f"{tmp_path}/c.case.yaml: invalid case file\n    error[unreadable-file]" in shown
    assert f"{tmp_path}/e.case.yaml:7: some (memory, stream)\n" in shown


def test_an_invalid_file_is_an_entry_of_the_json_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.case.yaml").write_text(CASES.replace("expect:", "expected:"))
    (tmp_path / "b.case.yaml").write_text(CASES)
    assert run_command([tmp_path], ["memory"], as_json=True, rewrite=False) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["failed"]) == (1, 1)
    invalid, passed = report["cases"]
    assert (invalid["file"], invalid["line"], invalid["name"]) == (str(tmp_path / "a.case.yaml"), 9, None)
    assert not invalid["passed"]
    assert "unknown key `expected`" in invalid["message"]
    assert (passed["name"], passed["passed"]) == ("some", True)


def test_bless_rewrites_the_other_files_and_still_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.case.yaml").write_text("cases: [\n")
    (tmp_path / "b.case.yaml").write_text(CASES.replace("      a | 1", "      a | 2"))
    assert run_command([tmp_path], ["memory"], as_json=False, rewrite=True) == 1
    assert (tmp_path / "b.case.yaml").read_text() == CASES
    assert run_command([tmp_path / "b.case.yaml"], ["memory"], as_json=False, rewrite=True) == 0


def test_a_missing_file_is_an_invalid_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        run_command([tmp_path / "no.case.yaml"], ["memory"], as_json=False, rewrite=False)
