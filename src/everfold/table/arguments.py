"""Errors and notes in terms of the Python API.

Messages name the options of the command line. A caller of the Python API sees the arguments of
`TableEnvironment` and `execute_sql` instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from everfold.errors import Diagnostic, EverfoldError

_ARGUMENTS = tuple(
    (re.compile(option), argument)
    for option, argument in (
        (r"--on-change (accept|backfill|reset|rebuild)\b", r'on_change="\1"'),
        (r"--sink-duplicates accept\b", 'sink_duplicates="accept"'),
        (r"--rules extended \((SET [^)]+)\)", r"\1"),
        (r"--prune\b", "prune=True"),
        (r"--refresh\b", "refresh=True"),
        (r"--source ([^\s`=]+)=([\w.…]+)", r'sources={"\1": "\2"}'),
        (r"--sink (\S+?)=(refresh\b|empty\b|rebuild\b|…)", r'sinks={"\1": "\2"}'),
        (r"--state (?:folder|FOLDER)\b", "state_dir"),
        (r"--state (/\S+|[a-z0-9]+:\S+)", r'state_dir="\1"'),
        (r"--state\b", "state_dir"),
        (r"--var (\S+?)=(…|\S+)", r'variables={"\1": …}'),
        (r"--conf ([\w.]+)=(…|[\w.]+)", r'conf={"\1": "\2"}'),
        (r"--conf\b", "conf"),
        (r"--batch and ", ""),
        (r"\brun the same command again\b", "run the same statement again"),
    )
)


def name_arguments(text: str) -> str:
    """Return a message with Python arguments in place of command-line options."""
    for option, argument in _ARGUMENTS:
        text = option.sub(argument, text)
    return text


@contextmanager
def errors_of_python() -> Iterator[None]:
    """Raise errors of the block with Python arguments in place of command-line options."""
    try:
        yield
    except EverfoldError as error:
        translated = translate_error(error)
        if translated is error:
            raise
        raise translated from error


def translate_error(error: EverfoldError) -> EverfoldError:
    """Return an error with Python arguments in place of options; the same one if it has none."""
    found = tuple(map(_translate, error.diagnostics))
    return error if found == error.diagnostics else type(error)(*found)


def _translate(found: Diagnostic) -> Diagnostic:
    return replace(
        found,
        message=name_arguments(found.message),
        help=None if found.help is None else name_arguments(found.help),
        notes=tuple(map(name_arguments, found.notes)),
    )
