"""One Flink for all questions, and a summary of how the answers compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
from flink.process import Flink
from flink.settings import COUNT, ENGINE, SEED

from everfold.testing.engines import Engine, EngineName, create_engine


@pytest.fixture(scope="session")
def flink() -> Iterator[Flink]:
    """Run Flink; the first use on a machine downloads it."""
    with Flink() as running:
        yield running


@pytest.fixture(scope="module")
def ours() -> Iterator[Engine]:
    """Return the engine of `settings`."""
    assert ENGINE in get_args(EngineName)
    engine = create_engine("spark" if ENGINE == "spark" else "memory")
    yield engine
    engine.close()


def pytest_report_header() -> str:
    return f"Flink: questions 0 to {COUNT - 1} of seed {SEED}, engine {ENGINE}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many answers agree, how many differ on purpose, and why."""
    reports = [each for status in ("passed", "failed") for each in terminalreporter.stats.get(status, [])]
    counts = Counter(value for each in reports for name, value in each.user_properties if name == "flink")
    if counts:
        terminalreporter.section(f"Flink and everfold, seed {SEED}")
        for kind, count in counts.most_common():
            terminalreporter.write_line(f"{count:6} {kind}")
