"""Job directories without Spark: open one for a query, and carry out the change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from everfold.jobs.answers import Inputs
from everfold.jobs.carry_out import ChangeExecutor
from everfold.jobs.change import OnChange
from everfold.jobs.change_plan import BackfillCalls, ChangePlan
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest
from everfold.jobs.opening import open_job
from everfold.jobs.rewind import Consent, NewSink
from everfold.jobs.spec import JobSpec, ignore
from everfold.plan.nodes import Root
from everfold.sql.settings import Settings
from everfold.storage import local


def open_dir(
    path: Path,
    roots: Sequence[Root],
    *,
    zone: str = "UTC",
    how: OnChange = OnChange.REFUSE,
    refresh: bool = False,
    extended: bool = False,
    sql: str = "",
    folder: Path | None = None,
    sinks: Mapping[str, NewSink] | None = None,
    notes: list[str] | None = None,
) -> ChangePlan:
    """Return how a job starts in a directory.

    folder: start of relative paths. sinks: answers about tables. notes: receives the notes.
    """
    options = {"table.local-time-zone": zone} | ({"everfold.compat.rules": "extended"} if extended else {})
    spec = JobSpec(
        roots=roots,
        settings=Settings.of(options),
        base_folder=folder or path,
        sql=sql,
        decide=lambda _: how,
        consent=Consent(refresh=refresh, sinks=sinks or {}, note=ignore if notes is None else notes.append),
    )
    return open_job(JobDir(local(path)), spec, Inputs(), buckets=8, partitions=2)


def carry_out(path: Path, plan: ChangePlan) -> Manifest:
    """Carry out a plan without its backfill, and return the manifest."""
    stages = tuple(stage for stage in plan.stages if not isinstance(stage, BackfillCalls))
    no_spark = cast(Any, None)
    ChangeExecutor(JobDir(local(path)), no_spark, replace(plan, stages=stages), (), no_spark, "UTC", print).run()
    return plan.manifest


def start_job(path: Path, roots: Sequence[Root], **options: Any) -> Manifest:
    """Open a job and carry out the plan. options: see `open_dir`."""
    return carry_out(path, open_dir(path, roots, **options))
