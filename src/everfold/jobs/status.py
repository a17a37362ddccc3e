"""The status of a job, read from its job directory by any process, without talking to its driver.

`read_status` takes no lock and changes nothing, so it may be called at any time and as often as
needed. `everfold status`, a shell and a web page draw what it returns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from everfold.jobs.batch_log import last_batch
from everfold.jobs.job_dir import JobDir, no_job_error
from everfold.jobs.ownership import find_local_owner
from everfold.jobs.progress import Progress, RunInfo
from everfold.jobs.progress_log import History, RunEnd, locate_history, read_history
from everfold.jobs.row_samples import RowSamples, read_samples
from everfold.jobs.shared_ownership import find_shared_owner
from everfold.storage import Location

RECENT_BATCHES = 20

JobState: TypeAlias = Literal[
    "starting", "running", "finished", "suspended", "stopped", "failed", "killed", "not running"
]
"""The state of a job.

starting, running: a process owns the directory; the first means that its query does not run yet.
finished, suspended, stopped, failed: how the last run ended (`HowEnded`). killed: it did not say
that it ended. not running: no history is known, as of a job that an earlier release has run, or of
a job in a store that another machine has run.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDirStatus:
    """The status of a job directory.

    name: of the job, empty if it is unknown. owner: the process that runs it, for people, None if
    none does. run: the last run known. version, version_created, epoch: of the query, None before
    the first start was complete. last_batch: the number of the last batch that the sinks received,
    in the current epoch. end: how the last run ended, with its error if it failed; None while it
    runs. batches: the newest batches known, oldest first. samples: of late and skipped rows.
    gaps: what is missing in the input of the job's state, because it was lost, as sentences.
    """

    folder: str
    state: JobState
    name: str = ""
    owner: str | None = None
    run: RunInfo | None = None
    version: int | None = None
    version_created: str | None = None
    epoch: int | None = None
    last_batch: int | None = None
    end: RunEnd | None = None
    batches: tuple[Progress, ...] = ()
    samples: RowSamples = field(default_factory=RowSamples)
    gaps: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether a process runs the job or is starting it."""
        return self.owner is not None

    @property
    def progress(self) -> Progress | None:
        """The progress after the newest batch known, None without one."""
        return self.batches[-1] if self.batches else None

    def lag_ms(self, now_ms: int) -> int | None:
        """Return how far the watermark is behind a time, None without a watermark."""
        watermark = None if self.progress is None else self.progress.watermark_ms
        return None if watermark is None else now_ms - watermark

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON members."""
        return asdict(self)


def read_status(folder: Location, *, batches: int = RECENT_BATCHES) -> JobDirStatus:
    """Return the status of the job in a folder, with at most so many of its newest batches.

    Raises UsageError `no-job`, StateError `damaged-manifest`, `newer-manifest`,
    `damaged-checkpoint`, OSError.
    """
    job_dir = JobDir(folder)
    manifest = job_dir.read_manifest()
    folder_of_history = locate_history(job_dir.log_file)
    # The owner is looked up last: a run that ends meanwhile has then written its end.
    history = read_history(folder_of_history, batches)
    owner = find_owner(folder)
    if owner is None and history.run is not None and history.end is None:
        history = read_history(folder_of_history, batches)
    if manifest is None and history.run is None and owner is None:
        raise no_job_error(folder)
    version = None if manifest is None else manifest.version
    ran = None if manifest is None else last_batch(folder)
    run, name = history.run, "" if history.run is None else history.run.name
    return JobDirStatus(
        folder=str(folder),
        state=_find_state(history, owner),
        name=name,
        owner=owner,
        run=run,
        version=None if version is None else version.number,
        version_created=None if version is None else version.created,
        epoch=None if version is None else version.epoch,
        last_batch=ran[1] if ran is not None and version is not None and ran[0] == version.epoch else None,
        end=None if owner is not None else history.end,
        batches=history.batches,
        samples=read_samples(folder_of_history),
        gaps=() if manifest is None else tuple(gap.summary for gap in manifest.gaps),
    )


def find_owner(folder: Location) -> str | None:
    """Return the process that runs the job in a folder, None if none does. Raises OSError."""
    return find_local_owner(folder) if folder.store.is_local else find_shared_owner(folder)


def _find_state(history: History, owner: str | None) -> JobState:
    run, end = history.run, history.end
    if owner is not None:
        # The last run may be that of an earlier owner.
        is_current = run is not None and end is None and owner.startswith(f"process {run.pid} on {run.host} ")
        return "running" if is_current and run is not None and run.is_under_way else "starting"
    if run is None:
        return "not running"
    return "killed" if end is None else end.how
