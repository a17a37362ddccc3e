"""Unreadable scripts and closed pipes: a message and an exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everfold.cli.main import main


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"SELECT \xff", "error[unreadable-file]: `job.sql` cannot be read: it is not UTF-8"),
        (b"SELECT 1\0", "error[syntax]: unexpected character '\\x00'"),
        (b"SELECT " + b"(" * 10_000 + b"1" + b")" * 10_000, "error[too-deep]: "),
        (b"SELECT * FROM `" + b"x" * 65_536 + b"`", "error[unknown-table]: "),
    ],
    ids=["not UTF-8", "NUL", "10,000 parentheses", "a name of 64 kB"],
)
def test_an_unreadable_script_ends_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: bytes, words: str
) -> None:
    (tmp_path / "job.sql").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["everfold", "run", "job.sql", "--engine", "memory"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(words)
    assert printed.out == ""


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    values = ", ".join(f"('{'x' * 1000}{n}')" for n in range(300))
    (tmp_path / "job.sql").write_text(f"\ufeffSELECT * FROM (VALUES {values}) AS t(a)")
    command = f"{sys.executable} -m everfold run job.sql --engine memory --format csv | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("a\n", "")
