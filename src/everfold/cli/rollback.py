"""`everfold rollback`: roll a job back to an earlier version of its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from everfold.cli.runner import open_job

if TYPE_CHECKING:
    from everfold.jobs.folders import FolderName


def rollback(
    folder: FolderName, number: int | None, *, batch: int | None, duplicates: bool, conf: Mapping[str, str]
) -> None:
    """Print what happens to the tables of the job, then roll it back.

    number: None for a job directory that was restored from an older copy. batch: the batch to
    resume after, None for the last one. Raises the errors of `roll_back`.
    """
    from everfold.jobs.rollback import roll_back

    job = open_job(folder, conf)
    version = roll_back(job, number, batch=batch, duplicates=duplicates, say=click.echo)
    back_to = version.back_to
    click.echo(f"version {back_to} is current again, as version {version.number}")
    click.echo(f"resume with: everfold run SCRIPT --state {folder}, with the script of version {back_to}", err=True)
