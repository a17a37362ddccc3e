"""Run a job that is broken at a given call of a given function, and run it again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from jvm import SHORT_LIVED_DRIVER, conf_options

HOOKS = Path(__file__).parent / "hooks"


@dataclass(frozen=True)
class Fault:
    """Where a job is broken: before or after the n-th call of a function (`module:function`).

    Calls are counted over all processes.
    """

    function: str
    when: str
    call: int = 1
    action: str = "kill"


class Plan:
    """The fault of the processes of a folder: see `hooks/sitecustomize.py`."""

    def __init__(self, folder: Path, *functions: str) -> None:
        self._file = folder / "fault"
        self._functions = functions

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a process in which the functions can be broken."""
        path = os.pathsep.join(filter(None, [str(HOOKS), os.environ.get("PYTHONPATH")]))
        at = {"EVERFOLD_FAULT_AT": " ".join(self._functions), "EVERFOLD_FAULT_PLAN": str(self._file)}
        return {**os.environ, "PYTHONPATH": path, **at}

    def set(self, fault: Fault) -> None:
        """Break the next process at this fault."""
        self.clear()
        self._file.write_text(f"{fault.function} {fault.when} {fault.call} {fault.action}")

    def clear(self) -> None:
        """Break nothing."""
        for suffix in ("", ".calls", ".done", ".go"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)

    def release(self) -> None:
        """Let a process that is held continue."""
        Path(f"{self._file}.go").touch()

    def wait(self, timeout_s: float, job: subprocess.Popen[str]) -> int:
        """Wait until the fault has happened. Return the process in which it has."""
        deadline = time.monotonic() + timeout_s
        done = Path(f"{self._file}.done")
        while not (done.exists() and done.read_text()):
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline, "the fault has not happened"
            time.sleep(0.05)
        return int(done.read_text())

    @property
    def is_done(self) -> bool:
        """Return whether the fault has happened."""
        return Path(f"{self._file}.done").exists()


def start_job(folder: Path, plan: Plan, *options: str) -> subprocess.Popen[bytes]:
    """Start `everfold run job.sql` in a new process group. Its output is appended to `log.txt`."""
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "state", *options]
    command += conf_options(SHORT_LIVED_DRIVER)
    with (folder / "log.txt").open("ab") as out:
        return subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, start_new_session=True, env=plan.environment
        )
