"""The past of aggregates that begin with a new version of a job: what it has read so far is read again, up to the very offsets at which it stands, computed
in a batch for these aggregates alone, and laid beside the job as control files, which its first batch takes in.

backfill/<version>/ holds those files from before the change is settled until a later start finds that batch done, so a process that is killed in between
neither loses nor repeats them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.compat.operator_ids import SourceNote, named, operators_of
from everfold.connectors.null_rowtime import PLACE
from everfold.jobs.failure import explained
from everfold.jobs.sources import Sources
from everfold.jobs.spark_checkpoint import newest_batch
from everfold.jobs.state_pages import pages_of
from everfold.operators.backfill import Aggregating, Fillable, as_given, beginning, is_fillable
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import NO_WATERMARK
from everfold.plan.explain import call_sql
from everfold.plan.nodes import OverAggregate, Root, Scan, StatefulNode
from everfold.spark.backfill_writer import Recall
from everfold.spark.batch import BatchLowering
from everfold.spark.exchange import HASH
from everfold.spark.operator_inputs import hash_text, input_texts
from everfold.spark.scalar import Scalars
from everfold.state.bucket_head import HEAD
from everfold.state.pages import decode_head

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLITTING = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
"""Spark cuts files into pieces of the first size, or of one core's share of all bytes if that is less, but of no less than the second."""


@dataclass(frozen=True, slots=True)
class Filled:
    """An operator's new aggregates that were given their past. rows: of the past. late: rows that the job had dropped; counted: whether they are counted now."""

    calls: tuple[str, ...]
    rows: int
    late: int
    counted: bool

    @property
    def text(self) -> str:
        """For people."""
        said = f"{', '.join(self.calls)}: computed from the beginning, over {self.rows:,} row{'s' * (self.rows != 1)}"
        if self.late:
            were = "is" if self.late == 1 else "are"
            said += (
                f"; {self.late:,} that the job had dropped as late {were} {'counted' if self.counted else 'left out'}"
            )
        return said


@dataclass(slots=True)
class Backfill:
    """Makes the past of the aggregates that begin with a version. reading: a session for state. checkpoint: where the job stands. target: the folder for what is made.
    epoch: of the state. operators: their names, by place; fresh: those that are new as a whole, which have another past. notes: of its sources. gone: what of the past is there no more, as sentences."""

    spark: SparkSession
    reading: SparkSession
    checkpoint: Path
    target: Path
    version: int
    epoch: int
    operators: Sequence[str]
    fresh: Collection[str]
    notes: Sequence[SourceNote]
    sources: Sources
    zone: str
    bucket_ids: tuple[int, ...]
    log_file: Path
    gone: list[str] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _operators: dict[int, str] = field(default_factory=dict)
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _order: dict[str, int] = field(default_factory=dict)

    def write(self, roots: Sequence[Root]) -> list[Filled]:
        """Computes the past of what is new in these plans.

        StateError `no-backfill`, `no-past`; ConnectorError of a source.
        """
        shutil.rmtree(self.target, ignore_errors=True)
        self._names = named(roots, self.notes)
        nodes = operators_of(roots)
        self._operators = {id(node): name for name, node in zip(self.operators, nodes, strict=True)}
        try:
            known = (node for node in nodes if self._operators[id(node)] not in self.fresh)
            begun = ((node, beginning(node, self.version)) for node in known)
            return [self._filled(node, new) for node, new in begun if new is not None]
        except Exception as error:
            raise explained(error, self.sources.opened, self.log_file) from error

    def _filled(self, node: StatefulNode, begun: Aggregating) -> Filled:
        given = replace(begun, input=as_given(begun.input, self._reached))
        name = self._operators[id(node)]
        operator = operator_of(given, name, clock_of(given, (), None), self.epoch)
        assert is_fillable(operator), begun
        since = self._reached(node)
        assert since is not None
        rows = self._recalled(given, operator, since)
        late = sum(int(head.get("late", 0)) for head in self._heads(name))
        calls = tuple(call_sql(call, begun.input.schema.names) for call in begun.calls)
        return Filled(calls, rows, late, isinstance(begun, OverAggregate) and begun.frame.first is None)

    def _recalled(self, node: Aggregating, operator: Fillable, since: int) -> int:
        """Writes an operator's past; how many rows it was."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        with _one_task_a_file(self.spark):
            lowering = BatchLowering(self.spark, self.zone, self._past)
            width = len(node.input.schema)
            texts = input_texts(Scalars(self.zone), operator.inputs, operator.hash_columns, width)
            count = Observation()
            below = lowering.rows(node.input, (PLACE,)).selectExpr(*texts, PLACE)
            below = below.observe(count, F.count("*").alias("rows"))
            names = [each.name for each in operator.inputs]
            below = below.selectExpr(f"{hash_text(operator.inputs, operator.hash_columns)} AS {HASH}", *names, PLACE)
            recall = Recall(operator, self.bucket_ids, since, self._order)
            below.mapInArrow(recall, "line STRING").write.mode("append").text(str(self.target))
            return int(count.get["rows"])

    def _past(self, node: Scan) -> DataFrame:
        """What the job has read of a scan's table; what joins read beside it, as it is now."""
        name = self._names.get(id(node))
        if name is None:
            return self.sources.scanned(node)
        history, gone = self.sources.history(node.table, name, self.checkpoint)
        self._order.update(history.order)
        if gone is not None:
            self.gone.append(f"table `{node.table.name}`: {gone} are gone")
        return history.frame

    def _reached(self, node: StatefulNode) -> int | None:
        """Up to when an operator's rows are final, in all its buckets; None where it cannot say."""
        name = self._operators[id(node)]
        operator = operator_of(node, name, clock_of(node, (), None), self.epoch)
        if not is_fillable(operator):
            return None
        return min((operator.reached(head) for head in self._heads(name)), default=NO_WATERMARK)

    def _heads(self, operator: str) -> list[dict[str, Any]]:
        """The head page of each bucket of an operator."""
        if operator not in self._read:
            batch = newest_batch(self.checkpoint / "commits")
            pages = pages_of(self.reading, self.checkpoint, operator, self.epoch, batch)
            blobs = pages.where(f"tbl = '{HEAD}'").select("blob").collect()
            self._read[operator] = [decode_head(row["blob"]) for row in blobs]
        return self._read[operator]


@contextmanager
def _one_task_a_file(spark: SparkSession) -> Iterator[None]:
    """In it, no file is read by several tasks: rows are in order within a task."""
    before = {name: str(spark.conf.get(name)) for name in _SPLITTING}
    try:
        for name in _SPLITTING:
            spark.conf.set(name, str(1 << 40))
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
