"""`everfold rollback`: roll a job back to an earlier version of its query."""

from __future__ import annotations

from pathlib import Path

import click


def rollback(folder: Path, number: int | None, *, duplicates: bool) -> None:
    """Print what happens to the tables of the job, then roll it back.

    number: None for a job directory that was restored from an older copy.
    Raises the errors of `roll_back`.
    """
    from everfold.jobs.rollback import roll_back

    version = roll_back(folder, number, duplicates=duplicates, say=click.echo)
    back_to = version.back_to
    click.echo(f"version {back_to} is current again, as version {version.number}")
    click.echo(f"resume with: everfold run SCRIPT --state {folder}, with the script of version {back_to}", err=True)
