"""`everfold format`: printing, checking and rewriting scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def everfold(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everfold", "format", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, input=text)


def test_standard_input_is_formatted(tmp_path: Path) -> None:
    done = everfold(tmp_path, "-", text="select a from t;")
    assert (done.returncode, done.stdout, done.stderr) == (0, "SELECT a\nFROM t;\n", "")


def test_check_names_the_files_that_would_change(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/good.sql").write_text("SELECT 1;\n")
    (tmp_path / "jobs/other.sql").write_text("select 1;\n")
    done = everfold(tmp_path, "--check", "jobs")
    assert (done.returncode, done.stdout) == (1, "would reformat jobs/other.sql\n")
    assert done.stderr == "1 file would be reformatted, 1 file already formatted\n"
    assert (tmp_path / "jobs/other.sql").read_text() == "select 1;\n"


def test_write_rewrites_files_and_keeps_their_mode_and_line_ends(tmp_path: Path) -> None:
    script = tmp_path / "job.sql"
    script.write_bytes(b"select a\r\nfrom t;\r\n")
    script.chmod(0o640)
    (tmp_path / "wrong.sql").write_text("SELECT a FORM t;\n")
    done = everfold(tmp_path, "--write", "wrong.sql", "job.sql")
    assert done.returncode == 2
    assert "unexpected `FORM`" in done.stderr
    assert "reformatted job.sql\n" in done.stdout
    assert script.read_bytes() == b"SELECT a\r\nFROM t;\r\n"
    assert script.stat().st_mode & 0o777 == 0o640
    assert everfold(tmp_path, "--check", "job.sql").returncode == 0


def test_several_scripts_are_not_printed(tmp_path: Path) -> None:
    assert everfold(tmp_path, "a.sql", "b.sql").returncode == 2
