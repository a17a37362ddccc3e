"""The command line from outside: help, wrong arguments, errors, start-up without heavy imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everfold.cli import setup
from everfold.cli.pairs import parse_pairs
from everfold.errors import EverfoldError


def everfold(*arguments: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everfold", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=stdin, timeout=120)


def test_help_names_the_commands() -> None:
    done = everfold("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("run", "explain", "test", "check-setup"))


def test_version() -> None:
    from everfold import __version__

    assert everfold("--version").stdout == f"everfold {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "No such command"),
        (["run"], "name one script"),
        (["run", "a.sql", "-e", "SELECT 1"], "name one script"),
        (["run", "missing.sql"], "`missing.sql` cannot be read: No such file"),
        (["run", "-e", "SELECT 1", "--var", "x"], "has no `=`"),
        (["test", "missing"], "`missing` does not exist"),
        (["run", "-e", "SELECT 1", "--state", "ftp://host/job"], "paths of `ftp` are not supported"),
        (["history", "hdfs:job"], "use its local path; a local name: ./hdfs:job"),
        (["run", "-e", "SELECT 1", "--engine", "flink"], "Invalid value"),
    ],
)
def test_wrong_arguments_print_a_message_and_exit_with_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = everfold(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_pairs_are_parsed() -> None:
    assert parse_pairs(["a=1", "b = x=y", "c="], "--conf") == {"a": "1", "b": " x=y", "c": ""}
    with pytest.raises(EverfoldError):
        parse_pairs(["=1"], "--conf")


def test_check_setup_reports_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(setup, "MIN_DISK_BYTES", 1 << 60)
    missing = [check.line() for check in setup.run_checks(tmp_path) if not check.ok]
    assert any("Java" in line and "install" in line for line in missing)
    assert any("free" in line and "1 GiB" in line for line in missing)
