"""The start-up code of workers in a user's JVM, without Spark: which module may print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import everfold.spark

START = Path(everfold.spark.__file__).parent / "worker_start"
DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"


def run_module(name: str, folder: Path, start: Path) -> str:
    """Write a module that prints, run it as Spark runs its workers, and return what it prints."""
    file = folder.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    for package in file.relative_to(folder).parents[:-1]:
        (folder / package / "__init__.py").touch()
    file.write_text("print('a line')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (start, folder)))}
    command = [sys.executable, "-m", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(("name", "printed"), [(DRIVER_WORKER, ""), ("pyspark.daemon", "a line\n")])
def test_only_the_worker_of_the_driver_is_silent(name: str, printed: str, tmp_path: Path) -> None:
    assert run_module(name, tmp_path, START) == printed


def test_the_start_up_code_of_the_user_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('of the user')\n")
    assert run_module("worker", tmp_path, START) == "of the user\na line\n"
    assert run_module("worker", tmp_path, tmp_path) == "of the user\na line\n"
