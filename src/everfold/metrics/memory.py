"""The memory of the processes of a job on this machine, as Linux reports it in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def measure_memory(jvm_pids: Iterable[int]) -> dict[str, int]:
    """Return the bytes of this process, of JVMs, and of the Python workers that these started.

    Empty where there is no /proc.
    """
    if not (_PROC / "self" / "stat").exists():
        return {}
    own, jvms = os.getpid(), set(jvm_pids)
    # Under spark-submit, this process is a child of the JVM.
    workers = _find_descendants(jvms) - jvms - {own}
    return {
        "driver": _read_bytes(own),
        "jvm": sum(map(_read_bytes, jvms)),
        "workers": sum(map(_read_bytes, workers)),
    }


def _find_descendants(roots: set[int]) -> set[int]:
    parents: dict[int, int] = {}
    for each in _PROC.iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    waiting = set(roots)
    while waiting:
        children = {pid for pid, parent in parents.items() if parent in waiting} - found
        found |= children
        waiting = children
    return found


def _read_bytes(pid: int) -> int:
    """Return the memory of a process, 0 if it is gone.

    It has its share of what it shares with others, which only the owner of the process can see.
    """
    with suppress(OSError, ValueError, StopIteration):
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    with suppress(OSError, ValueError, IndexError):
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
