"""Control files: tell the operators of a stream to flush, tick, fill or re-emit.

flush: the input has ended. tick: look at the clock. A stream reads control files through one more
source, which has no rate limit. So a file may only be written when the data before it has been
processed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everfold.checkpoint.damage import check_file, check_required_files, damaged_checkpoint_error
from everfold.checkpoint.file_log import list_logs, parse_number, read_log
from everfold.checkpoint.files import remove_file
from everfold.checkpoint.logs import has_unfinished_batch, last_planned_batch, read_positions, remove_half_written
from everfold.spark.exchange import BACKFILL_COMMAND, REEMIT_COMMAND, TICK
from everfold.spark.task_input import FLUSH
from everfold.storage import Location

_SOURCES = "control_"
"""Prefix of the sources that read control files."""


@dataclass(frozen=True, slots=True)
class Control:
    """The control folder of a job, and the checkpoint of the stream that reads it."""

    folder: Location
    checkpoint: Location

    def flush(self) -> None:
        """Tell the operators that the input has ended, so that they emit all open results."""
        self._write(FLUSH)

    def tick(self) -> None:
        """Trigger a batch without data, so that the operators look at the clock."""
        self._write(TICK)

    def _write(self, what: str) -> None:
        (self.folder / f"{time.time_ns()}-{what}.txt").write(what + "\n")

    def repair(self) -> None:
        """Remove control files that are not part of a planned batch, so that none overtakes data.

        Call it before a start. A batch that was planned before a crash runs again with its control
        files, so those stay. Also removes the files that Spark has not finished writing into its
        logs: with them, a job whose first batch was never planned would not start.

        Raises StateError `damaged-checkpoint`.
        """
        self.folder.make_folder()
        remove_half_written(self.checkpoint)
        if last_planned_batch(self.checkpoint) < 0 and any((self.checkpoint / "state").glob("*")):
            raise damaged_checkpoint_error(self.checkpoint / "offsets")
        check_required_files(self.checkpoint)
        logs = list(self._source_logs())
        planned = self._planned(logs)
        logged: set[str] = set()
        for log, entries in logs:
            names = {name for name, _ in entries}
            if names and log.name.isdigit() and planned.isdisjoint(names):
                remove_file(log)
            else:
                logged |= names
        for file in self.folder.iterdir():
            if file.name not in logged:
                file.delete()

    def link_backfill(self, past: Location) -> None:
        """Link the files of a folder under `backfill/` as control files until a batch reads them.

        Files that a finished batch has read are deleted. Call it after `repair`.
        """
        taken = self._taken
        for file in self.list_pending(past):
            name = _past_name(past, file)
            (self.folder / name).delete()
            file.copy_to(self.folder / name)
        if taken and not has_unfinished_batch(self.checkpoint):
            for file in past.glob("part-*"):
                name = _past_name(past, file)
                if name in taken:
                    (self.folder / name).delete()
                    file.delete()

    def list_pending(self, past: Location) -> list[Location]:
        """Return the files of a folder under `backfill/` that no batch has read yet."""
        taken = self._taken
        return [file for file in past.glob("part-*") if _past_name(past, file) not in taken]

    @property
    def _taken(self) -> set[str]:
        """Names of the control files that are part of planned batches."""
        return {name for _, entries in self._source_logs() for name, _ in entries}

    @staticmethod
    def request_reemit(past: Location, operators: Sequence[str]) -> None:
        """Write the control file that tells operators to re-emit their rows. past: its folder."""
        (past / "part-again").write("".join(f"{REEMIT_COMMAND} {each}\n" for each in operators))

    def _planned(self, logs: Sequence[tuple[Location, list[tuple[str, int]]]]) -> set[str]:
        """Return the names of the control files that the newest offsets cover.

        logs: see `_source_logs`.
        """
        batch = last_planned_batch(self.checkpoint)
        with check_file(self.checkpoint / "offsets" / str(batch)):
            positions = read_positions(self.checkpoint, batch)
            reached = {
                name: parse_number(position)
                for name, position in positions.items()
                if name.startswith(_SOURCES) and position.startswith("{")  # not `-`, no position
            }
        return {name for log, entries in logs for name, number in entries if number <= reached.get(log.parent.name, -1)}

    def _source_logs(self) -> Iterator[tuple[Location, list[tuple[str, int]]]]:
        """Yield the files of the logs of control files, each with names and log offsets."""
        sources = self.checkpoint / "sources"
        for source in sources.glob(f"{_SOURCES}*"):
            for log in list_logs(source):
                with check_file(log):
                    yield log, [(each.path.name, each.number) for each in read_log(log)]


def _past_name(past: Location, file: Location) -> str:
    """Return the name of a backfill file as a control file; it is unique among versions."""
    return f"{BACKFILL_COMMAND}-{past.name}-{file.name}"
