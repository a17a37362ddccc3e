"""Ctrl-C and SIGTERM stop at once before the first batch, and after the running batch later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys
from everfold.cli.progress import show_activities
from everfold.cli.stop_listener import listen_for_stop

with show_activities() as view, listen_for_stop(view, 90) as stop:
    if sys.argv[1] == "running":
        stop.should_stop()
    else:  # standard error is Spark's log while Spark starts
        os.dup2(os.open("log", os.O_WRONLY | os.O_CREAT), 2)
    os.kill(os.getpid(), signal.SIGTERM)
    print(stop.should_stop(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
"""
FIRST = "stopping after the running batch, in at most 90 s; Ctrl-C again stops at once\n"


def run(stage: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, stage], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_first_signal_ends_a_job_that_has_not_started(tmp_path: Path) -> None:
    assert run("starting", tmp_path) == (130, "", "stopped\n")
    assert (tmp_path / "log").read_text() == ""


def test_the_first_signal_lets_the_running_batch_finish(tmp_path: Path) -> None:
    assert run("running", tmp_path) == (130, "True\n", FIRST + "stopped\n")
