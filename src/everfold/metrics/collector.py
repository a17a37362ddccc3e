"""The metrics of watched jobs in the types of prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from everfold.jobs.progress import WHOLE_BATCH
from everfold.metrics.memory import measure_memory
from everfold.metrics.registry import BATCH_DURATION, BATCH_DURATION_HELP, JOB, MEMORY, MEMORY_HELP, METRICS
from everfold.metrics.watched_job import BATCH_SECONDS, WatchedJob

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class JobCollector(Collector):
    """Collects the metrics of jobs when they are asked for. list_jobs: returns the jobs."""

    def __init__(self, list_jobs: Callable[[], Sequence[WatchedJob]]) -> None:
        self._list_jobs = list_jobs

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all jobs."""
        jobs = [each.copy() for each in self._list_jobs()]
        for metric in METRICS:
            of = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = of(metric.name, metric.help, labels=(JOB, *metric.labels))
            for job in jobs:
                for labels, value in metric.read(job):
                    family.add_metric((job.name, *labels), value)
            yield family
        yield _collect_durations(jobs)
        yield _collect_memory(jobs)


def _collect_durations(jobs: Sequence[WatchedJob]) -> Metric:
    family = HistogramMetricFamily(BATCH_DURATION, BATCH_DURATION_HELP, labels=(JOB,))
    bounds = [*map(str, BATCH_SECONDS), "+Inf"]
    for job in jobs:
        buckets = list(zip(bounds, map(float, accumulate(job.slower)), strict=True))
        family.add_metric((job.name,), buckets, sum_value=job.phase_ms.get(WHOLE_BATCH, 0) / 1000)
    return family


def _collect_memory(jobs: Sequence[WatchedJob]) -> Metric:
    family = GaugeMetricFamily(MEMORY, MEMORY_HELP, labels=("process",))
    jvms = {job.run.jvm_pid for job in jobs if job.run is not None and job.run.jvm_pid is not None}
    for process, size in measure_memory(jvms).items():
        family.add_metric((process,), size)
    return family
