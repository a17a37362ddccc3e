"""What lies in the state of a job, as of its last finished batch: read out of its checkpoint by Spark, without the job's lock and without writing into its folder.

A job that runs meanwhile goes on; its checkpoint keeps many batches, so what is read stays there for a while.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.cache import cache_folder
from everfold.compat.shape import OperatorShape
from everfold.errors import EverfoldError, StateError, UsageError
from everfold.jobs.failure import damaged, explained
from everfold.jobs.folder import JobFolder, Manifest, Version, manifest_of
from everfold.jobs.soundness import is_sound, needed, newest, newest_batch
from everfold.operators.shown import StateTable, shown_table
from everfold.operators.sizes import StateSizes, sizes_of
from everfold.operators.stored import stored_tables
from everfold.spark.session import own_session
from everfold.state.store import MemoryStore, PageKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN_FAILURE = "job-failed"
_COLUMNS = ("key.bucket", "user_map_key.epoch", "user_map_key.tbl", "user_map_key.at", "user_map_key.part")
_BLOB = "user_map_value.blob"


@dataclass(frozen=True, slots=True)
class Since:
    """Since when an aggregate counts: the version of the job, when that began, and whether it was given what was before."""

    aggregate: str
    version: int
    created: str
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class NamedOperator:
    """An operator of a job. name: `w1`, … label: as `everfold history` shows it."""

    name: str
    label: str
    shape: OperatorShape = field(repr=False)


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator."""

    operator: NamedOperator
    since: tuple[Since, ...]
    tables: tuple[StateTable, ...]
    sizes: StateSizes


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job as of a batch. version: of its query. zone: of its session. operators: topmost first."""

    version: Version
    batch: int
    operators: tuple[OperatorState, ...]

    @property
    def zone(self) -> str:
        """The session's time zone."""
        return self.version.zone


def operators_of(version: Version) -> list[NamedOperator]:
    """The operators of a job, topmost first, under the names that their state has."""
    found: list[NamedOperator] = []
    made = 0
    for shape in version.known:
        names = {at: f"w{made + nth}" for nth, at in enumerate(shape.upwards, 1)}
        made += len(names)
        found += [NamedOperator(names[at], each.label, each) for at, each in enumerate(shape.operators)]
    return found


def chosen(operators: Sequence[NamedOperator], wanted: str | None) -> list[NamedOperator]:
    """The operators of that name or label, all for None. UsageError `no-operator`."""
    found = [each for each in operators if wanted in (None, each.name, each.label)]
    if wanted is not None and not found:
        there = ", ".join(f"`{each.name}` ({each.label})" for each in operators)
        raise UsageError.of(
            "no-operator",
            f"the job has no operator `{wanted}`",
            help=f"there are {there}" if there else "no operator of its query keeps state",
        )
    return found


