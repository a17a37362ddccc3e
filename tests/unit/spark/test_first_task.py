"""The first task of a session, which runs in another thread."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import time
from everfold.spark.first_task import start_workers

class SlowSession:
    def range(self, *numbers): return self
    def mapInArrow(self, function, schema): return self
    def toArrow(self):
        time.sleep(0.5)
        print("the task has ended")

start_workers(SlowSession())
"""


def test_a_process_that_exits_waits_for_the_task() -> None:
    """An interpreter that exits while a thread is in Arrow aborts (`PyGILState_Release`)."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "the task has ended\n"), done.stderr
