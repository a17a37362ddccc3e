"""Open the shell on this terminal."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.output import create_output

from everfold import __version__
from everfold.errors import UsageError
from everfold.shell.options import ShellOptions
from everfold.shell.prompt import Loading, Prompt

if TYPE_CHECKING:
    from everfold.shell.commands import Shell
    from everfold.shell.terminal import Ask

_BANNER = f"everfold {__version__}. Statements end with `;`. \\? shows help, \\q leaves."


def open_shell(options: ShellOptions) -> None:
    """Open the shell, and run it until the user leaves. Raises UsageError `no-terminal`."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError.of("no-terminal", "the shell needs a terminal", help="run a script with `everfold run -`")
    # Our own handle: standard output is redirected to Spark's log while Spark starts.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", errors="replace") as out:
        print(_BANNER, file=out, flush=True)
        prompts: list[Prompt] = []
        loading = Loading(lambda: load_shell(options, out, lambda *asked: prompts[0].ask(*asked)), import_memory_engine)
        if options.options or options.variables or options.init:
            shell = loading.get()
            shell.session.start_chosen_engine()
            if options.init is not None:
                shell.handle(f"\\i {options.init.absolute()}")
        prompts.append(Prompt(loading, output=create_output(out)))
        prompts[0].run()


def load_shell(options: ShellOptions, out: TextIO, ask: Ask) -> Shell:
    """Return a shell. Raises EverfoldError for wrong options."""
    from everfold.shell.commands import Shell
    from everfold.shell.session import ShellSession
    from everfold.shell.terminal import Terminal

    terminal = Terminal(out, ask)
    return Shell(ShellSession(terminal, options), terminal)


def import_memory_engine() -> None:
    """Import what the first query on the memory engine needs."""
    for name in ("everfold.cli.memory_jobs", "everfold.memory.batch", "everfold.memory.pipeline"):
        import_module(name)
