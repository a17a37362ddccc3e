"""`everfold init`: create a project from a template.

A template is a folder of `cli/templates`. The files of `common` belong to each of them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import click

from everfold.errors import UsageError

TEMPLATES = {
    "files": "files in a folder to printed rows; needs no server",
    "kafka": "a Kafka topic to an upsert-kafka topic",
    "postgres": "a Kafka topic to a PostgreSQL table",
}
_DEFAULT = "files"
_HIDDEN = {"gitignore": ".gitignore", "workflow.yaml": ".github/workflows/everfold.yml"}
"""Files whose names begin with a dot in the project, by their name in the template."""
_KEPT = {".gitignore", "README.md"}
_NEXT = {
    "files": ("everfold test tests/", "everfold run spending.sql --engine memory"),
    "kafka": ("everfold test tests/", "everfold explain spending.sql"),
    "postgres": ("everfold test tests/", "export PG_PASSWORD=everfold", "everfold explain spending.sql"),
}


def init(folder: Path, template: str | None) -> None:
    """Create the files of a template in a folder, and print the next steps.

    Existing files of a new repository, such as README.md, stay as they are.

    template: None prompts on a terminal, and otherwise takes `files`.

    Raises UsageError `file-exists` before anything is written.
    """
    template = template or _ask_template()
    project = dict(read_template(template))
    existing = {name for name in project if os.path.lexists(folder / name)}
    if refused := sorted(existing - _KEPT):
        raise UsageError.of(
            "file-exists",
            f"`{folder / refused[0]}` exists already",
            help="name an empty folder: everfold init FOLDER",
        )
    for name, content in project.items():
        file = folder / name
        if name in existing:
            click.echo(f"kept    {file}, which exists")
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "xb") as new:
            new.write(content)
        click.echo(f"created {file}")
    enter = () if folder == Path() else (f"cd {shlex.quote(str(folder))}",)
    click.echo("\nNext steps:\n")
    for step in (*enter, *_NEXT[template]):
        click.echo(f"  {step}")


def read_template(template: str) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each file of a template by its path in the project."""
    root = files("everfold.cli") / "templates"
    for folder in (root / template, root / "common"):
        for name, file in _walk(folder, PurePosixPath()):
            yield _HIDDEN.get(name, name), file.read_bytes()


def _walk(folder: Traversable, below: PurePosixPath) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _walk(each, below / each.name)
        else:
            yield str(below / each.name), each


def _ask_template() -> str:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _DEFAULT
    for name, meaning in TEMPLATES.items():
        click.echo(f"  {name:<10}{meaning}")
    chosen: str = click.prompt("Template", _DEFAULT, type=click.Choice(list(TEMPLATES)))
    return chosen
