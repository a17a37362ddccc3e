"""Ctrl-C and SIGTERM while a command runs jobs in the foreground."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from everfold.cli.endless_jobs import EndlessJobs
from everfold.cli.progress import ProgressView
from everfold.errors import EXIT_INTERRUPTED
from everfold.jobs.open_runs import stop_open_runs
from everfold.jobs.stop_signals import StopSignals


@contextmanager
def listen_for_stop(
    progress: ProgressView, timeout_s: float, endless: EndlessJobs | None = None
) -> Iterator[StopSignals]:
    """Let Ctrl-C and SIGTERM stop the job in the block, and those in its background.

    Stopping at once ends this process as if it were killed; the job can resume from its last batch.
    """
    stderr = os.dup(2)

    def announce() -> None:
        if endless is not None:
            endless.is_stopping = True
        with progress.hidden():
            click.echo(
                f"stopping after the running batch, in at most {timeout_s:g} s; Ctrl-C again stops at once", err=True
            )

    def exit_now() -> None:
        os.dup2(stderr, 2)  # while Spark starts, stderr is redirected to its log
        stop_open_runs()
        with suppress(Exception):  # the signal may have interrupted the printing of progress
            progress.close()
            sys.stdout.flush()
        os.write(2, b"stopped\n")
        os._exit(EXIT_INTERRUPTED)

    numbers = signal.SIGINT, signal.SIGTERM
    # A job that starts can be ended at once, unless others run.
    is_first = endless is None or not endless.are_running
    with StopSignals(*numbers, announce=announce, stop_at_once=exit_now, ends_start=is_first) as stop:
        try:
            yield stop
        finally:
            os.close(stderr)
