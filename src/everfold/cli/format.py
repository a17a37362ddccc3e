"""`everfold format`: print scripts in one style, or rewrite them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import click

from everfold.cli.run import Script
from everfold.errors import EXIT_FAILED, EverfoldError, UsageError
from everfold.files import write_atomically

Mode: TypeAlias = Literal["print", "check", "write"]


def format_scripts(paths: Sequence[str], mode: Mode, dialect: str) -> int:
    """Print a script, check scripts or rewrite them; return the exit code.

    `-` is standard input; a folder means its `*.sql`. A script that cannot be parsed is reported,
    and does not stop the others. Raises UsageError `no-script`, `unreadable-file`.
    """
    from everfold.sql.formatting import format_script

    changed = unchanged = 0
    failures: list[EverfoldError] = []
    for path in _list_scripts(paths):
        script = Script.read(path, None)
        try:
            formatted = format_script(script.text, script.source, dialect)
        except EverfoldError as error:
            failures.append(error)
            continue
        if mode == "print" or (path == "-" and mode == "write"):
            sys.stdout.write(formatted)
        elif formatted == script.text:
            unchanged += 1
        else:
            changed += 1
            _report_change(path, formatted, mode)
    if mode != "print":
        _print_summary(changed, unchanged, mode)
    if failures:
        raise type(failures[0])(*(each for error in failures for each in error.diagnostics))
    return EXIT_FAILED if changed and mode == "check" else 0


def _list_scripts(paths: Sequence[str]) -> Iterator[str]:
    """Yield the scripts of files and folders. Raises UsageError `no-script` for an empty folder."""
    for path in paths:
        if path != "-" and Path(path).is_dir():
            found = sorted(str(each) for each in Path(path).rglob("*.sql"))
            if not found:
                raise UsageError.of("no-script", f"the folder `{path}` has no `*.sql`", help="name a script")
            yield from found
        else:
            yield path


def _report_change(path: str, formatted: str, mode: Mode) -> None:
    """Name a file that would change, or rewrite it with its own line ends."""
    if mode == "check":
        click.echo(f"would reformat {path}")
        return
    file = Path(path).resolve()
    mode_of_file = file.stat().st_mode
    line_end = "\r\n" if b"\r\n" in file.read_bytes() else "\n"
    write_atomically(file, formatted.replace("\n", line_end).encode())
    file.chmod(mode_of_file)
    click.echo(f"reformatted {path}")


def _print_summary(changed: int, unchanged: int, mode: Mode) -> None:
    would = "would be " if mode == "check" else ""
    parts = [f"{_count(changed)} {would}reformatted"] if changed else []
    parts += [f"{_count(unchanged)} already formatted"] if unchanged else []
    if parts:
        click.echo(", ".join(parts), err=True)


def _count(files: int) -> str:
    return f"{files} file{'s' if files != 1 else ''}"
