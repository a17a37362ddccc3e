"""Suggestions for misspelled options and commands: click's, without those that could do damage."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import click

from everfold.similar_names import find_similar_name

DESTRUCTIVE: Collection[str] = frozenset({
    "--allow-changes", "--bless", "--prune", "--restored", "--write",
    "expire", "rescale", "rollback", "stop",
})  # fmt: skip
"""Options and commands that change or remove data, or stop a job: they are never suggested."""


def limit_suggestions(error: click.ClickException) -> None:
    """Replace the suggestions of a usage error by those that mean the same and do no damage.

    click suggests whatever shares letters: `--prune` for `--dry-run`.
    """
    if not isinstance(error, click.UsageError) or error.ctx is None or not hasattr(error, "possibilities"):
        return
    unknown: Any = error  # a NoSuchOption, or a NoSuchCommand, which older releases do not have
    name = unknown.option_name if isinstance(error, click.NoSuchOption) else unknown.command_name
    similar = find_similar_name(name, _names_of(error.ctx, options=name.startswith("-")))
    unknown.possibilities = [] if similar is None or similar in DESTRUCTIVE else [similar]


def _names_of(context: click.Context, *, options: bool) -> Iterable[str]:
    """Return the long options of a command, or the commands of a group."""
    command = context.command
    if options:
        return [name for parameter in command.get_params(context) for name in parameter.opts if name.startswith("--")]
    return command.list_commands(context) if isinstance(command, click.Group) else ()
