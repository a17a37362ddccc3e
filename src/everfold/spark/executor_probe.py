"""Look at an executor from a task: its versions, and the paths that it shares with the driver.

Executors may lack what everfold needs, so this module imports only the standard library at first.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

PREFIX = ".executor-check-"
"""Of the names of files that the check creates and removes."""
_LIBRARIES = {"Polars": "polars", "pyarrow": "pyarrow", "DuckDB": "duckdb", "NumPy": "numpy", "everfold": "everfold"}
HOLD_S = 0.3
"""How long a task keeps its core, so that other tasks run on other executors."""


@dataclass(frozen=True, slots=True)
class SharedPath:
    """An absolute path that executors use. what: for messages. is_written: they write to it."""

    path: Path
    what: str
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a task found on its executor.

    versions: as of `find_versions`. wrong: for each path that cannot be used, its number and the
    reason.
    """

    stage: int
    task: int
    versions: Mapping[str, str]
    wrong: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file that every executor must see. name: relative to its path, empty for the path."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class ExecutorProbe:
    """The task. token: in the names of its files. paths: None for an empty folder."""

    token: str
    paths: tuple[tuple[SharedPath, ExpectedFile | None], ...]

    def __call__(self, _partition: Iterable[int]) -> Iterator[Report]:
        """Yield the report of this executor."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.taskAttemptId()
        wrong = []
        for number, (shared, expected) in enumerate(self.paths):
            try:
                self._use(shared, expected, task)
            except OSError as error:
                wrong.append((number, error.strerror or str(error)))
        time.sleep(HOLD_S)
        yield Report(context.stageId(), task, find_versions(), tuple(wrong))

    def _use(self, shared: SharedPath, expected: ExpectedFile | None, task: int) -> None:
        """Read a path, and only if it is the driver's, write to it. Raises OSError."""
        os.stat(shared.path)
        if expected is not None:
            with open(shared.path / expected.name, "rb") as file:
                if os.fstat(file.fileno()).st_size != expected.size:
                    raise OSError(f"`{expected.name}` differs")
        if shared.is_written:
            with open(self.written_file(shared, task), "x", encoding="utf-8") as file:
                file.write(self.token)
                file.flush()
                os.fsync(file.fileno())

    def written_file(self, shared: SharedPath, task: int) -> Path:
        """Return the file that a task writes to a path."""
        return shared.path / f"{PREFIX}{self.token}-{task}"


def find_versions() -> dict[str, str]:
    """Return the versions of Python, everfold and the libraries that compute results here.

    A library that cannot be imported has the version `none`.
    """
    found = {"Python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for title, name in _LIBRARIES.items():
        try:
            found[title] = str(importlib.import_module(name).__version__)
        except ImportError:
            found[title] = "none"
    found["everfold"] += f" ({_digest_package()})"
    return found


def _digest_package() -> str:
    """Return a digest of this package's modules, which may be in a zip file."""
    digest = hashlib.sha256()
    for name, content in sorted(_read_modules(files("everfold"), "")):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:8]


def _read_modules(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read_modules(each, f"{prefix}{each.name}/")
        elif each.name.endswith(".py"):
            yield prefix + each.name, each.read_bytes()
