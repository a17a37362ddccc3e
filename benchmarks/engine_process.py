"""A running engine: its process, its requests, and the resources that its processes use."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from engine_protocol import Request

_SAMPLE_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class EngineTimeout(Exception):
    """The engine did not answer in time."""


class EngineFailure(Exception):
    """The engine's process ended."""


@dataclass(slots=True)
class Usage:
    """The resources that the processes of an engine used during a block.

    workers_private_mb: without files that are mapped into memory, which the system may drop.
    """

    cpu_seconds: float = 0.0
    driver_mb: int = 0
    workers_mb: int = 0
    workers_private_mb: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    cpu_seconds: float
    driver_mb: float
    workers_mb: float
    workers_private_mb: float


def sample_session(session: int) -> _Sample:
    """Add up the processor time and memory of all processes of a session.

    The process that started it and its JVMs are the driver; other Python processes are workers. The
    workers are copies of one process: a page that several of them share is divided among them.
    """
    cpu, driver, workers, private = 0.0, 0.0, 0.0, 0.0
    for folder in os.listdir("/proc"):
        if not folder.isdigit():
            continue
        with suppress(OSError, ValueError):
            name, fields = _read_stat(Path("/proc", folder, "stat"))
            if int(fields[3]) != session:
                continue
            # User and system time of the process and of its children that have ended.
            cpu += sum(int(each) for each in fields[11:15]) / _TICKS
            if int(folder) == session or name == "java":
                driver += int(fields[21]) * _PAGE_MB
            elif "python" in name:  # not the short-lived copies of a JVM that start a command
                own, mapped = _read_proportional_mb(Path("/proc", folder, "smaps_rollup"))
                workers += own + mapped
                private += own
    return _Sample(cpu, driver, workers, private)


def _read_proportional_mb(path: Path) -> tuple[float, float]:
    """Return the proportional set size of a process: without its mapped files, and theirs."""
    lines = (line.split() for line in path.read_text().splitlines() if line.startswith("Pss"))
    sizes = {name: int(kilobytes) / 1024 for name, kilobytes, _ in lines}
    mapped = sizes.get("Pss_File:", 0.0)
    return sizes.get("Pss:", 0.0) - mapped, mapped


def _read_stat(path: Path) -> tuple[str, list[str]]:
    """Return the name of a process and the fields after it. The name may contain spaces."""
    text = path.read_text()
    opening, closing = text.index("("), text.rindex(")")
    return text[opening + 1 : closing], text[closing + 2 :].split()


def end_cleanly_on_signals() -> None:
    """Let SIGINT and SIGTERM raise SystemExit, so that the engine and the broker are ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def run_in_own_session() -> None:
    """Run this script again as the leader of a session, unless it is one, and let signals end both
    cleanly.

    The processor time of all its processes can then be added up.
    """
    end_cleanly_on_signals()
    if os.getsid(0) != os.getpid():
        sys.exit(run_session([sys.executable, *sys.argv]))


def run_session(command: Sequence[str]) -> int:
    """Run a command as the leader of a session and return its exit code.

    A signal that ends this process ends the command first: see `end_cleanly_on_signals`.
    """
    with subprocess.Popen(command, start_new_session=True) as leader:
        try:
            return leader.wait()
        except SystemExit:
            leader.terminate()
            raise


@contextmanager
def measure_usage(session: int) -> Iterator[Usage]:
    """Sample the processes of a session during the block."""
    usage, ended = Usage(), threading.Event()

    def keep_sampling() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            sample = sample_session(session)
            usage.driver_mb = max(usage.driver_mb, round(sample.driver_mb))
            usage.workers_mb = max(usage.workers_mb, round(sample.workers_mb))
            usage.workers_private_mb = max(usage.workers_private_mb, round(sample.workers_private_mb))

    start = sample_session(session).cpu_seconds
    sampler = threading.Thread(target=keep_sampling, daemon=True)
    sampler.start()
    try:
        yield usage
    finally:
        ended.set()
        sampler.join()
        usage.cpu_seconds = round(sample_session(session).cpu_seconds - start, 2)


class EngineProcess:
    """An engine's script in a session of its own, with all processes that it starts."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log.open("a")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._replies: queue.Queue[dict[str, Any] | None] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read_replies, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Request, timeout_s: float) -> tuple[dict[str, Any], Usage]:
        """Return the reply to a request, and the resources used for it."""
        with measure_usage(self._process.pid) as usage:
            self.send(request)
            reply = self._next_reply(timeout_s)
        return reply, usage

    @property
    def session(self) -> int:
        return self._process.pid

    def send(self, request: Request) -> None:
        """Send a request that has no reply, because it runs until the process is ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(request.to_json() + "\n")
        self._process.stdin.flush()

    def wait_until_ready(self, timeout_s: float) -> None:
        self._next_reply(timeout_s)

    def require_running(self) -> None:
        """Raise EngineFailure if the process has ended."""
        if self._process.poll() is not None:
            raise EngineFailure(f"the engine ended: see {self._log.name}")

    def close(self, patience_s: float = 20) -> None:
        """End all processes of the session, at once or after some patience."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        end_session(self._process)
        self._log.close()

    def _next_reply(self, timeout_s: float) -> dict[str, Any]:
        try:
            reply = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise EngineTimeout(f"no reply after {timeout_s:.0f} s") from None
        if reply is None:
            raise EngineFailure(f"the engine ended: see {self._log.name}")
        return reply

    def _read_replies(self, stdout: IO[str]) -> None:
        """Read replies. Other lines on standard output go to the log."""
        for line in stdout:
            if line.startswith("{"):
                self._replies.put(json.loads(line))
            else:
                with suppress(ValueError):
                    self._log.write(line)
        self._replies.put(None)


def end_session(leader: subprocess.Popen[str]) -> None:
    """Kill all processes of the session that a process leads."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (left := list(_processes_of(leader.pid))):
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        leader.poll()
        time.sleep(0.1)


def _processes_of(session: int) -> Iterator[int]:
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            with suppress(OSError, ValueError):
                _, fields = _read_stat(Path("/proc", folder, "stat"))
                if int(fields[3]) == session and fields[0] != "Z":
                    yield int(folder)
