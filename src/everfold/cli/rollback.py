"""`everfold rollback`: takes a job back to an earlier version of its query."""

from __future__ import annotations

from pathlib import Path

import click


def rollback(folder: Path, number: int | None, *, duplicates: bool) -> None:
    """Prints what becomes of the job's tables, then goes back. number: None for a folder that was restored. Raises what `roll_back` raises."""
    from everfold.jobs.rollback import roll_back

    version = roll_back(folder, number, duplicates=duplicates, say=click.echo)
    back_to = version.back_to
    click.echo(f"version {back_to} is current again, as version {version.number}")
    click.echo(f"go on with: everfold run SCRIPT --state {folder}, SCRIPT being that of version {back_to}", err=True)
