"""Run `everfold run` as a user does, inside the test process and on its session, without
starting a JVM.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from everfold import jobs
from everfold.cli.main import main
from everfold.connectors.registry import apply_connector
from everfold.jobs.engine import Engine
from everfold.jobs.spec import JobSpec
from everfold.sql.planner import Session, Submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROGRESS = re.compile(r"^\d\d:\d\d:\d\d .*\n", re.MULTILINE)
"""Lines about what the command does; which ones there are depends on the speed of the machine."""
NEVER_SHOWN = ("Traceback", "java.", "org.apache", "SQLSTATE", "internal error", "\x1b")


@dataclass(frozen=True)
class Done:
    """The result of a command. err: what it has printed to standard error, without progress."""

    code: int
    out: str
    err: str

    @property
    def first(self) -> str:
        """Return the first line of the messages."""
        return next(iter(self.err.splitlines()), "")


Run = Callable[..., Done]
"""Run `job.sql` of the current folder, or another command, with additional arguments."""


def run_script(
    session: SparkSession, script: str, options: Mapping[str, str], folder: Path, state_dir: Path
) -> list[pa.Table]:
    """Run the last statement of a script as a job, and return the tables that it emits.

    folder: where relative paths of the script start.
    """
    *_, submit = Session(dict(options), connected=apply_connector).run(script)
    assert isinstance(submit, Submit)
    received: list[pa.Table] = []
    spec = JobSpec(
        roots=submit.roots,
        settings=submit.settings,
        base_folder=folder,
        state_dir=state_dir,
        receive=received.append,
    )
    Engine(session=session).run(spec)
    return received


def runner(
    session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Sequence[str] = ("run", "job.sql"),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Run:
    """Return a function that runs the command and checks that no Java or Python trace is
    printed. conf: the configuration with which the command starts Spark.
    """
    monkeypatch.setitem(jobs._ENGINES, (None, tuple(conf.items())), Engine(session=session))

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["everfold", *command, *arguments])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        assert not [each for each in NEVER_SHOWN if each in printed.out + printed.err], printed.err
        return Done(code, printed.out, _PROGRESS.sub("", printed.err))

    return run
