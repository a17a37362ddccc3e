"""Style and types are checked as tests, so that one test summary covers everything."""

from __future__ import annotations

import re
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


BANNED = {
    r"\banew\b": "again, from scratch",
    r"\bbeside\b": "next to, with, in addition to",
    r"\b(?:go|goes|going|went|gone) on\b": "resume, continue",
    r"\bgiven again\b|\bgives? (?:\w+ ){0,3}again\b": "re-emit",
    r"\b(?:take|takes|taken|taking|took) (?:\w+ ){0,2}back\b": "retract",
    r"\b(?:comes?|came) again\b": "replayed rows",
    r"\btold\b|\bsaid\b": "specified, reported",
    r"\bof (?:no )?use to\b": "reusable",
    r"\bways? out\b": "options",
    r"\bwhoever\b": "the reader, the caller, any …",
    r"\bfor ever\b": "for the lifetime of, forever",
    r"\b(?:hang|hangs|hung) on\b": "depends on",
    r"\bby the same command\b": "with the same command",
    r"\bas Flink (?:says|has it)\b": "as in Flink",
    r"\b(?:give|gives|given|gave|giving) up\b": "discard",
    r"\bas far as it\b": "if, the part that",
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b)\w+": "is not a",
}
"""Words of a translation, and what to write (see CONTRIBUTING.md)."""
BESIDE = ("changes-beside-changes", '"beside"', "beside/ ")
"""Names that job directories and users know: an error code and a folder."""
WRITTEN = ("src/**/*.py", "docs/**/*.md", "docs/*.py", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile")


def test_words_are_plain() -> None:
    found = []
    for file in sorted({file for pattern in WRITTEN for file in ROOT.glob(pattern)}):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for word, instead in BANNED.items():
                match = re.search(word, line, re.IGNORECASE)
                if match and not ("beside" in word and any(name in line for name in BESIDE)):
                    found.append(f"{file.relative_to(ROOT)}:{number}: `{match[0]}`: write {instead}")
    assert not found, "\n".join(found)


SMALL = {
    "aggregates/lazy.py": "every kernel imports it, and it must not import an engine",
}
"""Modules of less than 25 lines, and why they stand alone."""


def test_modules_are_not_tiny() -> None:
    source = ROOT / "src" / "everfold"
    small = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if not file.name.startswith("__") and len(file.read_text(encoding="utf-8").splitlines()) < 25
    }
    assert small == SMALL.keys()


def test_operators_evaluate_expressions_in_the_thread_of_the_caller() -> None:
    """`select` and `with_columns` wait for Polars' thread pool, even if a worker has one thread
    (docs/design/small-batches.md).
    """
    found = [
        f"{file.relative_to(ROOT)}:{number}: write {match[1]}_seq"
        for folder in ("aggregates", "operators", "state")
        for file in sorted((ROOT / "src" / "everfold" / folder).rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (match := re.search(r"\.(select|with_columns)\(", line))
    ]
    assert not found, "\n".join(found)
