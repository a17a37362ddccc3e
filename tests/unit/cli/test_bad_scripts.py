"""Scripts that are no text, and what comes of readers that go away: a message and an exit code, never a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "everfold", "run", *arguments, "--engine", "memory"]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, timeout=120)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"SELECT \xff", "error[unreadable-file]: `job.sql` cannot be read: it is not UTF-8"),
        (b"SELECT 1\0", "error[syntax]: found '\\x00', which means nothing in SQL"),
        (b"SELECT " + b"(" * 10_000 + b"1" + b")" * 10_000, "error[too-deep]: "),
        (b"SELECT * FROM `" + b"x" * 65_536 + b"`", "error[unknown-table]: "),
    ],
    ids=["not UTF-8", "NUL", "10,000 parentheses", "a name of 64 kB"],
)
def test_a_script_that_makes_no_sense(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "job.sql").write_bytes(text)
    done = run("job.sql", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(words)
    assert done.stdout == b""


def test_a_mark_of_the_byte_order_is_no_sql(tmp_path: Path) -> None:
    (tmp_path / "job.sql").write_bytes(b"\xef\xbb\xbfSELECT 1 AS a")
    assert run("job.sql", "--format", "csv", cwd=tmp_path).stdout == b"a\n1\n"


def test_a_reader_that_goes_away_is_no_failure_to_speak_of(tmp_path: Path) -> None:
    values = ", ".join(f"('{'x' * 1000}{n}')" for n in range(2_000))
    (tmp_path / "job.sql").write_text(f"SELECT * FROM (VALUES {values}) AS t(a)")
    command = f"{sys.executable} -m everfold run job.sql --engine memory --format csv | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "a\n"
    assert done.stderr == ""
