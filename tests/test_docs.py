"""The documentation is correct.

Its SQL binds, its case files pass, its console blocks show the actual output, and its links
resolve.

The info string of a code block decides what is checked: `sql` is bound (the blocks of a page share
a session), `yaml case` runs as a case file, `yaml` is parsed, `python run` is executed (the blocks
of a page share their names), `python` is compiled, and `console` runs its `everfold` commands in
memory and compares their output with the lines below them. `sh` is parsed by the shell; with the
name of a cluster, tests/cluster/test_recipes.py runs it there.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from pages import ROOT, Block, blocks

from everfold.cli.main import everfold
from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session
from everfold.testing.casefile import loads
from everfold.testing.engines import MemoryEngine
from everfold.testing.runner import run_file

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)")
SHELL = ("sh", "sh standalone", "sh standalone local", "sh yarn")
_KNOWN = {"", "sql", "yaml case", "yaml", "console", "text", "python", "python run", "json", *SHELL}


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(info: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [each for each in BLOCKS if each.info == info], ids=lambda block: block.id)


def test_every_block_has_a_known_info_string() -> None:
    assert [block.id for block in BLOCKS if block.info not in _KNOWN] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    targets = [found["target"] for found in _LINK.finditer(page.read_text(encoding="utf-8"))]
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_the_reference_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    stale = [
        page for page in reference.PAGES if (ROOT / "docs" / page).read_text(encoding="utf-8") != reference.text(page)
    ]
    assert stale == [], "run: make docs"


@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.info == "sql"}), ids=lambda page: page.name
)
def test_sql_binds(page: Path) -> None:
    session = Session(connected=apply_connector, folder=ROOT / "examples" / "functions")
    for block in blocks(page):
        if block.info == "sql":
            list(session.run("\n" * block.line + block.text, source=str(page)))


def test_the_first_example_is_in_the_file_that_it_runs() -> None:
    sql = next(block for block in blocks(ROOT / "README.md") if block.info == "sql")
    assert sql.text in (ROOT / "examples" / "bids" / "tumble.sql").read_text(encoding="utf-8")


@of("yaml case")
def test_case_files_pass(block: Block) -> None:
    outcomes = list(run_file(loads(block.text, Path(block.id)), [MemoryEngine()]))
    assert outcomes
    assert [outcome.message for outcome in outcomes if not outcome.passed] == []


@of("yaml")
def test_yaml_is_yaml(block: Block) -> None:
    assert yaml.safe_load(block.text)


@of("python")
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.id, "exec")


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.info in SHELL], ids=lambda block: block.id)
def test_shell_parses(block: Block) -> None:
    assert subprocess.run(["sh", "-n"], input=block.text, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.info == "python run"}), ids=lambda page: page.name
)
def test_python_runs(page: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.info == "python run":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


def test_the_functions_shown_are_in_the_example_files() -> None:
    shown = [block.text for block in blocks(ROOT / "docs" / "python-functions.md")]
    for block, file in zip(shown, ("shop.py", "orders.sql"), strict=False):
        assert block in (ROOT / "examples" / "functions" / file).read_text(encoding="utf-8")


@of("console")
def test_commands_print_the_output_shown(block: Block) -> None:
    for command, shown in _commands(block.text):
        program, *arguments = shlex.split(command, comments=True)
        if program == "make":
            recipes = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
            assert {each for each in arguments if "=" not in each} <= set(recipes)
        elif program == "everfold" and shown:
            memory = ["--engine", "memory"] if arguments[0] == "run" else []
            done = subprocess.run(
                [sys.executable, "-m", "everfold", *arguments, *memory],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.stdout + done.stderr == shown
        elif program == "everfold":
            _check_arguments(arguments)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def _check_arguments(arguments: list[str]) -> None:
    """Raise if the command line does not know a command or option."""
    name, *rest = arguments
    if name.startswith("-"):
        return
    command = everfold.commands[name]
    assert isinstance(command, click.Command)
    command.make_context(name, rest)
