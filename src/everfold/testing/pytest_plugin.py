"""The pytest plugin: each `*.case.yaml` is a test file, each case a test for every engine and mode.

`--everfold-engine memory|spark|all` selects the engines; the default is memory. The plugin is
loaded in every pytest run of an environment that has everfold, so it imports nothing heavy before
there is a case to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from everfold.testing.casefile import Case, Mode
    from everfold.testing.engines import Engine, EngineName

_SUFFIX = ".case.yaml"


class CaseFailure(Exception):
    """A case whose result is not as expected; its message is shown without a traceback."""


class CaseItem(pytest.Item):
    """One case on one engine in one mode."""

    def __init__(self, *, case: Case, engine: EngineName, mode: Mode, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case, self.engine, self.mode = case, engine, mode
        if engine == "spark":
            self.add_marker("spark")

    def runtest(self) -> None:
        """Run the case."""
        from everfold.testing.runner import run

        outcome = run(self.case, _engine(self.config, self.engine), self.mode)
        if not outcome.passed:
            raise CaseFailure(outcome.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the difference, without a Python traceback."""
        if isinstance(excinfo.value, CaseFailure):
            return f"{self.path}:{self.case.line}: {self.case.name}\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location of the case."""
        return self.path, self.case.line - 1, f"case: {self.name}"


class CaseFileCollector(pytest.File):
    """A case file."""

    def collect(self) -> Iterator[CaseItem]:
        """Yield the cases, once for each engine and mode.

        With `--everfold-scan=catalyst`, Spark runs only the cases that depend on this option.
        """
        from everfold.testing.casefile import load

        file = load(self.path)
        for case in file.cases:
            for engine in _engines(self.config):
                for mode in case.modes:
                    if engine == "spark" and not _is_selected(case, mode, self.config):
                        continue
                    name = f"{case.name} [{engine}-{mode}]"
                    item: CaseItem = CaseItem.from_parent(self, name=name, case=case, engine=engine, mode=mode)
                    yield item

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """Return an error in the file, without a Python traceback."""
        from everfold.errors import EverfoldError

        return str(excinfo.value) if isinstance(excinfo.value, EverfoldError) else super().repr_failure(excinfo)


def _is_selected(case: Case, mode: Mode, config: pytest.Config) -> bool:
    """Return whether a case runs on Spark: always, or only if it depends on the option."""
    if config.getoption("everfold_scan") == "auto":
        return True
    from everfold.testing.runner import uses_worker_scan

    return mode == "stream" and uses_worker_scan(case)


def _engines(config: pytest.Config) -> tuple[EngineName, ...]:
    from everfold.testing.engines import ENGINES

    chosen = config.getoption("everfold_engine")
    return ENGINES if chosen == "all" else (chosen,)


_ENGINES: pytest.StashKey[dict[str, Engine]] = pytest.StashKey()


def _engine(config: pytest.Config, name: EngineName) -> Engine:
    """Return the engine of the run, created when its first case runs."""
    from everfold.testing.engines import create_engine

    created = config.stash.setdefault(_ENGINES, {})
    if name not in created:
        created[name] = create_engine(name, config.getoption("everfold_scan"))
    return created[name]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--everfold-engine` and `--everfold-scan`."""
    group = parser.getgroup("everfold")
    group.addoption(
        "--everfold-scan",
        choices=("auto", "catalyst"),
        default="auto",
        help="which part of Spark decodes the rows of cases, as the option everfold.scan (default: auto)",
    )
    group.addoption(
        "--everfold-engine",
        choices=("memory", "spark", "all"),
        default="memory",
        help="engine that runs *.case.yaml files (default: memory)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of cases on Spark."""
    config.addinivalue_line("markers", "spark: needs Java; shares one Spark session")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFileCollector | None:
    """Collect case files."""
    if not file_path.name.endswith(_SUFFIX):
        return None
    collector: CaseFileCollector = CaseFileCollector.from_parent(parent, path=file_path)
    return collector


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the engines."""
    for engine in config.stash.get(_ENGINES, {}).values():
        engine.close()