@dataclass(slots=True)
class Inspection:
    """A look at the job in a folder, made before Spark is there.

    Raises UsageError `no-job`, `no-operator`, StateError `damaged-manifest`, `newer-manifest`, `no-batch`, `damaged-checkpoint`.
    """

    folder: Path
    wanted: str | None = None
    manifest: Manifest = field(init=False)
    operators: list[NamedOperator] = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.manifest = manifest_of(self.folder)
        self.operators = chosen(operators_of(self.manifest.version), self.wanted)
        if self.batch < 0:
            raise StateError.of(
                "no-batch",
                f"the job in `{self.folder}` has not finished a batch yet: there is no state",
                help="run it first",
            )
        for file in needed(self._checkpoint):
            if not is_sound(file):
                raise damaged(file)

    @property
    def batch(self) -> int:
        """The last finished batch, -1 for none."""
        return newest_batch(self._checkpoint / "commits")

    @property
    def _checkpoint(self) -> Path:
        return JobFolder(self.folder).checkpoint(self.manifest.current)

    def read(self, start: Callable[[], SparkSession]) -> JobState:
        """The state. start: Spark, which is started if there is something to read.

        StateError `damaged-page`, `damaged-checkpoint`, `unreadable-state`, `unknown-aggregate-state`.
        """
        batch = self.batch
        if not self.operators:
            return JobState(self.manifest.version, batch, ())
        spark = start()
        try:
            return self._read(spark, batch)
        except Exception as error:
            # The job may have gone on, and have cleared that batch away.
            if self.batch == batch:
                raise self._explained(error) from error
        try:
            return self._read(spark, self.batch)
        except Exception as error:
            raise self._explained(error) from error

    def _read(self, spark: SparkSession, batch: int) -> JobState:
        session = _session(spark, self.manifest.partitions)
        folders = dict(_folders(self._checkpoint))
        found = []
        for operator in self.operators:
            if operator.name not in folders:
                raise damaged(self._checkpoint / "state")
            stores = self._stores(session, operator, folders[operator.name], batch)
            found.append(self._operator_state(operator, stores))
        return JobState(self.manifest.version, batch, tuple(found))

    def _operator_state(self, operator: NamedOperator, stores: Sequence[MemoryStore]) -> OperatorState:
        shape, epoch = operator.shape, self.manifest.version.state_epoch
        versions = {each.number: each for each in self.manifest.versions}
        begun = ((call.label, versions[call.since]) for call in shape.calls)
        since = tuple(Since(label, each.number, each.created, each.backfilled) for label, each in begun)
        tables = tuple(shown_table(shape, each) for each in stored_tables(shape, stores, epoch))
        sizes = sizes_of(shape, (page for store in stores for page in store.pages.items()))
        return OperatorState(operator, since, tables, sizes)

    def _stores(
        self, session: SparkSession, operator: NamedOperator, spark_operator: int, batch: int
    ) -> list[MemoryStore]:
        """The pages of an operator by bucket. Those of an epoch that was given up are left out."""
        reader = session.read.format("statestore").option("operatorId", spark_operator).option("batchId", batch)
        pages = reader.option("stateVarName", f"pages_{operator.name}").load(str(self._checkpoint))
        epoch = self.manifest.version.state_epoch
        found = pages.where(f"user_map_key.epoch = {epoch}").select(*_COLUMNS, _BLOB).toArrow()
        buckets, *keys, blobs = (column.to_pylist() for column in found.columns)
        stores = {bucket: MemoryStore() for bucket in sorted(set(buckets))}
        for bucket, key, blob in zip(buckets, zip(*keys, strict=True), blobs, strict=True):
            stores[bucket].pages[PageKey(*key)] = blob
        return [*stores.values()]

    def _explained(self, error: Exception) -> EverfoldError:
        """The error that a user is shown."""
        found = explained(error, (), JobFolder(self.folder).log_file)
        if found.code != _UNKNOWN_FAILURE:
            return found
        return StateError.of(
            "unreadable-state",
            f"the state of the job in `{self.folder}` cannot be read: {found.diagnostics[0].message}",
            help=f"if the job runs, try again when it is stopped; Spark's words are in {log_file()}",
        )


def _session(spark: SparkSession, partitions: int) -> SparkSession:
    """A session that reads state and leaves no trace where it lies."""
    session = own_session(spark, partitions)
    # Else Spark begins a changelog of what nobody will write, in the folder that it reads.
    session.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")
    # A store that is loaded reports to a coordinator, which Spark starts with its first manager of streams.
    session.streams.resetTerminated()
    return session


def log_file() -> Path:
    """Where the words of Spark go that reads a state: not into the job's folder."""
    return cache_folder() / "state.log"


def _folders(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """The names of the operators whose state lies in a checkpoint, and by which number Spark knows each. StateError `damaged-checkpoint`."""
    for folder in (checkpoint / "state").glob("*/_metadata/v2"):
        file = newest(folder)
        if file is None:
            continue
        try:
            _, facts = file.read_text(encoding="utf-8").split("\n")
            found = json.loads(facts)
            variables = json.loads(found["operatorPropertiesJson"])["stateVariables"]
            number = int(found["operatorInfo"]["operatorId"])
            yield from ((each["stateName"].removeprefix("pages_"), number) for each in variables)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(file) from error
