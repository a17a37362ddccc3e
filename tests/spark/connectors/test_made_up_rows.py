"""Connectors without external systems: datagen, blackhole, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import BatchId, ClusterSink, LocalSink, Role, SinkContext, SourceContext
from everfold.connectors.validate import check_table
from everfold.errors import SqlError
from everfold.spark.session import create_session
from everfold.storage import local
from everfold.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP3,
    TIMESTAMP_LTZ3,
    TINYINT,
    DecimalType,
    StringType,
    TimeType,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_datagen_makes_the_same_rows_each_time(spark: SparkSession, tmp_path: Path) -> None:
    session = create_session(spark, 2)
    columns = {
        "id": INT, "n": INT, "t": TINYINT, "b": BIGINT, "f": BOOLEAN, "d": DOUBLE, "de": DecimalType(precision=6, scale=2), "s": STRING,
        "v": StringType(length=7), "by": BYTES, "day": DATE, "ti": TimeType(precision=3), "ts": TIMESTAMP3, "lz": TIMESTAMP_LTZ3,
    }  # fmt: skip
    options = {
        "connector": "datagen", "number-of-rows": "1000", "fields.id.kind": "sequence", "fields.id.start": "5", "fields.id.end": "204",
        "fields.n.min": "-3", "fields.n.max": "3", "fields.s.length": "130", "fields.d.null-rate": "0.5", "fields.ts.max-past": "1 h",
        "rows-per-second": "400",
    }  # fmt: skip
    of = table("made", **columns).with_options(options)
    source = check_table(of, Role.SOURCE).source()
    context = SourceContext(spark=session, name="made_1", base_folder=tmp_path, table=of)
    rows = source.batch(context).drop("__split").toArrow().to_pylist()
    again = source.batch(context).drop("__split").toArrow().to_pylist()
    assert [row["c0"] for row in rows] == [*range(5, 205)]
    assert [[row[f"c{at}"] for at in range(10)] for row in rows] == [
        [row[f"c{at}"] for at in range(10)] for row in again
    ]
    assert {row["c1"] for row in rows} == {*range(-3, 4)}
    assert 50 < sum(row["c5"] is None for row in rows) < 150
    assert {len(row["c7"]) for row in rows} == {130}
    assert {len(row["c8"]) for row in rows} == {7}
    seen: list[int] = []
    query = (
        source.stream(context)
        .writeStream.foreachBatch(lambda frame, _: seen.extend(row[0] for row in frame.collect()))
        .start()
    )
    try:
        while len(seen) < 200:
            query.processAllAvailable() if query.isActive else pytest.fail("the stream ended")
        assert sorted(seen) == [*range(5, 205)]
    finally:
        query.stop()
    assert source.has_reached_end(context, "1")
    assert not source.has_reached_end(context, "0")
    endless = table("made", n=INT).with_("datagen")
    with pytest.raises(SqlError, match="is unbounded"):
        check_table(endless, Role.SOURCE).source().batch(context)


def test_blackhole_computes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    of = table(n=BIGINT).with_("blackhole")
    sink = check_table(of, Role.SINK).sink(SinkContext(name="s", base_folder=tmp_path, table=of))
    assert isinstance(sink, ClusterSink)
    sink.write(spark.range(3).selectExpr("id AS c0", "CAST(0 AS TINYINT) AS __kind"), BatchId("job", "s", 0, 0))


def test_a_replayed_batch_is_not_printed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of = table(n=BIGINT, s=STRING).with_options({"connector": "print", "print-identifier": "out"})
    rows = pa.table({"c0": [1, None], "c1": ["a", "b"], "__kind": pa.array([0, 3], pa.int8())})
    for batch in (0, 0, 1):
        sink = check_table(of, Role.SINK).sink(
            SinkContext(name="s", base_folder=tmp_path, table=of, job_folder=local(tmp_path / "job"))
        )
        assert isinstance(sink, LocalSink)
        sink.write(rows.slice(0, 2 - batch), BatchId("job", "s", 0, batch))
    assert capsys.readouterr().out == "out> +I[1, a]\nout> -D[null, b]\nout> +I[1, a]\n"
