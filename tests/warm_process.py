"""A process that runs commands of everfold one after the other, so that only the first starts a JVM.

As a program: reads commands from standard input, and writes what `WarmProcess` returns.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

CRASHED = 99
"""The exit code of a command that ends with a traceback."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


class WarmProcess:
    """The process, which runs until the end of the block."""

    def __enter__(self) -> WarmProcess:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "warm_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        return self

    def __exit__(self, *of: object) -> None:
        self._process.communicate()

    def run(self, arguments: Sequence[str]) -> Done:
        """Run a command to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(arguments)) + "\n")
        self._process.stdin.flush()
        return Done(*json.loads(self._process.stdout.readline()))


@pytest.fixture
def warm_process() -> Iterator[WarmProcess]:
    """A process of its own for a test."""
    with WarmProcess() as process:
        yield process


def run_command(arguments: Sequence[str]) -> Done:
    """Run a command of everfold in this process."""
    from everfold.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["everfold", *arguments]
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            code = CRASHED
            traceback.print_exc()
    return Done(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())


if __name__ == "__main__":
    for line in sys.stdin:
        done = run_command(json.loads(line))
        print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
