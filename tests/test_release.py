"""The release: a wheel that runs in a fresh environment, with and without Spark, and release notes
that fold into the changelog.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from walk import walk

import everfold

ROOT = Path(__file__).parents[1]
UV = (sys.executable, "-m", "uv")


def outside() -> dict[str, str]:
    """Return the variables of a process outside of this environment."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command, which must succeed, outside of this environment; return its output."""
    done = subprocess.run([*map(str, command)], cwd=cwd, env=outside(), capture_output=True, text=True, timeout=600)
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


def install(wheel: Path, venv: Path) -> Path:
    """Install the wheel in a new environment; return the folder of its programs."""
    run(*UV, "venv", "--quiet", "--python", sys.executable, venv, cwd=venv.parent)
    lock = ("--constraint", ROOT / "requirements.lock")
    run(*UV, "pip", "install", "--quiet", "--python", venv / "bin" / "python", *lock, wheel, cwd=venv.parent)
    return venv / "bin"


@pytest.fixture(scope="module")
def without_spark(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without extras."""
    return install(wheel, tmp_path_factory.mktemp("plain") / "venv")


def read_first_query() -> tuple[str, str]:
    """Return the query of the README, and its output."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [query, *_] = re.findall(r"```sql\n(.*?)```", readme, re.S)
    [shown] = re.findall(r"```console\n\$ everfold run examples[^\n]*\n(.*?)```", readme, re.S)
    return query, shown


@pytest.mark.slow
def test_the_wheel_works_without_spark(without_spark: Path, tmp_path: Path) -> None:
    everfold = without_spark / "everfold"
    assert not list(without_spark.parent.glob("lib/*/site-packages/pyspark"))
    query, shown = read_first_query()
    (tmp_path / "first.sql").write_text(query, encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "bids" / "data", tmp_path / "data")
    assert run(everfold, "run", "first.sql", "--engine", "memory", cwd=tmp_path) == shown
    assert "WindowAggregate" in run(everfold, "explain", "first.sql", cwd=tmp_path)
    assert run(everfold, "check", "first.sql", "first.sql", cwd=tmp_path).startswith("The change is fully compatible.")
    assert run(everfold, "test", ROOT / "tests" / "cases" / "window" / "hop.case.yaml", cwd=tmp_path)
    (tmp_path / "points.sql").write_text(
        "SET defaults.topic.properties.bootstrap.servers = 'localhost:9092';\n"
        "CREATE TABLE points (_key STRING, n INT, country STRING) FORMAT (STRING, JSON);\n"
        "SELECT STREAM SUM(n) AS total FROM points GROUP BY country;\n"
    )
    assert "SUM(`n`)" in run(everfold, "translate", "--from", "lenses", "--to", "flink", "points.sql", cwd=tmp_path)
    run(everfold, "init", "shop", "--template", "kafka", cwd=tmp_path)
    assert run(everfold, "test", "shop/tests", cwd=tmp_path) == "1 passed, 0 failed\n"
    refused = subprocess.run(
        [everfold, "run", "first.sql"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=outside()
    )
    assert refused.returncode == 2
    assert "error[engine-missing]" in refused.stderr
    assert "pip install 'everfold[spark]'" in refused.stderr
    setup = subprocess.run([everfold, "check-setup"], capture_output=True, text=True, timeout=120, env=outside())
    assert "missing  pyspark: pip install 'everfold[spark]'" in setup.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_a_fresh_environment_follows_the_tutorial(wheel: Path, tmp_path: Path) -> None:
    """Type what is on the page, with the installed packages from the lock file; then run the
    README's query on Spark.
    """
    folder = tmp_path / "empty"
    folder.mkdir()
    uv = shlex.join(UV)

    def rewrite(command: str) -> str:
        """Install the wheel instead of a release. Java is installed already.

        `python -m uv` would install into the environment of the tests without `--python`.
        """
        lines = [line for line in command.splitlines() if not line.startswith("apt-get")]
        text = "\n".join(lines).replace("python3 -m venv .venv", f"{uv} venv --quiet --python '{sys.executable}' .venv")
        constraint = f"--constraint '{ROOT / 'requirements.lock'}'"
        return re.sub(
            r'pip install "?everfold(\[\w+\])?"?',
            lambda found: f"{uv} pip install --python .venv/bin/python {constraint} '{wheel}{found[1] or ''}'",
            text,
        )

    walk(ROOT / "docs" / "tutorial.md", folder, rewrite=rewrite, environment=outside())

    query, shown = read_first_query()
    (tmp_path / "first.sql").write_text(query, encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "bids" / "data", tmp_path / "data")
    assert run(folder / ".venv" / "bin" / "everfold", "run", "first.sql", cwd=tmp_path) == shown


def test_each_note_of_a_change_has_a_kind() -> None:
    kinds = {"state", "added", "changed", "fixed"}
    names = [note.name for note in (ROOT / "changes").iterdir() if note.name != "README.md"]
    assert not [name for name in names if not re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({'|'.join(kinds)})\.md", name)]


def test_notes_fold_into_the_changelog() -> None:
    draft = run(sys.executable, "-m", "towncrier", "build", "--draft", "--version", everfold.__version__, cwd=ROOT)
    assert f"## {everfold.__version__} (" in draft
    assert "### Added" in draft
