"""The record of a run: what it is, each of its batches, and how it ends.

It is written to the history of the job (`progress_log`), and passed on to the caller's callbacks.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import everfold
from everfold.compat.shape import OperatorShape, QueryShape
from everfold.connectors.skipped_rows import SkippedRow
from everfold.errors import EverfoldError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.open_runs import end_at_exit
from everfold.jobs.progress import Progress, RunInfo
from everfold.jobs.progress_log import HowEnded, ProgressLog, RunEnd, locate_history
from everfold.jobs.row_samples import LateSample, RowSamples, SkippedSample, read_samples, write_samples
from everfold.jobs.spec import JobSpec
from everfold.operators.protocol import LateRow
from everfold.secrets import redact_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MESSAGE_CHARACTERS = 2000


@dataclass(slots=True)
class RunRecorder:
    """Records a run. spec: has the callbacks of the caller."""

    spec: JobSpec
    log: ProgressLog
    run: RunInfo
    _samples: RowSamples | None = None

    def describe(self, **facts: Any) -> None:
        """Record what has become known about the run: fields of RunInfo."""
        self.run = replace(self.run, **facts)
        self.log.begin(self.run)
        if self.run.is_under_way:
            self.spec.started(self.run)

    def add(self, progress: Progress) -> None:
        """Record a batch."""
        self.log.add(progress)
        if self.spec.progress is not None:
            self.spec.progress(progress)

    def add_samples(self, batch: int, late: Sequence[tuple[str, LateRow]], skipped: Sequence[SkippedRow]) -> None:
        """Record examples of a batch: late rows with their operators, and skipped rows."""
        if not late and not skipped:
            return
        folder = self.log.folder
        if self._samples is None:
            self._samples = read_samples(folder)
        self._samples = self._samples.add(
            [LateSample(batch=batch, operator=name, **asdict(row)) for name, row in late],
            [SkippedSample(batch=batch, **asdict(row)) for row in skipped],
        )
        write_samples(folder, self._samples)


@contextmanager
def record_run(job_dir: JobDir, spec: JobSpec) -> Iterator[RunRecorder]:
    """Record the run of the block: its begin and its end, also a failure or an exit on request."""
    run = RunInfo(
        name=spec.name or job_dir.path.name,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_ms=_now_ms(),
        everfold=everfold.__version__,
        streaming=spec.settings.streaming,
    )
    recorder = RunRecorder(spec, ProgressLog(locate_history(job_dir.log_file)), run)
    recorder.log.begin(run)
    try:
        with end_at_exit(lambda: recorder.log.end(RunEnd(how="stopped", ended_ms=_now_ms()))):
            yield recorder
    except BaseException as error:
        recorder.log.end(_describe_failure(error))
        raise
    how: HowEnded = "stopped" if spec.stopping() else "suspended" if spec.suspend else "finished"
    recorder.log.end(RunEnd(how=how, ended_ms=_now_ms()))


def describe_version(manifest: Manifest, spark: SparkSession) -> dict[str, Any]:
    """Return what RunInfo says about the query of a job and its JVM."""
    version = manifest.version
    shapes = operator_shapes(version.operators, version.query_shapes)
    jvm: Any = spark._jvm
    return {
        "job": manifest.job,
        "version": version.number,
        "epoch": version.epoch,
        "operators": {name: shape.label for name, shape in shapes.items()},
        "column_since_ms": find_column_starts(manifest),
        "jvm_pid": int(jvm.java.lang.ProcessHandle.current().pid()),
    }


def operator_shapes(names: Sequence[str], shapes: Sequence[QueryShape]) -> dict[str, OperatorShape]:
    """Return the shapes of the operators of queries, by name. names: in the order of the shapes."""
    return dict(zip(names, (each for shape in shapes for each in shape.operators), strict=True))


def find_column_starts(manifest: Manifest) -> dict[str, int]:
    """Return when the state behind each column of the result began, in epoch milliseconds.

    This is the creation of the version since which the newest of its aggregates counts. The state
    of keys and rows, and of aggregates that were backfilled, began with the state as a whole.
    Columns without state are left out.
    """
    versions = {each.number: each for each in manifest.versions}
    whole = manifest.version.state_epoch
    found: dict[str, int] = {}
    for shape in manifest.version.query_shapes:
        for column in shape.columns:
            starts = [_find_start(shape, at, text, whole) for at, text in column.origins]
            if starts:
                name = f"{shape.sink}.{column.name}" if shape.sink else column.name
                found[name] = versions[max(starts)].created_ms
    return found


def _find_start(shape: QueryShape, at: int, text: str | None, whole: int) -> int:
    """Return the version with which a part of the state began. at, text: as in ColumnShape."""
    since = next((call.counts_since for call in shape.operators[at].calls if call.text == text), whole)
    return max(since, whole)


def _describe_failure(error: BaseException) -> RunEnd:
    if isinstance(error, EverfoldError):
        first = error.diagnostics[0]
        code, message = first.code, first.message
    else:
        code, message = type(error).__name__, str(error)
    return RunEnd(
        how="failed", ended_ms=_now_ms(), error=code, message=redact_log(message.strip())[:_MESSAGE_CHARACTERS]
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
