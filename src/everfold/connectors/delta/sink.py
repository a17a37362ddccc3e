"""Write a Delta table, each batch as one commit, exactly once.

A commit carries a transaction identifier of Delta: an application, which is the job, the sink and
the epoch, and a version, which is the batch with the start of its digest. It is written with the
rows, so a batch that is repeated after a crash is recognized by the table itself.

Without a PRIMARY KEY rows are appended. With one, a batch is reduced to the last row of each key,
which MERGE inserts, updates or deletes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.applied import is_applied
from everfold.connectors.contract import (
    KIND,
    AppliedBatch,
    BatchId,
    ClusterSink,
    OptionValues,
    Role,
    SinkContext,
    columns_of,
)
from everfold.connectors.delta.table import DeltaTable, is_conflict
from everfold.connectors.filesystem.paths import locate
from everfold.engine_literals import spark_identifier
from everfold.errors import ConnectorError
from everfold.plan.changelog import RETRACTIONS
from everfold.types import physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DIGEST_BITS = 32
_DIGITS = _DIGEST_BITS // 4
_ATTEMPTS = 5
_RECENT = 20
"""How many commits are searched for those of other jobs."""
_DELTA = "spark.databricks.delta"
_TASK_BITS = 33
"""The bits of `monotonically_increasing_id` that count the rows of a task."""


class DeltaSink(ClusterSink):
    """A sink that writes one Delta table."""

    def __init__(self, context: SinkContext, options: OptionValues) -> None:
        super().__init__(context, options)
        assert context.spark is not None, "a Delta table is only written with Spark"
        self.root = locate(options.string("table-path"), context.base_folder, context.spark)
        self._columns = columns_of(context.table, Role.SINK)
        names = [column.name for column in self._columns]
        self._keys = tuple(names.index(name) for name in context.table.primary_key)

    @property
    def folder(self) -> Path | None:
        """The folder of the table if it is on this machine."""
        return self.root.local_path

    def prepare(self) -> None:
        """Create the table, or check that it fits the declaration."""
        assert self.context.spark is not None
        table = DeltaTable.open(self.context.spark, self.table, self.root)
        job = self.context.job_folder
        if job is not None and self.root.is_in(job):
            raise ConnectorError.of(
                "target-in-job",
                f"table `{self.table.name}`: `{self.options.string('table-path')}` is in the job's own folder",
                help="use another path",
            )
        if not table.exists():
            if any(True for _ in self.root.iterdir()):
                raise ConnectorError.of(
                    "not-delta",
                    f"table `{self.table.name}`: the folder `{self.root}` has files, but is not a Delta table",
                    self.table.span_of_option("table-path"),
                    "name another folder, or an empty one",
                )
            table.create(self._columns)
        table.check_schema(self._columns, whole=True)

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last batch of the job by the transaction identifiers of the table."""
        assert self.context.spark is not None
        return self._find_last(DeltaTable(self.context.spark, self.table, self.root), job, sink)

    def find_other_job(self, job: str) -> str | None:
        """Return the folder of another job that has recently appended the result of the query."""
        if self._keys or not self.context.query:
            return None
        assert self.context.spark is not None
        for info in DeltaTable(self.context.spark, self.table, self.root).last_commits(_RECENT):
            found = _parse_metadata(info.get("userMetadata"))
            if found.get("query") == self.context.query and found.get("job") not in (None, job):
                return found.get("folder", "")
        return None

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Write the batch, unless the table has it."""
        table = DeltaTable(frame.sparkSession, self.table, self.root)
        if is_applied(self.table.name, batch, self._find_last(table, batch.job, batch.sink)):
            self.applied = (batch.epoch, batch.batch)
            frame.write.format("noop").mode("overwrite").save()
            return None
        try:
            rows = self._merge(table, frame, batch) if self._keys else self._append(table, frame, batch)
        except Exception as error:
            raise table.explain(error) or error from None
        if rows:
            self.applied = (batch.epoch, batch.batch)
        return rows

    # -- the parts of a batch ----------------------------------------------------------------------

    def _append(self, table: DeltaTable, frame: DataFrame, batch: BatchId) -> int:
        names = [column.name for column in self._columns]
        rows = frame.selectExpr(*(f"{physical_name(at)} AS {spark_identifier(name)}" for at, name in enumerate(names)))
        writer = rows.write.format("delta").mode("append").option("userMetadata", self._metadata(batch))
        application, version = _application(batch.job, batch.sink, batch.epoch), version_of(batch)
        writer.option("txnAppId", application).option("txnVersion", str(version)).save(self.root.uri)
        for info in table.last_commits(_RECENT):
            if info.get("userMetadata") == self._metadata(batch):
                return int(info.get("operationMetrics", {}).get("numOutputRows", 0))
        return 0

    def _merge(self, table: DeltaTable, frame: DataFrame, batch: BatchId) -> int:
        """Merge the last row of each key. A conflict with another writer is retried.

        MERGE reads the rows several times, but they must be computed only once: they are stored.
        """
        rows = self._net(frame).localCheckpoint()
        count = rows.count()
        for attempt in range(1, _ATTEMPTS + 1) if count else ():
            try:
                self._run_merge(table, rows, batch)
                break
            except Exception as error:
                if attempt == _ATTEMPTS or not is_conflict(error):
                    raise
        return count

    def _run_merge(self, table: DeltaTable, rows: DataFrame, batch: BatchId) -> None:
        back = f"n.{KIND} IN ({', '.join(map(str, RETRACTIONS))})"
        values = {spark_identifier(of.name): f"n.{physical_name(at)}" for at, of in enumerate(self._columns)}
        same = " AND ".join(
            f"t.{spark_identifier(self._columns[at].name)} = n.{physical_name(at)}" for at in self._keys
        )
        settings = {
            f"{_DELTA}.write.txnAppId": _application(batch.job, batch.sink, batch.epoch),
            f"{_DELTA}.write.txnVersion": str(version_of(batch)),
            f"{_DELTA}.commitInfo.userMetadata": self._metadata(batch),
            f"{_DELTA}.merge.materializeSource": "none",
        }
        target = getattr(table.java_table(), "as")("t")
        merge = target.merge(rows.alias("n")._jdf, same)
        merge = merge.whenMatched(back).delete().whenMatched().updateExpr(values)
        merge = merge.whenNotMatched(f"NOT ({back})").insertExpr(values)
        try:
            for name, value in settings.items():
                table.spark.conf.set(name, value)
            merge.execute()
        finally:
            for name in settings:
                table.spark.conf.unset(name)

    def _net(self, frame: DataFrame) -> DataFrame:
        """Return one row per key: the last of each task, and of these preferably an added one."""
        from pyspark.sql import functions as F  # noqa: N812

        columns = [*(physical_name(at) for at in range(len(self._columns))), KIND]
        keys = [physical_name(at) for at in self._keys]
        rows = frame.selectExpr(*columns, "monotonically_increasing_id() AS __at")
        row, task = f"struct({', '.join(columns)}) AS __row", f"shiftright(__at, {_TASK_BITS}) AS __task"
        by_task = rows.selectExpr(*keys, row, task, "__at").groupBy(*keys, "__task")
        last = by_task.agg(F.expr("max_by(__row, __at) AS __row"))
        is_new = f"__row.{KIND} NOT IN ({', '.join(map(str, RETRACTIONS))})"
        net = last.groupBy(*keys).agg(F.expr(f"max_by(__row, struct({is_new}, __task)) AS __row"))
        return net.selectExpr("__row.*")

    # -- the identity of a batch -------------------------------------------------------------------

    def _find_last(self, table: DeltaTable, job: str, sink: str) -> AppliedBatch | None:
        prefix = _application(job, sink, None)
        epochs = {
            int(name.removeprefix(prefix)): version
            for name, version in table.transactions().items()
            if name.startswith(prefix) and name.removeprefix(prefix).isdigit()
        }
        if not epochs:
            return None
        epoch = max(epochs)
        return batch_of(epoch, epochs[epoch])

    def _metadata(self, batch: BatchId) -> str:
        """Return what the history of the table shows of a batch."""
        folder = "" if self.context.job_folder is None else str(self.context.job_folder)
        found = {"job": batch.job, "sink": batch.sink, "epoch": batch.epoch, "batch": batch.batch}
        return json.dumps({"everfold": {**found, "query": self.context.query, "folder": folder}})


def _application(job: str, sink: str, epoch: int | None) -> str:
    """Return the application of a transaction identifier, or its prefix for all epochs."""
    return f"everfold:{job}:{sink}:{'' if epoch is None else epoch}"


def version_of(batch: BatchId) -> int:
    """Return the version of a transaction identifier: it grows with the batches of an epoch."""
    digest = int(batch.digest[:_DIGITS] or "0", 16)
    return (batch.batch << _DIGEST_BITS) | digest


def batch_of(epoch: int, version: int) -> AppliedBatch:
    """Return the batch of an epoch with a version of a transaction identifier."""
    digest = version & ((1 << _DIGEST_BITS) - 1)
    return AppliedBatch(epoch, version >> _DIGEST_BITS, f"{digest:0{_DIGITS}x}" if digest else "")


def _parse_metadata(text: object) -> dict[str, str]:
    """Return what `_metadata` has recorded, empty for a commit of another writer."""
    try:
        found = json.loads(text)["everfold"] if isinstance(text, str) else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
