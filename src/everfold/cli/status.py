"""`everfold jobs`, `everfold status` and `everfold stop`: jobs that other processes run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import click

from everfold.cli.progress import describe_progress
from everfold.cli.runner import open_job
from everfold.rendering.quantities import format_count, format_instant, format_span

if TYPE_CHECKING:
    from everfold.errors import EverfoldError
    from everfold.jobs.folders import FolderName
    from everfold.jobs.row_samples import RowSamples
    from everfold.jobs.status import JobDirStatus
    from everfold.storage import Location

Format = Literal["text", "json"]
_WATCH_S = 2.0
_COLUMNS = ("job", "name", "state", "version", "watermark", "lag", "rows", "last error")


def list_jobs(folder: FolderName, format_: Format, conf: Mapping[str, str]) -> None:
    """Print a table of the jobs in a folder. Raises UsageError, ConnectorError."""
    from everfold.cli.output import show
    from everfold.jobs.job_list import find_jobs

    base = open_job(folder, conf)
    found = [(each, _try_read(each)) for each in find_jobs(base)]
    if format_ == "json":
        _print_json([_to_json(each, status) for each, status in found])
        return
    rows = [[each.relative_to(base) or ".", *_list_cells(status)] for each, status in found]
    show(sys.stdout, _COLUMNS, rows, "text")


def status(folder: FolderName, format_: Format, conf: Mapping[str, str], *, watch: bool) -> None:
    """Print the status of a job; again and again if it is watched.

    Raises the errors of `read_status`.
    """
    from everfold.jobs.status import read_status

    job = open_job(folder, conf)
    shown = read_status(job)
    if format_ == "text" and watch and sys.stdout.isatty():
        _watch(job, shown)
    while True:
        if format_ == "json":
            _print_json(_to_json(job, shown))
        else:
            click.echo("\n".join(_describe(shown)))
        if not watch:
            return
        time.sleep(_WATCH_S)
        shown = read_status(job)
        if format_ == "text":
            click.echo()


def stop(folder: FolderName, timeout_s: float, format_: Format, conf: Mapping[str, str]) -> None:
    """Stop a job and wait until it has stopped. Raises the errors of `request_stop`."""
    from everfold.jobs.status import read_status
    from everfold.jobs.stop import request_stop

    job = open_job(folder, conf)
    read_status(job, batches=0)
    owner = request_stop(job, timeout_s)
    after = read_status(job)
    if format_ == "json":
        _print_json({"stopped": owner, **_to_json(job, after)})
    elif owner is None:
        click.echo(f"the job in `{job}` is not running: {_describe_end(after)}", err=True)
    else:
        click.echo(f"the job in `{job}` has stopped; it was run by {owner}", err=True)


def _try_read(job: Location) -> JobDirStatus | EverfoldError:
    """Return the status of a job, or why it cannot be read."""
    from everfold.errors import EverfoldError
    from everfold.jobs.status import read_status

    try:
        return read_status(job)
    except EverfoldError as error:
        return error


def _to_json(job: Location, found: JobDirStatus | EverfoldError) -> dict[str, Any]:
    from everfold.errors import EverfoldError

    if isinstance(found, EverfoldError):
        return {"folder": str(job), "state": "unreadable", "error": found.diagnostics[0].render()}
    return {**found.to_json(), "lag_ms": found.lag_ms(_lag_time(found))}


def _list_cells(found: JobDirStatus | EverfoldError) -> list[str | None]:
    from everfold.errors import EverfoldError

    if isinstance(found, EverfoldError):
        return ["", "unreadable", "", "", "", "", found.diagnostics[0].message]
    progress, lag = found.progress, found.lag_ms(_lag_time(found))
    return [
        found.name,
        found.state,
        None if found.version is None else str(found.version),
        None if progress is None or progress.watermark_ms is None else format_instant(progress.watermark_ms),
        None if lag is None else format_span(lag),
        None if progress is None else f"{progress.rows:,}",
        None if found.end is None or found.end.error is None else f"{found.end.error}: {found.end.message}",
    ]


def _describe(found: JobDirStatus) -> Iterator[str]:
    """Yield the lines about a job."""
    where = f" by {found.owner}" if found.owner is not None else ""
    yield f"{found.name or found.folder}: {found.state}{where}"
    if found.version is not None:
        yield f"version {found.version}, since {found.version_created}"
    if found.end is not None or found.state == "killed":
        yield f"last run: {_describe_end(found)}"
    yield from (f"lost input: {gap}" for gap in found.gaps)
    progress = found.progress
    if progress is None:
        return
    yield describe_progress(progress, _lag_time(found))
    yield from (
        f"reads `{each.table}`: {format_count(each.rows)}{_describe_lag(each.lag)}" for each in progress.sources
    )
    yield from (f"writes `{each.table}`: {format_count(each.rows)}" for each in progress.sinks)
    labels = {} if found.run is None else found.run.operators
    for each in progress.operators:
        size = "" if each.state_bytes is None else f", about {each.state_bytes:,} bytes"
        yield f"{each.name} {labels.get(each.name, '')}: {format_count(each.state_rows, 'state row')}{size}"
    yield from _describe_samples(found.samples)


def _describe_samples(samples: RowSamples) -> Iterator[str]:
    for late in samples.late:
        time = f"{'window until' if late.is_window_end else 'row at'} {format_instant(late.time_ms)}"
        watermark = "" if late.watermark_ms is None else f", watermark {format_instant(late.watermark_ms)}"
        values = ", ".join(f"{name} = {value}" for name, value in late.values.items())
        yield f"late in batch {late.batch}, {late.operator}: {time}{watermark}" + (f": {values}" if values else "")
    for each in samples.skipped:
        where = each.location or f"table `{each.table}`"
        yield f"skipped in batch {each.batch}: {where}: {each.reason}" + (f": {each.record}" if each.record else "")


def _describe_lag(lag: Mapping[str, int] | None) -> str:
    return "" if lag is None else f", {format_count(sum(lag.values()), 'record')} behind"


def _describe_end(found: JobDirStatus) -> str:
    """Say how the last run ended."""
    end = found.end
    if end is None:
        return "its process was killed" if found.state == "killed" else "it is not known how its last run ended"
    error = "" if end.error is None else f" with {end.error}: {end.message}"
    return f"{end.how} at {format_instant(end.ended_ms)}{error}"


def _watch(job: Location, shown: JobDirStatus) -> None:
    """Show the status on a terminal until Ctrl-C."""
    from rich.live import Live
    from rich.text import Text

    from everfold.jobs.status import read_status

    with Live(auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(_describe(shown))), refresh=True)
            time.sleep(_WATCH_S)
            shown = read_status(job)


def _print_json(found: Any) -> None:
    sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
    sys.stdout.flush()


def _lag_time(found: JobDirStatus) -> int:
    """Return the time to which the watermark is compared: now, or the end of the last batch."""
    progress = found.progress
    return time.time_ns() // 1_000_000 if found.is_running or progress is None else progress.ended_ms
