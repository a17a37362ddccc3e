"""Break a process at a named function.

Every Python process whose PYTHONPATH contains this folder loads this module.

EVERFOLD_FAULT_AT names the functions that can be broken, as `module:function`, separated by spaces.
EVERFOLD_FAULT_PLAN names a file, which is read at each call of one of them: `<function>
<before|after> <call> <kill|kill-worker|stop|hold|raise>`. Calls are counted over all processes in
`<plan>.calls`. A plan is carried out once and then leaves `<plan>.done`, with the id of the process.
`hold` waits for `<plan>.go`.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_PLAN = os.environ.get("EVERFOLD_FAULT_PLAN", "")
_AT = [each.partition(":")[::2] for each in os.environ.get("EVERFOLD_FAULT_AT", "").split()]
_GROUP = int(os.environ.setdefault("EVERFOLD_FAULT_GROUP", str(os.getpgid(0))))
"""The process group of the job; Spark's worker daemon leaves it."""


class InjectedFault(Exception):
    """Raised by the action `raise`."""


def _carry_out(function: str, when: str) -> None:
    try:
        with open(_PLAN, encoding="utf-8") as plan:
            wanted, moment, call, action = plan.read().split()
    except OSError:
        return
    if (function, when) != (wanted, moment):
        return
    calls = os.open(f"{_PLAN}.calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(calls, b".")
    count = os.fstat(calls).st_size
    os.close(calls)
    if count < int(call):
        return
    try:
        done = os.open(f"{_PLAN}.done", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(done, str(os.getpid()).encode())
        os.close(done)
    except FileExistsError:
        return
    if action == "kill":
        os.killpg(_GROUP, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-worker":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.killpg(_GROUP, signal.SIGSTOP)
    elif action == "hold":
        while not os.path.exists(f"{_PLAN}.go"):
            time.sleep(0.05)
    else:
        raise InjectedFault(f"{when} call {count} of {function}")


def _guard(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        _carry_out(name, "before")
        answer = function(*arguments, **named)
        _carry_out(name, "after")
        return answer

    return guarded


def _patch(module: ModuleType) -> None:
    for name, path in _AT:
        if name == module.__name__:
            *owners, last = path.split(".")
            owner = functools.reduce(getattr, owners, module)
            found = owner.__dict__[last]
            if isinstance(found, staticmethod):
                setattr(owner, last, staticmethod(_guard(found.__func__, f"{name}:{path}")))
            else:
                setattr(owner, last, _guard(found, f"{name}:{path}"))


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _patch(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in {name for name, _ in _AT}:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


if _PLAN:
    sys.meta_path.insert(0, _Finder())
