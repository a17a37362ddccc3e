"""`everfold rescale`: change the number of partitions of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from everfold.cli.progress import show_activities

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName


def rescale(folder: FolderName, partitions: int, *, master: str | None, conf: Mapping[str, str]) -> None:
    """Change the number of partitions of the job in a folder, and say so.

    Raises the errors of `rescale`.
    """
    from everfold.jobs import get_engine
    from everfold.jobs.folders import needs_s3

    engine = get_engine(master, conf, brief=True, uses_s3=needs_s3(folder, ()))
    with show_activities() as view:

        def say(text: str) -> None:
            with view.hidden():
                click.echo(text)

        version = engine.rescale(folder, partitions, say)
    click.echo(f"version {version.number} has {partitions} partitions")
    click.echo("resume with `everfold run`", err=True)
