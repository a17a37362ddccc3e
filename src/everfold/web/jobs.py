"""The jobs that the pages show, found in a folder and read from their directories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from everfold.compat.shape import QueryShape
from everfold.errors import EverfoldError, UsageError
from everfold.jobs.job_dir import load_manifest
from everfold.jobs.job_list import find_jobs
from everfold.jobs.manifest import Manifest, Version
from everfold.jobs.run_record import operator_shapes
from everfold.jobs.status import JobDirStatus, read_status
from everfold.storage import Location
from everfold.web.plan_graph import PlanGraph, draw_plan

CHART_BATCHES = 500
"""How many batches the charts show."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job in the folder. path: relative to the folder. status: None if it cannot be read."""

    path: str
    location: Location
    status: JobDirStatus | None
    error: str = ""

    @property
    def lag_ms(self) -> int | None:
        """How far the watermark is behind: now for a running job, at its end for another."""
        return None if self.status is None else self.status.lag_ms(read_time(self.status))


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs in a folder. base: the folder."""

    base: Location

    def list(self) -> Iterator[FoundJob]:
        """Yield the jobs, also those that cannot be read."""
        for each in find_jobs(self.base):
            path = each.relative_to(self.base) or "."
            try:
                yield FoundJob(path, each, read_status(each, batches=1))
            except (EverfoldError, OSError) as error:
                message = error.diagnostics[0].message if isinstance(error, EverfoldError) else str(error)
                yield FoundJob(path, each, None, message)

    def find(self, path: str) -> Location:
        """Return the directory of a job by its path. Raises UsageError `no-job`."""
        for each in find_jobs(self.base):
            if (each.relative_to(self.base) or ".") == path:
                return each
        raise UsageError.of("no-job", f"there is no job `{path}` here", help="the list of jobs is on the first page")


@dataclass(frozen=True)
class JobView:
    """A job, as its pages show it. manifest: None before its first start was complete."""

    path: str
    location: Location
    status: JobDirStatus
    manifest: Manifest | None

    @classmethod
    def read(cls, path: str, location: Location) -> JobView:
        """Read a job. Raises the errors of `read_status`."""
        status = read_status(location, batches=CHART_BATCHES)
        return cls(path, location, status, None if status.version is None else load_manifest(location))

    @property
    def lag_ms(self) -> int | None:
        """How far the watermark is behind."""
        return self.status.lag_ms(read_time(self.status))

    @cached_property
    def graph(self) -> PlanGraph | None:
        """The plan of the current version."""
        if self.manifest is None:
            return None
        names = self.manifest.version.operators
        return draw_plan(self._query_shapes, names, self.status.progress, read_time(self.status))

    @cached_property
    def operator_labels(self) -> dict[str, str]:
        """What each operator computes, by name."""
        if self.manifest is None:
            return {}
        shapes = operator_shapes(self.manifest.version.operators, self._query_shapes)
        return {name: each.label for name, each in shapes.items()}

    @cached_property
    def _query_shapes(self) -> list[QueryShape]:
        """The shapes of the queries of the current version."""
        return [] if self.manifest is None else self.manifest.version.query_shapes

    def list_version_starts(self) -> list[dict[str, float]]:
        """Return the number of each version, and when it began in epoch seconds."""
        versions = () if self.manifest is None else self.manifest.versions
        return [{"number": each.number, "time": each.created_ms / 1000} for each in versions]

    def chart_data(self) -> dict[str, list[float | None]]:
        """Return the series of the charts, one value per batch: seconds, rows and bytes."""
        batches = self.status.batches
        phases = ("addBatch", "queryPlanning", "commitBatch", "latestOffset", "walCommit")
        series: dict[str, list[float | None]] = {
            "time": [each.ended_ms / 1000 for each in batches],
            "rows per second": [each.rows_per_second for each in batches],
            "lag": [
                None if each.watermark_ms is None else (each.ended_ms - each.watermark_ms) / 1000 for each in batches
            ],
            "state rows": [float(each.state_rows) for each in batches],
            "state bytes": [float(sum(of.state_bytes or 0 for of in each.operators)) for each in batches],
            "whole batch": [(each.ended_ms - each.started_ms) / 1000 for each in batches],
        }
        for phase in phases:
            series[phase] = [each.phases_ms.get(phase, 0) / 1000 for each in batches]
        return series


def read_time(status: JobDirStatus) -> int:
    """Return the time that a lag refers to: now while a job runs, else that of its last batch."""
    if status.is_running or status.progress is None:
        return round(time.time() * 1000)
    return status.progress.ended_ms


def find_version(view: JobView, number: int) -> Version:
    """Return a version of a job. Raises UsageError `no-version`, `no-job`."""
    if view.manifest is None:
        raise UsageError.of("no-job", f"the job `{view.path}` has no version yet")
    return view.manifest.find_version(number)
