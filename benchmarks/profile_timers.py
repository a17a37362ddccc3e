"""Timers around the parts of everfold's functions in Spark's Python workers.

This module is the workers' daemon for `profile_batch.py`: it loads everfold's daemon, wraps the
functions, and writes a line for each call to a file of the process. A timer does not count the time
of the timers within it, so times add up.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everfold import operators

FOLDER = "EVERFOLD_PROFILE_FOLDER"
STAGES = {
    "receive": ("everfold.spark.task_input", "combine_batches"),
    "decode": ("everfold.connectors.filesystem.worker_files", "FileReader.read"),
    "compute": ("everfold.spark.worker_scan", "ScanQuery.compute"),
    "hash": ("everfold.spark.worker_scan", "add_hashes"),
    "pack": ("everfold.spark.exchange", "Pack.__call__"),
    "unpack": ("everfold.spark.tail", "Unpack.__call__"),
    "deliver": ("everfold.spark.delivery", "TaskDelivery.deliver"),
    "process": ("everfold.spark.processor", "BucketProcessor.handleInputRows"),
    "state read": ("everfold.spark.processor", "MapStateStore.get"),
    "state write": ("everfold.spark.processor", "MapStateStore.put"),
    "state delete": ("everfold.spark.processor", "MapStateStore.delete"),
}
"""The wrapped functions. `prepare` and `step` of all operators are wrapped as well."""
OPERATOR_STAGES = ("prepare", "step")


class Timers:
    """The running timers of a process, each with the time of the timers within it."""

    def __init__(self) -> None:
        self._inner: list[tuple[float, float]] = []
        self._file = -1

    def measure(self, stage: str, call: Callable[[], Any]) -> Any:
        """Call a function and record its wall and processor time."""
        self._inner.append((0.0, 0.0))
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return call()
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            inner_wall, inner_cpu = self._inner.pop()
            if self._inner:
                outer_wall, outer_cpu = self._inner[-1]
                self._inner[-1] = (outer_wall + wall, outer_cpu + cpu)
            self._write([stage, wall - inner_wall, cpu - inner_cpu])

    def _write(self, line: list[Any]) -> None:
        if self._file < 0:  # opened in the worker, after the fork
            path = Path(os.environ[FOLDER], f"{os.getpid()}.jsonl")
            self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.write(self._file, (json.dumps(line) + "\n").encode())


TIMERS = Timers()


def wrap(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a timer; of a generator, each step is timed.

    Waiting for the next element of an argument belongs to the stage `receive`.
    """

    @functools.wraps(function)
    def timed(*args: Any, **options: Any) -> Any:
        timed_args = [_time_steps("receive", each) if isinstance(each, Iterator) else each for each in args]
        result = TIMERS.measure(stage, lambda: function(*timed_args, **options))
        return _time_steps(stage, result) if isinstance(result, Iterator) else result

    return timed


def _time_steps(stage: str, steps: Iterator[Any]) -> Iterator[Any]:
    end = object()
    while (value := TIMERS.measure(stage, lambda: next(steps, end))) is not end:
        yield value


def install() -> None:
    """Wrap the functions. One that does not exist anymore is reported and left out."""
    for stage, (module, path) in STAGES.items():
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for each in outer:
            owner = getattr(owner, each, None)
        if getattr(owner, name, None) is None:
            sys.stderr.write(f"profile: {module}.{path} does not exist\n")
            continue
        setattr(owner, name, wrap(stage, getattr(owner, name)))
    for found in pkgutil.iter_modules(operators.__path__, "everfold.operators."):
        for owner in list(vars(importlib.import_module(found.name)).values()):
            if isinstance(owner, type) and owner.__module__ == found.name and not getattr(owner, "_is_protocol", False):
                for stage in OPERATOR_STAGES:
                    if stage in vars(owner):
                        setattr(owner, stage, wrap(stage, vars(owner)[stage]))


if __name__ == "__main__":
    import profile_timers
    from pyspark.daemon import manager

    import everfold.spark.daemon  # noqa: F401

    profile_timers.install()
    manager()
