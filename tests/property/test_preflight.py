"""`everfold check` and `everfold run` refuse the same scripts, with the same errors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from property.scripts import ENVIRONMENT, Generated, Generator

from everfold.cli.main import everfold
from everfold.errors import EverfoldError

STARTS = "starts"
VERDICTS = (0, 3, 4, 5)
SHOP = """
from everfold.udf import udf

@udf(result_type="INT", input_types=["INT"])
def twice(x):
    return None if x is None else 2 * x
"""


class EngineStartsError(Exception):
    """An engine would start now."""


def start_no_engine(*_: object, **__: object) -> Any:
    """Stand in for the start of an engine: this is where the checks of `everfold run` end."""
    raise EngineStartsError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of Python functions. No engine starts."""
    (tmp_path / "shop.py").write_text(SHOP)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("EVERFOLD_TEST_MISSING", raising=False)
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("everfold.jobs.engine.start_spark", start_no_engine)
    monkeypatch.setattr("everfold.cli.memory_jobs.MemoryEngine.run", start_no_engine)
    return tmp_path


@dataclass(frozen=True)
class Answer:
    """What a command says about a script: the code of its first error or STARTS, and its errors."""

    code: str
    errors: tuple[str, ...] = ()
    exit_code: int = 0


def ask(script: Generated, *arguments: str) -> Answer:
    """Return the answer of a command."""
    result = CliRunner().invoke(everfold, [*arguments, *script.options])
    match result.exception:
        case EngineStartsError():
            return Answer(STARTS)
        case EverfoldError() as error:
            return Answer(error.code, tuple(each.render() for each in error.diagnostics), error.exit_code)
        case None | SystemExit():
            assert result.exit_code in VERDICTS, result.output
            return Answer(STARTS)
    raise AssertionError(f"{script}\n{result.output}") from result.exception


def compare(script: Generated, folder: Path, number: int) -> str:
    """Ask both commands about a script, and return the code of the answer."""
    file = folder / f"script{number}.sql"
    file.write_text(script.text)
    ran, checked = ask(script, "run", str(file)), ask(script, "check", str(file), str(file))
    assert checked == ran, script
    return ran.code


def test_check_and_run_refuse_the_same_scripts(project: Path) -> None:
    compare_many(project, seed=1, count=400)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_check_and_run_refuse_the_same_scripts_of_other_seeds(seed: int, project: Path) -> None:
    compare_many(project, seed=seed, count=1000)


def compare_many(folder: Path, *, seed: int, count: int) -> None:
    generator = Generator(Random(seed))
    codes = Counter(compare(generator.make(), folder, number) for number in range(count))
    assert codes[STARTS] > count // 5, codes
    assert len(codes) > 25, codes
