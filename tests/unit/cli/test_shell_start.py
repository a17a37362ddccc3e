"""The prompt of the shell is on the screen before the parser, the plans and the jobs are imported."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
from everfold.cli.main import everfold
from everfold.shell import prompt, start
start.open_shell = lambda options: None
everfold(["sql"], standalone_mode=False)
names = {"plan", "compat", "jobs", "connectors", "aggregates", "operators", "table", "testing"}
print(sorted(name for name in names if f"everfold.{name}" in sys.modules), "everfold.sql.planner" in sys.modules)
"""


def test_the_shell_imports_little_before_its_prompt() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
