"""Style and types are checked as tests, so that one test summary covers everything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--quiet", "."),
        ("ruff", "format", "--check", "--quiet", "."),
        ("mypy", "--no-error-summary"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_tool_finds_nothing(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_lists_its_recipes() -> None:
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    recipes = {line.split()[1] for line in done.stdout.splitlines()}
    assert {"setup", "demo", "test", "test-all", "bench", "clean"} <= recipes


def test_the_lock_file_names_no_registry() -> None:
    """The lock file pins versions and hashes; each machine configures its own registry."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "--hash=sha256:" in lock


def test_the_public_api_is_pinned() -> None:
    import everfold

    assert everfold.__all__ == ["TableEnvironment", "__version__"]
