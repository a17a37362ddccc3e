"""Control files: tell the operators of a stream to flush, tick, fill or re-emit.

flush: the input has ended. tick: look at the clock. A stream reads control files through one more
source, which has no rate limit. So a file may only be written when the data before it has been
processed.
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
from everfold.jobs.failure import damaged_checkpoint_error
from everfold.jobs.spark_checkpoint import has_unfinished_batch, is_sound, list_required_files, newest_entry
from everfold.spark.exchange import BACKFILL_COMMAND, FLUSH, REEMIT_COMMAND, TICK

_HALF_WRITTEN = ".*.tmp*"
"""Files that Spark has not finished writing, and their checksums."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control folder of a job, and the checkpoint of the stream that reads it."""

    folder: Path
    checkpoint: Path

    def flush(self) -> None:
        """Tell the operators that the input has ended, so that they emit all open results."""
        self._write(FLUSH)

    def tick(self) -> None:
        """Trigger a batch without data, so that the operators look at the clock."""
        self._write(TICK)

    def _write(self, what: str) -> None:
        make_private_folder(self.folder)
        name = f"{time.time_ns()}-{what}"
        hidden = self.folder / f".{name}"
        hidden.write_text(what + "\n")
        os.rename(hidden, self.folder / f"{name}.txt")

    def repair(self) -> None:
        """Remove control files that are not part of a planned batch, so that none overtakes data.

        Call it before a start. A batch that was planned before a crash runs again with its control
        files, so those stay. Also removes the files that Spark has not finished writing into its
        logs: with them, a job whose first batch was never planned would not start.

        Raises StateError `damaged-checkpoint`.
        """
        make_private_folder(self.folder)
        for name in ("offsets", "commits"):
            for part in (self.checkpoint / name).glob(_HALF_WRITTEN):
                part.unlink()
        if newest_entry(self.checkpoint / "offsets") is None and any((self.checkpoint / "state").glob("*")):
            raise damaged_checkpoint_error(self.checkpoint / "offsets")
        for file in list_required_files(self.checkpoint):
            if not is_sound(file):
                raise damaged_checkpoint_error(file)
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

    def link_backfill(self, past: Path) -> None:
        """Link the files of a folder under `backfill/` as control files until a batch reads them.

        Files that a finished batch has read are deleted. Call it after `repair`.
        """
        taken = self._taken
        for file in self.list_pending(past):
            name = _past_name(past, file)
            (self.folder / name).unlink(missing_ok=True)
            link(file, self.folder / name)
        if taken and not has_unfinished_batch(self.checkpoint):
            for file in past.glob("part-*"):
                name = _past_name(past, file)
                if name in taken:
                    (self.folder / name).unlink(missing_ok=True)
                    file.unlink()

    def list_pending(self, past: Path) -> list[Path]:
        """Return the files of a folder under `backfill/` that no batch has read yet."""
        taken = self._taken
        return [file for file in sorted(past.glob("part-*")) if _past_name(past, file) not in taken]

    @property
    def _taken(self) -> set[str]:
        """Names of the control files that are part of planned batches."""
        return {name for _, entries in self._source_logs() for name in entries}

    @staticmethod
    def request_reemit(past: Path, operators: Sequence[str]) -> None:
        """Write the control file that tells operators to re-emit their rows. past: its folder."""
        make_private_folder(past)
        (past / "part-again").write_text("".join(f"{REEMIT_COMMAND} {each}\n" for each in operators), encoding="utf-8")

    def _planned(self) -> set[str]:
        """Return the names of the control files that the newest offsets cover."""
        offsets = self._newest_offsets()
        covered: set[str] = set()
        for log, _ in self._source_logs():
            reached = offsets.get(log.parent.name, -1)
            covered |= {name for name, at in _log_lines(log) if at <= reached}
        return covered

    def _newest_offsets(self) -> dict[str, int]:
        log = newest_entry(self.checkpoint / "offsets")
        if log is None:
            return {}
        found: dict[str, int] = {}
        with _check_log(log):
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
    """Return the name of a backfill file as a control file; it is unique among versions."""
    return f"{BACKFILL_COMMAND}-{past.name}-{file.name}"


def _log_lines(log: Path) -> Iterator[tuple[str, int]]:
    """Yield the file names in a log of Spark's file source, each with its log offset."""
    with _check_log(log):
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            yield urllib.parse.unquote(entry["path"]).rsplit("/", 1)[-1], int(entry["batchId"])


@contextmanager
def _check_log(file: Path) -> Iterator[None]:
    """Raise parse errors of the block as a StateError `damaged-checkpoint` of the file."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise damaged_checkpoint_error(file) from error
