"""The progress of a long Spark job: which share of its tasks has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from everfold.activity import report_activity

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

_POLL_S = 0.5
_GROUP = "spark.jobGroup.id"


@contextmanager
def report_tasks(spark: SparkSession, activity: str) -> Iterator[None]:
    """Report an activity and the share of the ended tasks of the jobs that this thread runs in it.

    The block's jobs form a group; its name in Spark's web page is the activity.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_GROUP)
    done = threading.Event()
    report_activity(activity)
    context.setJobGroup(activity, activity)
    polling = threading.Thread(target=_poll, args=(context, activity, done), name="everfold-tasks", daemon=True)
    polling.start()
    try:
        yield
    finally:
        done.set()
        context.setLocalProperty(_GROUP, before)  # type: ignore[arg-type]


def _poll(context: SparkContext, activity: str, done: threading.Event) -> None:
    with suppress(Exception):  # Spark may stop; the thread that runs the job reports it
        tracker = context.statusTracker()
        while not done.wait(_POLL_S):
            ended, tasks = _count_tasks(tracker, activity)
            if tasks and not done.is_set():
                report_activity(f"{activity}: {100 * ended // tasks} %")


def _count_tasks(tracker: StatusTracker, group: str) -> tuple[int, int]:
    """Return the ended tasks and all tasks of the stages of a group that Spark remembers."""
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = [stage for job in jobs for each in job.stageIds if (stage := tracker.getStageInfo(each)) is not None]
    return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)
