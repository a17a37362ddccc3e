"""Sample the memory, open files and threads of a job and its child processes from /proc."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_HEAP_SAMPLES, _HEAP_EVERY_S = 6, 1.5


@dataclass(frozen=True)
class Sample:
    """Seconds since the start; megabytes (shared pages count once); open files; threads."""

    at_s: float
    memory_mb: float
    open_files: int
    threads: int


@dataclass
class Sampler:
    """Sample a process tree every `every_s` seconds until the process ends, or until `stop`."""

    pid: int
    every_s: float = 1.0
    samples: list[Sample] = field(default_factory=list)

    def __enter__(self) -> Sampler:
        self._started, self._ended = time.monotonic(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def peak_mb(self) -> float:
        """Return the peak memory in megabytes."""
        return max(sample.memory_mb for sample in self.samples)

    def _run(self) -> None:
        while not self._ended.wait(self.every_s):
            pids = find_process_tree(self.pid)
            found = [each for each in map(_measure, pids) if each is not None]
            if found:
                memory, files, threads = (sum(column) for column in zip(*found, strict=True))
                self.samples.append(Sample(time.monotonic() - self._started, memory, int(files), int(threads)))


def find_process_tree(pid: int) -> list[int]:
    """Return a process and all of its descendants."""
    parents: dict[int, int] = {}
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
    found, frontier = [pid], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def find_jvm(pid: int) -> int:
    """Return the JVM of a process tree."""
    (jvm,) = (each for each in find_process_tree(pid) if _read_name(each) == "java")
    return jvm


def measure_live_heap_mb(pid: int) -> float:
    """Return the size of the objects in use in the JVM of a process tree: the least of several moments.

    Collects the garbage before. Needs `jcmd`, which is a part of the JDK.
    """
    command, sizes = ["jcmd", str(find_jvm(pid)), "GC.class_histogram"], []
    for _ in range(_HEAP_SAMPLES):
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        sizes.append(next(int(line.split()[2]) for line in reversed(lines) if line.startswith("Total")))
        time.sleep(_HEAP_EVERY_S)
    return min(sizes) / 1e6


def _read_name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def fit_growth(samples: Sequence[Sample], values: Sequence[float]) -> float:
    """Return the growth of a line fitted through the values, as a share of where the line
    begins.
    """
    times = [sample.at_s for sample in samples]
    mean_time, mean = sum(times) / len(times), sum(values) / len(values)
    slope = sum((at - mean_time) * (value - mean) for at, value in zip(times, values, strict=True)) / sum(
        (at - mean_time) ** 2 for at in times
    )
    begin = mean + slope * (times[0] - mean_time)
    return slope * (times[-1] - times[0]) / begin


def _measure(pid: int) -> tuple[float, int, int] | None:
    proc = Path("/proc") / str(pid)
    try:
        lines = (proc / "smaps_rollup").read_text().splitlines()
        pss_kb = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return pss_kb / 1024, len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir()))
    except (OSError, StopIteration):
        return None
