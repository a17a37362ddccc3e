"""Spark's numbered logs in a checkpoint, `offsets` and `commits`, and the positions in sources.

A file is named by the number of its batch. It holds a version, a line of metadata and, in
`offsets`, a line `name:position` for each source, where the position is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from everfold.checkpoint.files import remove_file, replace_file
from everfold.storage import Location


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a job in a source.

    line: the source's line of the offset log. log: the source's folder in the checkpoint.
    """

    line: str
    log: Location


def newest_entry(log: Location) -> Location | None:
    """Return the entry with the highest number in a log of Spark, None if it is empty."""
    entries = [each for each in log.iterdir() if each.name.isdigit()]
    return max(entries, key=lambda each: int(each.name), default=None)


def last_planned_batch(checkpoint: Location) -> int:
    """Return the number of the last batch with offsets, -1 if there is none."""
    return _number(newest_entry(checkpoint / "offsets"))


def last_finished_batch(checkpoint: Location) -> int:
    """Return the number of the last batch with a commit, -1 if there is none."""
    return _number(newest_entry(checkpoint / "commits"))


def _number(entry: Location | None) -> int:
    return -1 if entry is None else int(entry.name)


def list_finished(checkpoint: Location) -> list[int]:
    """Return the numbers of the batches with a commit that the log still holds, in order."""
    return sorted(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit())


def has_finished(checkpoint: Location, batch: int) -> bool:
    """Return whether the logs still hold a finished batch, so that a job can resume after it."""
    return all((checkpoint / name / str(batch)).exists() for name in ("offsets", "commits"))


def has_unfinished_batch(checkpoint: Location) -> bool:
    """Whether a planned batch is not finished; the next start runs it again."""
    return last_planned_batch(checkpoint) > last_finished_batch(checkpoint)


def read_positions(checkpoint: Location, batch: int | None = None) -> dict[str, str]:
    """Return the position of each source as JSON, after a batch or after the last finished one."""
    batch = last_finished_batch(checkpoint) if batch is None else batch
    log = checkpoint / "offsets" / str(batch)
    lines = log.read_text().splitlines()[2:] if log.exists() else []
    return {name: offset for name, _, offset in (line.partition(":") for line in lines)}


def read_batch_time(checkpoint: Location, batch: int) -> int:
    """Return the processing time of a planned batch, ms; the same when the batch is run again."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])


def read_position(checkpoint: Location, source: str) -> Position | None:
    """Return the position in a source after the last finished batch, None if there is none."""
    line = read_positions(checkpoint).get(source)
    return None if line is None else Position(line, checkpoint / "sources" / source)


def find_next_position(checkpoint: Location, source: str) -> Position | None:
    """Return the position from which a job reads a source next, None if it has not opened it.

    This is the one after the last finished batch, or the first one, if the source keeps it.
    """
    found = read_position(checkpoint, source)
    if found is not None:
        return found
    log = checkpoint / "sources" / source
    try:
        return Position(read_first_position(log), log)
    except OSError:
        return None


def find_planned_position(checkpoint: Location, source: str) -> Position | None:
    """Return the position in a source after a batch that is planned and not finished."""
    planned = last_planned_batch(checkpoint)
    if planned <= last_finished_batch(checkpoint):
        return None
    line = read_positions(checkpoint, planned).get(source)
    return None if line is None else Position(line, checkpoint / "sources" / source)


def set_position(checkpoint: Location, source: str, position: str) -> None:
    """Let a job continue at another position in a source. No batch may be unfinished."""
    log = newest_entry(checkpoint / "offsets")
    lines = [] if log is None else log.read_text().split("\n")
    if log is not None and any(line.startswith(f"{source}:") for line in lines):
        changed = [f"{source}:{position}" if line.startswith(f"{source}:") else line for line in lines]
        replace_file(log, "\n".join(changed))
    else:
        set_first_position(checkpoint, source, position)


def set_first_position(checkpoint: Location, source: str, position: str) -> None:
    """Replace the position that a source started from."""
    first = checkpoint / "sources" / source / "0"
    version = first.read_text().partition("\n")[0]
    replace_file(first, f"{version}\n{position}")


def restore_positions(checkpoint: Location, earlier: Iterable[Location]) -> None:
    """Write the last positions in sources that the previous version did not read into a checkpoint.

    Otherwise Spark would read such a source from the beginning when it is used again. earlier: the
    checkpoints before this one, newest first.
    """
    log = newest_entry(checkpoint / "offsets")
    if log is None:
        return
    known: dict[str, str] = read_positions(checkpoint, int(log.name))
    more: dict[str, str] = {}
    for each in earlier:
        more |= {name: line for name, line in read_positions(each).items() if name not in known | more}
    if more:
        text = log.read_text().rstrip("\n")
        replace_file(log, "\n".join([text, *(f"{name}:{line}" for name, line in more.items())]))


def add_source_positions(checkpoint: Location, pairs: Mapping[str, str], kept: Location) -> None:
    """Give new sources in a checkpoint the positions of others.

    pairs: the other source of each new one, both by their names without the suffix for what they
    read (`Sources`). kept: the folder of copied rows; a source that has a copy is left out.
    """
    log = newest_entry(checkpoint / "offsets")
    if log is None:
        return
    text = log.read_text().rstrip("\n")
    for name, line in read_positions(checkpoint, int(log.name)).items():
        for new, other in pairs.items():
            if re.fullmatch(f"{re.escape(other)}(_[0-9a-f]{{8}})?", name) and not _has_rows(kept, name):
                new_name = new + name.removeprefix(other)
                text += f"\n{new_name}:{line}"
                if (checkpoint / "sources" / name).is_dir():
                    (checkpoint / "sources" / name).copy_to(checkpoint / "sources" / new_name)
    replace_file(log, text)


def _has_rows(kept: Location, name: str) -> bool:
    return any(folder for pattern in (f"{name}.rows", f"*/{name}.rows") for folder in kept.glob(pattern))


def rewrite_positions(checkpoint: Location, source: str, change: Callable[[str], str]) -> None:
    """Replace the positions of a source in all batches, and the one that it started from.

    change: called with each position.
    """
    name = f"{source}:"
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        if file.name.isdigit():
            lines = file.read_text().split("\n")
            changed = [name + change(each.removeprefix(name)) if each.startswith(name) else each for each in lines]
            if changed != lines:
                replace_file(file, "\n".join(changed))
    first = checkpoint / "sources" / source / "0"
    if first.is_file():
        version, _, position = first.read_text().partition("\n")
        if change(position) != position:
            replace_file(first, f"{version}\n{change(position)}")


def read_first_position(log: Location) -> str:
    """Return the position that a source started from. log: its folder in the checkpoint.

    Raises OSError.
    """
    return (log / "0").read_text().partition("\n")[2]


def remove_batches(checkpoint: Location, last: int) -> None:
    """Remove the batches after one from the logs, so that Spark plans their input again."""
    for name in ("commits", "offsets"):
        for file in list((checkpoint / name).iterdir()):
            if file.name.isdigit() and int(file.name) > last:
                remove_file(file)


def remove_half_written(checkpoint: Location) -> None:
    """Remove the files that Spark has not finished writing into its logs, and their checksums."""
    for name in ("offsets", "commits"):
        for part in (checkpoint / name).glob(".*.tmp*"):
            part.delete()
