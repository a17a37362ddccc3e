"""How much input a job has read, and what it costs to read it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from everfold.checkpoint.logs import last_finished_batch, read_position
from everfold.connectors.contract import ReadSize, Source
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.progress_log import History, locate_history, read_history
from everfold.plan.nodes import Table
from everfold.rendering.quantities import format_bytes, format_count, format_span

_RECENT_BATCHES = 200
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a damaged log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """What it costs to read input again. None for what is unknown.

    rows, size_bytes, files: to read. seconds: at the rate of the last runs.
    """

    rows: int | None
    size_bytes: int | None
    files: int | None
    seconds: float | None

    @property
    def summary(self) -> str:
        """The cost for people."""
        parts = [
            *([] if self.files is None else [format_count(self.files, "file")]),
            *([] if self.size_bytes is None else [format_bytes(self.size_bytes)]),
            *([] if self.rows is None else [f"about {format_count(self.rows)}"]),
        ]
        if not parts:
            return "reads an unknown number of rows"
        time = "" if self.seconds is None else f": {format_span(round(1000 * self.seconds))} at the last runs' rate"
        return f"reads {', '.join(parts)}{time}"

    def to_json(self) -> dict[str, float | None]:
        """Return the cost as JSON members."""
        members = asdict(self)
        return {"rows": members["rows"], "bytes": members["size_bytes"], "files": members["files"],
                "seconds": members["seconds"]}  # fmt: skip


NOTHING = ReadCost(rows=0, size_bytes=0, files=0, seconds=0.0)


def measure_cost(
    job_dir: JobDir, manifest: Manifest, tables: Iterable[Table], sources: Mapping[str, Source], base_folder: Path
) -> ReadCost:
    """Return what it costs to read again what the current version of a job has read.

    tables: those to read, one for each time. sources: by table. base_folder: start of relative
    paths. Asks no external system.
    """
    checkpoint = job_dir.checkpoint(manifest, manifest.current)
    if last_finished_batch(checkpoint) < 0:
        return NOTHING
    history = _read_history(job_dir, _RECENT_BATCHES)
    read_rows = _list_read_rows(history, manifest) or {}
    notes = {note["table"]: note for note in manifest.version.sources or ()}
    times_read = Counter(note["table"] for note in manifest.version.sources or ())
    sizes: list[ReadSize] = []
    for table in tables:
        size = ReadSize()
        with suppress(*_UNREADABLE):
            position = read_position(checkpoint, notes[table.identity]["spark_name"])
            if position is not None:
                size = sources[table.name].measure_read(base_folder, position)
        if size.rows is None and table.name in read_rows and times_read[table.identity]:
            size = size._replace(rows=round(read_rows[table.name] / times_read[table.identity]))
        sizes.append(size)
    rows = _add(size.rows for size in sizes)
    rate = _find_rate(history)
    return ReadCost(
        rows=rows,
        size_bytes=_add(size.size_bytes for size in sizes),
        files=_add(size.files for size in sizes),
        seconds=None if rows is None or rate is None else rows / rate,
    )


def find_read_rows(job_dir: JobDir, manifest: Manifest) -> Mapping[str, int] | None:
    """Return how many rows a job that starts has read before, by table, None if it is unknown."""
    if last_finished_batch(job_dir.checkpoint(manifest, manifest.current)) < 0:
        return {}
    return _list_read_rows(_read_history(job_dir, 1), manifest)


def _read_history(job_dir: JobDir, batches: int) -> History:
    try:
        return read_history(locate_history(job_dir.log_file), batches)
    except OSError:
        return History()


def _list_read_rows(history: History, manifest: Manifest) -> dict[str, int] | None:
    """Return the rows of each table, if the last batch in a history belongs to the job's state."""
    if not history.batches or not _counts_fully(history.batches[-1].epoch, manifest):
        return None
    rows = {source.table: source.total_rows for source in history.batches[-1].sources}
    known = {table: count for table, count in rows.items() if count is not None}
    return known if len(known) == len(rows) else None


def _counts_fully(epoch: int | None, manifest: Manifest) -> bool:
    """Whether all batches up to the last one of an epoch are part of the job's state."""
    for version, last in manifest.lineage(manifest.version):
        if last is not None:
            return False
        if version.epoch == epoch:
            return True
    return False


def _find_rate(history: History) -> float | None:
    """Return the rows per second of recent batches, None if no batch had rows."""
    spans = [(batch.rows_per_second, (batch.ended_ms - batch.started_ms) / 1000) for batch in history.batches]
    seconds = sum(span for rate, span in spans if rate > 0)
    rows = sum(rate * span for rate, span in spans)
    return rows / seconds if rows and seconds else None


def _add(counts: Iterable[int | None]) -> int | None:
    """Return the sum, None if a count is unknown."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))
