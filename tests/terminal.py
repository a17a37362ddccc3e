"""A terminal of fixed size in which a program runs: types keys, and reads the screen."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pexpect
import pyte

PATIENCE_S = 120.0
CTRL_C, CTRL_D, CTRL_R, TAB, UP = "\x03", "\x04", "\x12", "\t", "\x1b[A"


EVERFOLD = (sys.executable, "-m", "everfold")


class TerminalScreen:
    """A process in a terminal: everfold, or another program."""

    def __init__(
        self,
        folder: Path,
        cache: Path,
        *,
        columns: int = 80,
        lines: int = 24,
        arguments: Sequence[str] = (),
        program: Sequence[str] = EVERFOLD,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        environment = {
            **os.environ,
            "COLUMNS": str(columns),
            "EVERFOLD_CACHE": str(cache),
            "LINES": str(lines),
            "PAGER": "less",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm-256color",
            **(variables or {}),
        }
        self.process: Any = pexpect.spawn(
            program[0],
            [*program[1:], *arguments],
            cwd=folder,
            env=environment,
            dimensions=(lines, columns),
        )

    def read(self) -> list[str]:
        """Return the lines on the screen now."""
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            self._stream.feed(self.process.read_nonblocking(1 << 16, timeout=0.05))
        return [line.rstrip() for line in self.screen.display]

    def wait_for(self, text: str, *, absent: bool = False) -> list[str]:
        """Wait until a line of the screen contains a text, or none does."""
        deadline = time.monotonic() + PATIENCE_S
        lines = self.read()
        while any(text in line for line in lines) == absent:
            assert time.monotonic() < deadline, "\n".join(lines)
            lines = self.read()
        return lines

    def close(self) -> None:
        """Kill the process and its children, and wait for its end, which an overloaded machine delays."""
        if self.process.isalive():  # else its number can belong to another process
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.close()

    def type(self, keys: str) -> None:
        """Type keys."""
        self.process.send(keys)
