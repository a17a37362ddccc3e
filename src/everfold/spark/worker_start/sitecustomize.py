"""Start-up code of the Python workers in a JVM that everfold has not started.

Python imports a module of this name before any other if its folder is in PYTHONPATH
(`quiet_session.py` puts it there). The worker in which Spark's driver initializes a stateful
processor prints its progress, which Spark copies to standard error of the user's process. It must
be silenced before its first line, which it prints before it reads anything from Spark.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"


def silence_driver_worker() -> None:
    """Let the module of the driver's worker print nothing. Does nothing in other processes."""
    if _DRIVER_WORKER in sys.orig_argv:
        vars(sys.modules["__main__"])["print"] = lambda *_, **__: None


def import_next() -> None:
    """Import the `sitecustomize` that this module hides, if there is one."""
    own = Path(__file__).parent
    sys.path[:] = [each for each in sys.path if Path(each) != own]
    if PathFinder.find_spec(__name__) is not None:
        del sys.modules[__name__]
        importlib.import_module(__name__)


if __name__ == "sitecustomize":
    silence_driver_worker()
    import_next()
