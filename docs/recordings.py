"""Record commands as pictures of a terminal: docs/recordings/*.svg.

`make docs` records them again; a test compares them with what the commands print.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "recordings"
_WIDTH = 100
RECORDINGS = {
    "check": ("everfold check examples/changes/orders.sql examples/changes/orders-next.sql",),
    "explain": ("everfold explain examples/bids/tumble.sql",),
    "error": ('everfold run -e "SELECT SUMM(price) AS spent FROM (VALUES (1)) AS orders (price)"',),
    "run": (
        "everfold run examples/bids/tumble.sql --engine memory",
        "everfold test tests/cases/window/cumulate.case.yaml",
    ),
    "init": ("everfold init shop --template kafka", "everfold test shop/tests"),
}
"""The commands of each recording. They need no JVM."""
_IN_NEW_FOLDER = {"init"}
"""Recordings that run in an empty folder; the others run in the root of the repository."""


def record(name: str) -> str:
    """Run the commands of a recording and return its picture."""
    console = Console(
        record=True,
        width=_WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    with tempfile.TemporaryDirectory() as new:
        for command in RECORDINGS[name]:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            output = Text(_run(command, Path(new) if name in _IN_NEW_FOLDER else ROOT))
            output.highlight_regex(r"^error\[[a-z-]+\]", "bold red")  # the only color of these commands
            console.print(output)
    picture = console.export_svg(title="everfold", unique_id=name)
    # The picture names fonts of a content delivery network. Without them, the reader's are used.
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)


def _run(command: str, folder: Path) -> str:
    """Run a command of everfold and return its output."""
    program, *arguments = shlex.split(command)
    assert program == "everfold"
    return subprocess.run(
        [sys.executable, "-m", "everfold", *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    ).stdout


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in RECORDINGS:
        (FOLDER / f"{name}.svg").write_text(record(name), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}.svg\n")
