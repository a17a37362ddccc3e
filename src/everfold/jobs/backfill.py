"""Backfill: compute what the new aggregates of a version have missed.

The input that the job has read is read again in a batch job, up to the job's current offsets. The
batch computes the new aggregates alone and writes them as control files, which the first batch of
the new version merges into its state.

The files stay in `backfill/<version>/` from before the change is carried out until a later start
finds that batch finished. So a process that is killed in between neither loses nor repeats them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.checkpoint.logs import last_finished_batch
from everfold.checkpoint.state_metadata import StoredOperator
from everfold.connectors.filesystem.read_again import READ_AGAIN
from everfold.connectors.null_rowtime import LOCATION
from everfold.jobs.failure import explain_failure
from everfold.jobs.sources import Sources
from everfold.jobs.state_pages import read_pages
from everfold.operators.backfill import (
    Aggregating,
    Fillable,
    is_fillable,
    list_calls,
    restrict_to_emitted,
    restrict_to_new_calls,
)
from everfold.operators.factory import clock_of, operator_of
from everfold.operators.protocol import NO_WATERMARK
from everfold.plan.nodes import OverAggregate, Root, Scan, StatefulNode
from everfold.plan.walk import operators_of
from everfold.spark.backfill_writer import BackfillWriter
from everfold.spark.batch import BatchLowering
from everfold.spark.operator_inputs import hash_sql, input_columns_sql
from everfold.spark.scalar import Scalars
from everfold.spark.task_input import HASH
from everfold.spark.task_progress import report_tasks
from everfold.state.bucket_head import HEAD
from everfold.state.pages import decode_head
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPLITTING = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
"""Options for the size of the pieces into which Spark splits files.

A piece has the first size, or one core's share of all bytes if that is less, but at least the
second size.
"""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """The new aggregates of an operator that were backfilled.

    rows: number of rows read. late_rows: rows that the job had dropped as late.
    late_counted: whether the backfill counts those.
    """

    calls: tuple[str, ...]
    rows: int
    late_rows: int
    late_counted: bool

    @property
    def summary(self) -> str:
        """A summary for people."""
        summary = (
            f"{', '.join(self.calls)}: computed from the beginning, over {self.rows:,} row{'s' * (self.rows != 1)}"
        )
        if self.late_rows:
            verb = "is" if self.late_rows == 1 else "are"
            outcome = "counted" if self.late_counted else "left out"
            summary += f"; {self.late_rows:,} that the job had dropped as late {verb} {outcome}"
        return summary


@dataclass(slots=True)
class Backfill:
    """Compute the backfill of the new aggregates of a version.

    reading: session that reads state.
    job: the job directory.
    checkpoint: the checkpoint with the current position of the job.
    target: folder for the control files.
    epoch: epoch of the state (`Version.state_epoch`).
    stored: the operators whose state is in the checkpoint, by their ids in the plans.
    lost_input: input that no longer exists, as sentences.
    """

    spark: SparkSession
    reading: SparkSession
    job: Location
    checkpoint: Location
    target: Location
    version: int
    epoch: int
    stored: Mapping[str, StoredOperator]
    sources: Sources
    zone: str
    bucket_ids: tuple[int, ...]
    log_file: Path
    lost_input: list[str] = field(default_factory=list)
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _order: dict[str, int] = field(default_factory=dict)

    def write(self, roots: Sequence[Root], operators: Collection[str]) -> list[BackfillResult]:
        """Write the backfill of the new aggregates of these operators in the plans.

        Raises StateError `no-backfill`, `no-past`, or a ConnectorError of a source.
        """
        copies = self.job / READ_AGAIN
        try:
            copies.delete()  # those of a process that was killed
            self.target.delete()
            nodes = (node for node in operators_of(roots) if node.operator_id in operators)
            begun = ((node, restrict_to_new_calls(node, self.version)) for node in nodes)
            return [self._fill(node, new) for node, new in begun if new is not None]
        except Exception as error:
            raise explain_failure(error, self.sources.opened, self.log_file, self.job) from error
        finally:
            copies.delete()

    def _fill(self, node: StatefulNode, begun: Aggregating) -> BackfillResult:
        given = replace(begun, input=restrict_to_emitted(begun.input, self._reached))
        name = node.operator_id
        operator = operator_of(given, name, clock_of(given, (), None), self.epoch)
        assert is_fillable(operator), begun
        since = self._reached(node)
        assert since is not None
        with report_tasks(self.spark, f"backfilling {', '.join(list_calls(begun))}"):
            rows = self._write_operator(given, operator, since)
        late = sum(int(head.get("late", 0)) for head in self._heads(name))
        return BackfillResult(
            list_calls(begun), rows, late, isinstance(begun, OverAggregate) and begun.frame.first is None
        )

    def _write_operator(self, node: Aggregating, operator: Fillable, since: int) -> int:
        """Write the backfill of an operator and return how many rows were read."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        with _read_whole_files(self.spark):
            lowering = BatchLowering(self.spark, self.zone, self._open_history)
            width = len(node.input.schema)
            texts = input_columns_sql(Scalars(self.spark, self.zone), operator.inputs, operator.hash_columns, width)
            count = Observation()
            below = lowering.rows(node.input, (LOCATION,)).selectExpr(*texts, LOCATION)
            below = below.observe(count, F.count("*").alias("rows"))
            names = [each.name for each in operator.inputs]
            below = below.selectExpr(f"{hash_sql(operator.inputs, operator.hash_columns)} AS {HASH}", *names, LOCATION)
            recall = BackfillWriter(operator, self.bucket_ids, since, self._order)
            below.mapInArrow(recall, "line STRING").write.mode("append").text(self.target.uri)
            return int(count.get["rows"])

    def _open_history(self, node: Scan) -> DataFrame:
        """Return what the job has read of a table; of a lookup table, the current rows."""
        if not node.source_name:
            return self.sources.read_scan(node)
        history, gone = self.sources.history(node.table, node.source_name, self.checkpoint)
        self._order.update(history.order)
        if gone is not None:
            self.lost_input.append(f"table `{node.table.name}`: {gone} no longer exist")
        return history.frame

    def _reached(self, node: StatefulNode) -> int | None:
        """Return until when an operator's rows are final in all its buckets, None if unknown."""
        name = node.operator_id
        operator = operator_of(node, name, clock_of(node, (), None), self.epoch)
        if not is_fillable(operator):
            return None
        return min((operator.final_until(head) for head in self._heads(name)), default=NO_WATERMARK)

    def _heads(self, operator: str) -> list[dict[str, Any]]:
        """Return the head page of each bucket of an operator."""
        if operator not in self._read:
            batch = last_finished_batch(self.checkpoint)
            pages = read_pages(self.reading, self.checkpoint, self.stored[operator], self.epoch, batch)
            blobs = pages.where(f"tbl = '{HEAD}'").select("blob").collect()
            self._read[operator] = [decode_head(row["blob"]) for row in blobs]
        return self._read[operator]


@contextmanager
def _read_whole_files(spark: SparkSession) -> Iterator[None]:
    """Read each file in a single task in the block: rows are in order within a task."""
    before = {name: str(spark.conf.get(name)) for name in _SPLITTING}
    try:
        for name in _SPLITTING:
            spark.conf.set(name, str(1 << 40))
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
