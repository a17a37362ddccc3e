"""Access to a Delta table through Delta's Java library, in a session of any configuration.

Tables are identified by their path, and changed by `DataFrame` and `DeltaTable`. Delta's SQL
extension and catalog are not needed, so a caller's session need not be configured for Delta.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.maven_jars import MavenJars
from everfold.engine_literals import spark_identifier
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table, TableColumn
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION = "4.4.0"
DELTA = MavenJars(
    name=f"delta-{VERSION}",
    uris=(
        f"ivy://io.delta:delta-spark_4.2_2.13:{VERSION}?transitive=false",
        f"ivy://io.delta:delta-storage:{VERSION}?transitive=false",
    ),
    provider="io.delta.tables.DeltaTable",
    what="Delta Lake",
    table="a Delta table",
    code="delta-jars",
    share=True,
)
_SETTINGS = {
    # The extension and the catalog are for SQL commands only.
    "spark.databricks.delta.requiredSparkConfsCheck.enabled": "false",
    # The list of a table's files is divided into so many tasks; the default is 50.
    "spark.databricks.delta.snapshotPartitions": "4",
}
_LOG = "_delta_log"
_REFUSED = re.compile(r"\[(DELTA_[A-Z0-9_.]+)\] ?([^\n]*)")
_CONFLICT = re.compile(r"DELTA_CONCURRENT_\w+|DELTA_METADATA_CHANGED|ConcurrentModificationException")


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta table at a location, whether it exists or not."""

    spark: SparkSession
    table: Table
    root: Location

    @classmethod
    def open(cls, spark: SparkSession, table: Table, root: Location) -> DeltaTable:
        """Load Delta in a session, and return the table. Raises ConnectorError `delta-jars`."""
        DELTA.add_to(spark)
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        return cls(spark, table, root)

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    @property
    def _session(self) -> Any:
        """The session in Java, made the active one of the thread: Delta reads settings there."""
        session = self.spark._jsparkSession
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
        return session

    def exists(self) -> bool:
        """Whether there is a Delta table."""
        return bool(self._jvm.io.delta.tables.DeltaTable.isDeltaTable(self._session, self.root.uri))

    def java_table(self) -> Any:
        """Return Delta's object for the table."""
        return self._jvm.io.delta.tables.DeltaTable.forPath(self._session, self.root.uri)

    def snapshot(self, version: int | None = None) -> Any:
        """Return Delta's snapshot of a version, of the newest one by default."""
        option = self._jvm.scala.Option
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self.root.uri)
        newest = log.update(False, option.empty(), option.empty())
        return newest if version is None else log.getSnapshotAt(version, option.empty(), option.empty(), False)

    def version(self) -> int:
        """Return the number of the newest version."""
        return int(self.snapshot().version())

    def transactions(self) -> dict[str, int]:
        """Return the last version of each application that writes with a transaction identifier."""
        text: str = self.snapshot().transactions().mkString("\n")
        pairs = (line.rpartition(" -> ") for line in text.splitlines())
        return {name: int(version) for name, _, version in pairs}

    def read(self) -> DataFrame:
        """Return the rows of the newest version."""
        return self.spark.read.format("delta").load(self.root.uri)

    def read_files(self, files: Sequence[str]) -> DataFrame:
        """Return the rows of some files that commits have added.

        files: actions of the log, in JSON.
        """
        from pyspark.sql import DataFrame

        action = self._jvm.org.apache.spark.sql.delta.actions.Action
        parsed = self._jvm.java.util.ArrayList()
        for each in files:
            parsed.add(action.fromJson(each))
        snapshot = self.snapshot()
        actions = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(parsed).toSeq()
        found = snapshot.deltaLog().createDataFrame(snapshot, actions, False, self._jvm.scala.Option.empty())
        return DataFrame(found, self.spark)

    def files(self, version: int) -> list[str]:
        """Return the files of a version as actions in JSON, in the order of Delta's stream."""
        from pyspark.sql import DataFrame

        files = DataFrame(self.snapshot(version).allFiles().toDF(), self.spark)
        files = files.orderBy("modificationTime", "path").drop("stats")
        found = files.selectExpr("to_json(named_struct('add', struct(*)))").collect()
        return [str(action) for (action,) in found]

    def create(self, columns: Sequence[TableColumn]) -> None:
        """Create the table, without rows."""
        empty = self.spark.createDataFrame([], schema_ddl(columns))
        empty.write.format("delta").mode("append").partitionBy(*self.table.partition_keys).save(self.root.uri)

    def check_schema(self, columns: Sequence[TableColumn], *, whole: bool) -> None:
        """Check that the table has some columns with their types.

        whole: and no others, and that it is partitioned as declared. Raises ConnectorError
        `delta-schema`.
        """
        empty = self.spark.createDataFrame([], schema_ddl(columns))
        found, wanted = dict(self.read().dtypes), dict(empty.dtypes)
        wrong = [f"it has no column `{name}`" for name in wanted if name not in found]
        wrong += [
            f"its column `{name}` is {found[name]}, and {of} is declared"
            for name, of in wanted.items()
            if found.get(name, of) != of
        ]
        if whole:
            wrong += [f"its column `{name}` is not declared" for name in found if name not in wanted]
            keys = tuple(filter(None, self.snapshot().metadata().partitionColumns().mkString("\n").split("\n")))
            declared = self.table.partition_keys
            if keys != declared:
                wrong.append(f"it is partitioned by {_names(keys)}, and {_names(declared)} is declared")
        if wrong:
            raise ConnectorError.of(
                "delta-schema",
                f"table `{self.table.name}`: the Delta table `{self.root}` differs: {'; '.join(wrong)}",
                self.table.span,
                "change the CREATE TABLE statement, or the Delta table",
            )

    def commit(self, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit. Raises OSError if it is no longer in the log."""
        text = (self.root / _LOG / f"{version:020d}.json").read_text()
        return [json.loads(line) for line in text.splitlines() if line]

    def last_commits(self, count: int) -> Iterator[dict[str, Any]]:
        """Yield the information on the newest commits, newest first."""
        newest = self.version()
        for version in range(newest, max(-1, newest - count), -1):
            with suppress(OSError, ValueError):
                for action in self.commit(version):
                    if "commitInfo" in action:
                        yield {**action["commitInfo"], "version": version}

    def explain(self, error: Exception) -> ConnectorError | None:
        """Return the error for a refusal by Delta, None for another failure."""
        found = _REFUSED.search(str(error))
        if found is None:
            return None
        return ConnectorError.of(
            "delta-refused",
            f"table `{self.table.name}`: Delta refuses: {found[2].strip()[:500]} ({found[1]})",
            self.table.span,
        )


def name_of(file: str) -> str:
    """Return the name of a file, which is unique in a table.

    file: an action of the log, in JSON.
    """
    path: str = json.loads(file)["add"]["path"]
    return path.rpartition("/")[2]


def is_conflict(error: Exception) -> bool:
    """Return whether another writer has changed the table at the same time."""
    return _CONFLICT.search(str(error)) is not None


def schema_ddl(columns: Sequence[TableColumn]) -> str:
    """Return columns as a schema of Spark."""
    return ", ".join(f"{spark_identifier(column.name)} {column.type.spark}" for column in columns)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in columns) or "no column"
