"""The release: a wheel that runs the README's first query in a fresh environment, and release notes
that fold into the changelog.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import everfold

ROOT = Path(__file__).parents[1]
UV = (sys.executable, "-m", "uv")


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Run a command, which must succeed, outside of this environment; return its output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**kept, **env}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from the sdist as `make build` builds it."""
    dist = tmp_path_factory.mktemp("dist")
    run(*UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", dist, cwd=ROOT)
    assert {file.name for file in dist.glob("everfold*")} == {
        f"everfold-{everfold.__version__}.tar.gz",
        f"everfold-{everfold.__version__}-py3-none-any.whl",
    }
    return next(dist.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.spark
def test_the_wheel_runs_the_first_query_of_the_readme(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(*UV, "venv", "--quiet", "--python", sys.executable, venv, cwd=tmp_path)
    lock = ("--constraint", ROOT / "requirements.lock")
    run(*UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python", *lock, wheel, cwd=tmp_path)

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [query, *_] = re.findall(r"```sql\n(.*?)```", readme, re.S)
    [shown, *_] = re.findall(r"```console\n\$ everfold run [^\n]*\n(.*?)```", readme, re.S)
    (tmp_path / "first.sql").write_text(query, encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "bids" / "data", tmp_path / "data")
    assert run(venv / "bin" / "everfold", "run", "first.sql", cwd=tmp_path) == shown


def test_each_note_of_a_change_has_a_kind() -> None:
    kinds = {"state", "added", "changed", "fixed"}
    names = [note.name for note in (ROOT / "changes").iterdir() if note.name != "README.md"]
    assert not [name for name in names if not re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({'|'.join(kinds)})\.md", name)]


def test_notes_fold_into_the_changelog() -> None:
    draft = run(sys.executable, "-m", "towncrier", "build", "--draft", "--version", everfold.__version__, cwd=ROOT)
    assert f"## {everfold.__version__} (" in draft
    assert "### Added" in draft
