"""The state of a job as of its last finished batch.

It is read from the checkpoint by Spark, without the job's lock and without writing into the job
directory. A job that is running is not affected; its checkpoint keeps many batches, so the one that
is read remains available for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.activity import report_activity
from everfold.checkpoint.damage import check_required_files
from everfold.checkpoint.logs import last_finished_batch
from everfold.compat.shape import OperatorShape
from everfold.errors import EverfoldError, StateError, UsageError
from everfold.files import cache_folder
from everfold.inspection.reader import read_tables
from everfold.inspection.sizes import StateSizes, sizes_of
from everfold.inspection.tables import StateTable, to_state_table
from everfold.jobs.failure import explain_failure
from everfold.jobs.job_dir import JobDir, load_manifest
from everfold.jobs.manifest import Manifest, Version
from everfold.jobs.state_pages import read_pages, reading_session
from everfold.state.store import MemoryStore, PageKey
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN_FAILURE = "job-failed"


@dataclass(frozen=True, slots=True)
class AggregateStart:
    """When an aggregate began to count: the version of the job, when that version was created, and
    whether the aggregate was backfilled.
    """

    aggregate: str
    version: int
    created: str
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class NamedOperator:
    """An operator of a job.

    name: `w1`, … label: as `everfold history` shows it.
    """

    name: str
    label: str
    shape: OperatorShape = field(repr=False)


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator."""

    operator: NamedOperator
    since: tuple[AggregateStart, ...]
    tables: tuple[StateTable, ...]
    sizes: StateSizes


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job as of a batch.

    version: of its query. operators: topmost first.
    """

    version: Version
    batch: int
    operators: tuple[OperatorState, ...]

    @property
    def zone(self) -> str:
        """The session's time zone."""
        return self.version.zone


def named_operators(version: Version) -> list[NamedOperator]:
    """Return the operators of a job, topmost first, under the names that their state has."""
    shapes = [each for shape in version.query_shapes for each in shape.operators]
    return [NamedOperator(name, each.label, each) for name, each in zip(version.operators, shapes, strict=True)]


def select_operators(operators: Sequence[NamedOperator], wanted: str | None) -> list[NamedOperator]:
    """Return the operators with that name or label, or all for None. UsageError `no-operator`."""
    found = [each for each in operators if wanted in (None, each.name, each.label)]
    if wanted is not None and not found:
        names = ", ".join(f"`{each.name}` ({each.label})" for each in operators)
        raise UsageError.of(
            "no-operator",
            f"the job has no operator `{wanted}`",
            help=f"its operators are {names}" if names else "its query has no stateful operator",
        )
    return found


@dataclass(slots=True)
class Inspection:
    """A view of the job in a directory, created before Spark is started.

    Raises UsageError `no-job`, `no-operator`, StateError `damaged-manifest`, `newer-manifest`,
    `no-batch`, `damaged-checkpoint`.
    """

    folder: Location
    wanted: str | None = None
    manifest: Manifest = field(init=False)
    operators: list[NamedOperator] = field(init=False)

    def __post_init__(self) -> None:
        self.manifest = load_manifest(self.folder)
        self.operators = select_operators(named_operators(self.manifest.version), self.wanted)
        if self.batch < 0:
            raise StateError.of(
                "no-batch",
                f"the job in `{self.folder}` has not finished a batch yet: there is no state",
                help="run it first",
            )
        check_required_files(self._checkpoint)

    @property
    def batch(self) -> int:
        """The last finished batch, -1 for none."""
        return last_finished_batch(self._checkpoint)

    @property
    def _checkpoint(self) -> Location:
        return JobDir(self.folder).checkpoint(self.manifest, self.manifest.current)

    def read(self, start: Callable[[], SparkSession]) -> JobState:
        """Return the state.

        start: starts Spark; called if there is something to read. StateError `damaged-page`,
        `damaged-checkpoint`, `unreadable-state`, `unknown-aggregate-state`.
        """
        batch = self.batch
        if not self.operators:
            return JobState(self.manifest.version, batch, ())
        spark = start()
        try:
            return self._read(spark, batch)
        except Exception as error:
            # The job may have continued and removed that batch.
            if self.batch == batch:
                raise self._explain(error) from error
        try:
            return self._read(spark, self.batch)
        except Exception as error:
            raise self._explain(error) from error

    def _read(self, spark: SparkSession, batch: int) -> JobState:
        report_activity("reading the state")
        session = reading_session(spark, self.manifest.count_partitions(self.manifest.version))
        found = [self._operator_state(each, self._stores(session, each, batch)) for each in self.operators]
        return JobState(self.manifest.version, batch, tuple(found))

    def _operator_state(self, operator: NamedOperator, stores: Sequence[MemoryStore]) -> OperatorState:
        shape, epoch = operator.shape, self.manifest.version.state_epoch
        versions = {each.number: each for each in self.manifest.versions}
        started = ((call.label, versions[call.since]) for call in shape.calls)
        since = tuple(AggregateStart(label, each.number, each.created, each.is_backfilled) for label, each in started)
        tables = tuple(to_state_table(shape, each) for each in read_tables(shape, stores, epoch))
        sizes = sizes_of(shape, (page for store in stores for page in store.pages.items()))
        return OperatorState(operator, since, tables, sizes)

    def _stores(self, session: SparkSession, operator: NamedOperator, batch: int) -> list[MemoryStore]:
        """Return the pages of an operator by bucket, without those of an epoch that was
        discarded.
        """
        version = self.manifest.version
        epoch = version.state_epoch
        pages = read_pages(session, self._checkpoint, version.find_operator(operator.name), epoch, batch).toArrow()
        stores: dict[int, MemoryStore] = {}
        for bucket, table, at, part, blob in zip(*(column.to_pylist() for column in pages.columns), strict=True):
            stores.setdefault(bucket, MemoryStore()).pages[PageKey(epoch, table, at, part)] = blob
        return [stores[bucket] for bucket in sorted(stores)]

    def _explain(self, error: Exception) -> EverfoldError:
        """Return the error that a user is shown."""
        found = explain_failure(error, (), JobDir(self.folder).log_file, self.folder)
        if found.code != _UNKNOWN_FAILURE:
            return found
        return StateError.of(
            "unreadable-state",
            f"the state of the job in `{self.folder}` cannot be read: {found.diagnostics[0].message}",
            help=f"if the job is running, stop it and try again; the log of Spark is {log_file()}",
        )


def log_file() -> Path:
    """Return the log file of a Spark that reads state. It is not in the job directory."""
    return cache_folder() / "state.log"
