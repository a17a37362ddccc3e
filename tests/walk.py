"""Run the blocks of a page in order in an empty folder, as a reader would.

`sh run` blocks are run as they are, and must succeed. In `console run` blocks, each line after `$ `
is a command, and the lines below it, if any, are its output. The folder and the exported variables
of a command are those of the next one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pages import Block, blocks

INFOS = ("sh run", "console run")
_BIN = Path(sys.executable).parent
_INSTALL = re.compile(r"^(?:python3 -m venv|\. \.venv/bin/activate|pip install|apt-get) ?.*\n?", re.M)
_VERDICTS = (3, 4, 5)
"""Exit codes of `everfold check`."""
_PROGRESS = re.compile(r"^\d\d:\d\d:\d\d .*\n", re.M)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[\d.]+ (?:s|min|h|d)(?= at the last runs' rate)")


def split_console(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def leave_out_installation(command: str) -> str:
    """Return a command without the lines that install everfold, which this environment has."""
    return _INSTALL.sub("", command)


class Shell:
    """A shell whose folder and variables last from one command to the next."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._kept = folder.with_name(f"{folder.name}.state")
        self._environment = dict(environment)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        restore = f'cd "{self._folder}"' if not self._kept.exists() else f'source "{self._kept}"'
        keep = f'{{ export -p; printf "cd %q\\n" "$PWD"; }} > "{self._kept}"'
        return subprocess.run(
            ["bash", "-c", f"trap '{keep}' EXIT\n{restore}\nset -o errexit\n{command}"],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )


def walk(
    page: Path,
    folder: Path,
    *,
    rewrite: Callable[[str], str] = leave_out_installation,
    visit: Callable[[Block], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the blocks of a page and compare their output with the page.

    rewrite: changes a command before it is run. visit: is called with each other block of the page,
    in its order. environment: default: that of this process, with its `everfold`.
    """
    if environment is None:
        environment = {**os.environ, "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}"}
    shell = Shell(folder, environment)
    for block in blocks(page):
        if block.info not in INFOS:
            visit(block)
            continue
        for command, shown in [(block.text, "")] if block.info == "sh run" else split_console(block.text):
            done = shell.run(rewrite(command))
            everything = done.stdout + done.stderr
            if shown:
                output = everything if "everfold" in command else done.stdout
                assert normalize(output) == normalize(shown), f"{block.id}: {command}\n{everything}"
            else:
                assert done.returncode in (0, *_VERDICTS), f"{block.id}: {command}\n{everything}"


def normalize(output: str) -> str:
    """Return an output without what differs from run to run: progress and times."""
    return _TIME.sub("TIME", _PROGRESS.sub("", output))
