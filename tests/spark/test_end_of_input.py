"""The end of the input reaches chained operators in their order, even when Spark notifies the
upper one first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.compat.operator_ids import source_notes
from everfold.jobs.control import Control
from everfold.operators.protocol import Operator
from everfold.plan.naming import name_sources
from everfold.plan.nodes import Table
from everfold.spark.buckets import bucket_ids
from everfold.spark.session import create_session
from everfold.spark.stream import SourceStream, Stream, StreamLowering
from everfold.spark.task_input import FORWARDED, KEEP
from everfold.sql.planner import Session, Submit
from everfold.storage import local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = """
    CREATE TABLE t (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
    CREATE VIEW longer AS SELECT window_time AS wt, SUM(n) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)
        GROUP BY window_start, window_end, window_time;
    CREATE VIEW shorter AS SELECT window_time AS wt, SUM(n) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)
        GROUP BY window_start, window_end, window_time;
    CREATE VIEW either AS SELECT * FROM longer UNION ALL SELECT * FROM shorter;
"""


@dataclass(slots=True)
class SeparateControlFolders(StreamLowering):
    """A lowering in which each operator has a separate folder of control files."""

    def _exchange_input(self, below: Stream, operator: Operator) -> DataFrame:
        root = Path(self.control_folder)
        self.control_folder = str(root / operator.name)
        Path(self.control_folder).mkdir()
        try:
            # `super()` does not work in a dataclass with slots.
            return StreamLowering._exchange_input(self, below, operator)
        finally:
            self.control_folder = str(root)


def test_the_upper_operator_is_notified_of_the_end_first(spark: SparkSession, tmp_path: Path) -> None:
    (*_, action) = Session().run(
        f"""{TABLE} SELECT SUM(n) FROM TUMBLE(TABLE either, DESCRIPTOR(wt), INTERVAL '20' SECOND) GROUP BY window_start, window_end"""
    )
    assert isinstance(action, Submit)
    (tmp_path / "in").mkdir()
    rows = [f'{{"c0": "2020-01-01T00:00:{second:02}", "c1": {n}}}\n' for second, n in ((1, 1), (7, 2), (12, 3))]
    (tmp_path / "in" / "1.json").write_text("".join(rows))
    session = create_session(spark, 2)

    def open_stream(table: Table, name: str) -> SourceStream:
        frame = session.readStream.name(name).schema("c0 TIMESTAMP_NTZ, c1 INT").json(str(tmp_path / "in"))
        return SourceStream(frame.selectExpr("*", "CAST(NULL AS STRING) AS __split"), (name,))

    lowering = SeparateControlFolders(
        spark=session,
        zone="UTC",
        open_source=open_stream,
        control_folder=str(tmp_path),
        bucket_ids=bucket_ids(2, 2),
    )
    (root,) = name_sources(action.roots, [note["name"] for note in source_notes(action.roots)])
    found = lowering.lower(root.input).frame.where(f"{FORWARDED} IS NULL AND {KEEP}").selectExpr("c0")
    seen: list[int] = []
    query = (
        found.writeStream.foreachBatch(lambda batch, _: seen.extend(row.c0 for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        for name in ("w3", "w1", "w2"):
            assert not seen
            Control(local(tmp_path / name), local(tmp_path / "checkpoint")).flush()
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [12]
