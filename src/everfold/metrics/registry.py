"""The registry of metrics: one entry per metric, with its help text and how it is read.

The page docs/metrics.md is made from it. Every metric of a job has the label `job_name`, in
addition to its own: Prometheus gives `job` to what it scrapes. Labels never contain keys or values
of rows. Times are absolute, so that a lag is computed when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from everfold.connectors.skipped_rows import BAD_RECORD, NO_TIME
from everfold.jobs.progress import OperatorProgress
from everfold.metrics.watched_job import WatchedJob

JOB = "job_name"
Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""Values of a metric with the values of its own labels."""
_REASONS = {BAD_RECORD: "bad-record", NO_TIME: "null-rowtime"}
"""Label values, which are error codes, of the reasons for skipping a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of a job.

    name: without the suffix `_total` of counters. read: returns its values.
    """

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    read: Callable[[WatchedJob], Samples]
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """The name of its series."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _read_operators(read: Callable[[OperatorProgress], float | None]) -> Callable[[WatchedJob], Samples]:
    """Return a function that reads a value of each operator; None is left out."""

    def read_all(job: WatchedJob) -> Iterator[tuple[tuple[str, ...], float]]:
        for operator in () if job.progress is None else job.progress.operators:
            value = read(operator)
            if value is not None:
                yield (operator.name,), value

    return read_all


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _read_info(job: WatchedJob) -> Samples:
    run = job.run
    if run is not None:
        version, epoch = ("" if each is None else str(each) for each in (run.version, run.epoch))
        yield (run.job, version, epoch, run.everfold), 1


def _read_start(job: WatchedJob) -> Samples:
    if job.run is not None:
        yield (), job.run.started_ms / 1000


def _read_commit(job: WatchedJob) -> Samples:
    if job.progress is not None:
        yield (), job.progress.ended_ms / 1000


def _read_sign(job: WatchedJob) -> Samples:
    if job.run is not None:
        yield (), job.sign_ms / 1000


def _read_rows_in(job: WatchedJob) -> Samples:
    return () if job.progress is None else (((each.table,), each.rows) for each in job.progress.sources)


def _read_rows_out(job: WatchedJob) -> Samples:
    return () if job.progress is None else (((each.table,), each.rows) for each in job.progress.sinks)


def _read_skipped(job: WatchedJob) -> Samples:
    found = {} if job.progress is None else job.progress.skipped
    return (((_REASONS[reason],), found.get(reason, 0)) for reason in _REASONS)


def _read_splits(job: WatchedJob) -> Samples:
    for operator in () if job.progress is None else job.progress.operators:
        yield from (((operator.name, split), at / 1000) for split, at in operator.splits.items())


def _read_lags(job: WatchedJob) -> Samples:
    for source in () if job.progress is None else job.progress.sources:
        yield from (((source.table, split), rows) for split, rows in (source.lag or {}).items())


def _read_aggregates(job: WatchedJob) -> Samples:
    for operator in () if job.progress is None else job.progress.operators:
        yield from (((operator.name, label), size) for label, size in operator.aggregate_bytes.items())


def _read_heap(job: WatchedJob) -> Samples:
    if job.progress is not None and job.progress.heap_bytes is not None:
        yield (), job.progress.heap_bytes


def _read_heap_limit(job: WatchedJob) -> Samples:
    if job.progress is not None and job.progress.heap_limit_bytes is not None:
        yield (), job.progress.heap_limit_bytes


def _read_executors(job: WatchedJob) -> Samples:
    for executor, sizes in () if job.progress is None else job.progress.executor_bytes.items():
        yield from (((executor, kind), size) for kind, size in sizes.items())


METRICS: tuple[Metric, ...] = (
    Metric(
        name="everfold_job_info",
        kind="gauge",
        help="1, with the id of the job, the version and epoch of its query, and the release of everfold.",
        labels=("job_id", "version", "epoch", "release"),
        read=_read_info,
    ),
    Metric(
        name="everfold_operator_info",
        kind="gauge",
        help="1, with what a stateful operator computes.",
        labels=("operator", "description"),
        read=lambda job: () if job.run is None else ((pair, 1) for pair in job.run.operators.items()),
    ),
    Metric(name="everfold_start_timestamp_seconds", kind="gauge", help="When this run began.", read=_read_start),
    Metric(
        name="everfold_last_commit_timestamp_seconds",
        kind="gauge",
        help="When a batch was last committed. A job without new input commits none.",
        read=_read_commit,
    ),
    Metric(
        name="everfold_last_sign_timestamp_seconds",
        kind="gauge",
        help="When a batch was last committed, or Spark last found that there is no new input. The probes use it.",
        read=_read_sign,
    ),
    Metric(name="everfold_batches", kind="counter", help="Batches of this run.", read=lambda job: (((), job.batches),)),
    Metric(
        name="everfold_batch_phase_seconds",
        kind="counter",
        help="Time in each phase of the batches of this run, by Spark's names; triggerExecution is the whole batch.",
        labels=("phase",),
        read=lambda job: (((phase,), ms / 1000) for phase, ms in job.phase_ms.items()),
    ),
    Metric(
        name="everfold_rows_in",
        kind="counter",
        help="Rows that this run has read, by table.",
        labels=("source",),
        read=_read_rows_in,
    ),
    Metric(
        name="everfold_rows_out",
        kind="counter",
        help="Rows that this run has passed to sinks, by table; each change of a row counts.",
        labels=("sink",),
        read=_read_rows_out,
    ),
    Metric(
        name="everfold_operator_rows_out",
        kind="counter",
        help="Rows that an operator has emitted in this run, before filters above it.",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.rows_out),
    ),
    Metric(
        name="everfold_retractions",
        kind="counter",
        help="Rows that an operator has emitted in this run to retract an earlier row (-U or -D).",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.retractions),
    ),
    Metric(
        name="everfold_late_rows",
        kind="counter",
        help="Rows that an operator has dropped as late since the job began.",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.late_rows),
    ),
    Metric(
        name="everfold_ignored_retractions",
        kind="counter",
        help="Retractions of rows that do not exist, which an operator has dropped since the job began.",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.ignored_rows),
    ),
    Metric(
        name="everfold_skipped_rows",
        kind="counter",
        help="Rows that options allow to skip, of this run: bad-record for records that cannot be read, null-rowtime "
        "for rows whose time attribute is NULL.",
        labels=("reason",),
        read=_read_skipped,
    ),
    Metric(
        name="everfold_watermark_timestamp_seconds",
        kind="gauge",
        help="The watermark of an operator. That of a TIMESTAMP is a wall clock time, taken as UTC.",
        labels=("operator",),
        read=_read_operators(lambda operator: _seconds(operator.watermark_ms)),
    ),
    Metric(
        name="everfold_split_watermark_timestamp_seconds",
        kind="gauge",
        help="The watermark of a split (a partition of a topic, a table of files) that had rows in this run. The "
        "lowest one holds the operator back.",
        labels=("operator", "split"),
        read=_read_splits,
    ),
    Metric(
        name="everfold_source_lag_rows",
        kind="gauge",
        help="Records in a partition of a topic after the last one that the newest batch reads, when it was planned.",
        labels=("source", "split"),
        read=_read_lags,
    ),
    Metric(
        name="everfold_state_rows",
        kind="gauge",
        help="Rows in the state of an operator.",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.state_rows),
    ),
    Metric(
        name="everfold_state_bytes",
        kind="gauge",
        help="Estimated size of an operator's state: its rows, times the bytes per row of the pages written in this "
        "run. `everfold state` has the exact size.",
        labels=("operator",),
        read=_read_operators(lambda operator: operator.state_bytes),
    ),
    Metric(
        name="everfold_aggregate_state_bytes",
        kind="gauge",
        help="The part of everfold_state_bytes that belongs to an aggregate. Aggregates can share it.",
        labels=("operator", "aggregate"),
        read=_read_aggregates,
    ),
    Metric(
        name="everfold_column_since_timestamp_seconds",
        kind="gauge",
        help="When the state behind a column of the result began: a change of the query can start an aggregate later "
        "than others. A backfilled one counts from the beginning.",
        labels=("column",),
        read=lambda job: (
            () if job.run is None else (((name,), at / 1000) for name, at in job.run.column_since_ms.items())
        ),
    ),
    Metric(
        name="everfold_jvm_heap_bytes",
        kind="gauge",
        help="Memory in use in the heap of Spark's driver, after the newest batch.",
        read=_read_heap,
    ),
    Metric(
        name="everfold_jvm_heap_limit_bytes",
        kind="gauge",
        help="Limit of that heap (spark.driver.memory).",
        read=_read_heap_limit,
    ),
    Metric(
        name="everfold_executor_peak_memory_bytes",
        kind="gauge",
        help="The greatest memory of an executor of a cluster since it started: heap is that in use in the heap of "
        "its JVM. With spark.executor.processTreeMetrics.enabled, jvm is that of the process of the JVM, and python "
        "that of its Python workers. Read every 10 seconds, while batches run.",
        labels=("executor", "memory"),
        read=_read_executors,
    ),
)
BATCH_DURATION = "everfold_batch_duration_seconds"
BATCH_DURATION_HELP = "Duration of the batches of this run, as a histogram."
MEMORY = "everfold_memory_bytes"
MEMORY_HELP = (
    "Memory of the processes on the driver's machine: driver is this Python process, jvm is Spark's driver, workers "
    "are its Python workers. Memory that they share counts once. Not available on macOS."
)
