"""`everfold run` as a user has it, within the process of the tests and on their session: a run without the start of a JVM."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from everfold import jobs
from everfold.cli.main import main
from everfold.jobs.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS = re.compile(r"(\d\d:\d\d:\d\d )?batch \d")
NEVER_SHOWN = ("Traceback", "java.", "org.apache", "SQLSTATE", "internal error", "\x1b")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def first(self) -> str:
        """The first line that is no progress."""
        return next((line for line in self.err.splitlines() if not _PROGRESS.match(line)), "")


Run = Callable[..., Done]
"""Runs `job.sql` of the current folder, or another command, with more arguments."""


def runner(
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Sequence[str] = ("run", "job.sql"),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Run:
    """What runs the command; no trace of Java's or Python's may come out of it. conf: what the command starts Spark with."""
    monkeypatch.setitem(jobs._ENGINES, (None, tuple(conf.items())), Engine(session=session))

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["everfold", *command, *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        assert isinstance(code, int)
        assert not [each for each in NEVER_SHOWN if each in said.out + said.err], said.err
        return Done(code, said.out, said.err)

    return run
