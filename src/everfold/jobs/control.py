"""Control files: how the runner tells a stream to flush (its input has ended) or to look at the clock (tick).

A control file is read as one more source. It is not rate-limited, so it may only be dropped when the data before it is done.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everfold.files import link, make_private_folder
from everfold.jobs.failure import damaged
from everfold.jobs.spark_checkpoint import is_sound, needed, newest, unfinished
from everfold.spark.exchange import FLUSH, GIVE_AGAIN, RECALL, TICK

_HALF_WRITTEN = ".*.tmp*"
"""What Spark writes before it gives it its name, and the checksum of that."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control folder of a job and the checkpoint of the stream that reads it."""

    folder: Path
    checkpoint: Path

    def flush(self) -> None:
        """Says that the input has ended: all that is open is emitted."""
        self._drop(FLUSH)

    def tick(self) -> None:
        """Makes a batch run without data, so that time is looked at."""
        self._drop(TICK)

    def _drop(self, what: str) -> None:
        make_private_folder(self.folder)
        name = f"{time.time_ns()}-{what}"
        hidden = self.folder / f".{name}"
        hidden.write_text(what + "\n")
        os.rename(hidden, self.folder / f"{name}.txt")

    def repair(self) -> None:
        """Before a start: takes back control files that no planned batch has in it, so that none overtakes data.

        A batch that a crash left planned runs again with the control files it was planned with; those stay. What Spark had begun to write into its logs goes: a job
        whose first batch was never planned would not start for it. Raises StateError `damaged-checkpoint`.
        """
        make_private_folder(self.folder)
        for name in ("offsets", "commits"):
            for part in (self.checkpoint / name).glob(_HALF_WRITTEN):
                part.unlink()
        if newest(self.checkpoint / "offsets") is None and any((self.checkpoint / "state").glob("*")):
            raise damaged(self.checkpoint / "offsets")
        for file in needed(self.checkpoint):
            if not is_sound(file):
                raise damaged(file)
        planned = self._planned()
        logged: set[str] = set()
        for log, entries in self._source_logs():
            if entries and log.name.isdigit() and planned.isdisjoint(entries):
                log.unlink()
                log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
            else:
                logged.update(entries)
        for file in self.folder.iterdir():
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)
            elif file.name not in logged:
                file.unlink(missing_ok=True)

    def recall(self, past: Path) -> None:
        """Gives the first batch the past that lies in a folder (see `backfill`), if no batch has taken it yet. To be called after `repair`."""
        taken = self._taken
        for file in self.awaiting(past):
            name = _past_name(past, file)
            (self.folder / name).unlink(missing_ok=True)
            link(file, self.folder / name)
        if taken and not unfinished(self.checkpoint):
            for file in past.glob("part-*"):
                name = _past_name(past, file)
                if name in taken:
                    (self.folder / name).unlink(missing_ok=True)
                    file.unlink()

    def awaiting(self, past: Path) -> list[Path]:
        """The files of a past that no batch has taken yet."""
        taken = self._taken
        return [file for file in sorted(past.glob("part-*")) if _past_name(past, file) not in taken]

    @property
    def _taken(self) -> set[str]:
        """Names of the control files that batches have been planned with."""
        return {name for _, entries in self._source_logs() for name in entries}

    @staticmethod
    def again(past: Path, operators: Sequence[str]) -> None:
        """Lays beside the past that operators are to give their rows again."""
        make_private_folder(past)
        (past / "part-again").write_text("".join(f"{GIVE_AGAIN} {each}\n" for each in operators), encoding="utf-8")

    def _planned(self) -> set[str]:
        """Names of the control files that the newest offsets cover."""
        offsets = self._newest_offsets()
        covered: set[str] = set()
        for log, _ in self._source_logs():
            reached = offsets.get(log.parent.name, -1)
            covered |= {name for name, at in _log_lines(log) if at <= reached}
        return covered

    def _newest_offsets(self) -> dict[str, int]:
        log = newest(self.checkpoint / "offsets")
        if log is None:
            return {}
        found: dict[str, int] = {}
        with _sound(log):
            for line in log.read_text().splitlines()[2:]:
                name, _, offset = line.partition(":")
                if name.startswith("control_") and offset.startswith("{"):
                    found[name] = int(json.loads(offset)["logOffset"])
        return found

    def _source_logs(self) -> Iterator[tuple[Path, list[str]]]:
        sources = self.checkpoint / "sources"
        for source in sorted(sources.glob("control_*")) if sources.is_dir() else ():
            for log in sorted(source.iterdir()):
                if log.name[0] != ".":
                    yield log, [name for name, _ in _log_lines(log)]


def _past_name(past: Path, file: Path) -> str:
    """The name of a file of the past among control files: no other version has it."""
    return f"{RECALL}-{past.name}-{file.name}"


def _log_lines(log: Path) -> Iterator[tuple[str, int]]:
    """File names in a log of Spark's file source, with the log offset that each came in."""
    with _sound(log):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            yield urllib.parse.unquote(entry["path"]).rsplit("/", 1)[-1], int(entry["batchId"])


@contextmanager
def _sound(file: Path) -> Iterator[None]:
    """In it, a file of Spark's that is not as Spark writes it is a StateError `damaged-checkpoint`."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(file) from error
