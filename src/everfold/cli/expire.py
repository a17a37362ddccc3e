"""`everfold expire`: remove what only old versions of a job need."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from everfold.cli.runner import open_job

if TYPE_CHECKING:
    from everfold.jobs.expire import Expiry
    from everfold.jobs.folders import FolderName
    from everfold.storage import Location


def expire(
    folder: FolderName, keep: int, *, dry_run: bool, format_: Literal["text", "json"], conf: Mapping[str, str]
) -> None:
    """Expire the old versions of the job in a folder, and print what was removed.

    Raises the errors of `expire`.
    """
    from everfold.cli.output import show
    from everfold.jobs import expire as jobs
    from everfold.jobs.folders import parse_folder

    def open_table(path: str) -> Location:
        return open_job(parse_folder(path), conf)

    found = jobs.expire(open_job(folder, conf), keep, open_table, dry_run=dry_run)
    if format_ == "json":
        click.echo(json.dumps(_to_json(found, dry_run=dry_run), indent=2))
        return
    if found.removed:
        rows = [[each.what, str(each.files), str(each.bytes)] for each in found.removed]
        show(sys.stdout, ["what", "files", "bytes"], rows, "text")
    click.echo(_summarize(found, dry_run=dry_run))


def _summarize(found: Expiry, *, dry_run: bool) -> str:
    kept = ", ".join(map(str, found.kept))
    if not found.removed:
        return f"nothing to remove; kept versions: {kept}"
    verb = "would be" if dry_run else "were"
    return f"{found.files} files with {found.bytes} bytes {verb} removed; kept versions: {kept}"


def _to_json(found: Expiry, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "kept": found.kept,
        "expired": found.expired,
        "removed": [{"what": each.what, "files": each.files, "bytes": each.bytes} for each in found.removed],
        "files": found.files,
        "bytes": found.bytes,
    }
