"""Files of changes on Spark: Spark reads the same rows as the memory engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from unit.connectors.envelopes import GOOD, ROWS, SAMPLES, Sample

from everfold.connectors.contract import KIND, BatchId, ClusterSink, Role, SinkContext, Source, SourceContext
from everfold.connectors.validate import check_table
from everfold.error_transport import extract_error
from everfold.plan.nodes import Table
from everfold.spark.batch_metrics import count_skipped_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_source(session: SparkSession, of: Table) -> tuple[Source, SourceContext]:
    context = SourceContext(spark=session, name="t_1", base_folder=Path.cwd(), table=of)
    return check_table(of, Role.SOURCE).source(), context


def lines(folder: Path, format_name: str, records: list[str], **options: str) -> Table:
    (folder / "lines.json").write_text("\n".join(records) + "\n")
    prefixed = {f"{format_name}.{name}": value for name, value in options.items()}
    return ROWS.with_options({"connector": "filesystem", "path": str(folder), "format": format_name, **prefixed})


def batch(session: SparkSession, of: Table) -> list[tuple[object, ...]]:
    source, context = open_source(session, of)
    return [tuple(row) for row in source.batch(context).select("c0", "c1", "c2", KIND).collect()]


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(each, marks=() if each.name.startswith("all") else pytest.mark.slow, id=each.name)
        for each in SAMPLES
        if each.wrong is None
    ],
)
def test_changes_are_read_as_in_flink(spark: SparkSession, sample: Sample, tmp_path: Path) -> None:
    of = lines(tmp_path, sample.format, list(sample.records), **sample.options)
    assert batch(spark, of) == sample.expected


@pytest.mark.parametrize("format_name", ["debezium-json", "canal-json"])
def test_bad_records_are_skipped_and_counted(spark: SparkSession, format_name: str, tmp_path: Path) -> None:
    samples = [each for each in SAMPLES if each.wrong and each.format == format_name and not each.options]
    records = [record for each in samples for record in each.records]
    of = lines(tmp_path, format_name, records, **{"ignore-parse-errors": "true"})
    source, context = open_source(spark, of)
    with count_skipped_rows(context.spark) as counts:
        found = [tuple(row) for row in source.batch(context).select("c0", "c1", "c2", KIND).collect()]
    assert found == [row for each in samples for row in each.expected_when_ignored]
    assert counts == {"not readable in full": len(samples)}


@pytest.mark.slow
def test_a_bad_record_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("an update without before", "a wrong value", "too little old"):
        sample = next(each for each in SAMPLES if each.name == name)
        of = lines(tmp_path, sample.format, list(sample.records))
        source, context = open_source(spark, of)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            source.batch(context).collect()
        error = extract_error(str(caught.value))
        assert error is not None
        assert sample.wrong is not None
        assert sample.wrong in str(error)
        assert f"line {len(sample.records)}" in str(error)


def test_a_stream_of_changes_keeps_their_order(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    of = lines(tmp_path / "in", "debezium-json", list(SAMPLES[0].records))
    source, context = open_source(spark, of)
    found: list[tuple[object, ...]] = []
    query = (
        source.stream(context).writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.select("c0", "c1", "c2", KIND).collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert found == SAMPLES[0].expected


@pytest.mark.slow
def test_changes_are_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    read = lines(
        tmp_path / "in",
        "debezium-json",
        [GOOD, '{"before":{"id":9,"name":"ok"},"after":{"id":9,"price":1.5},"op":"u"}'],
    )
    source, context = open_source(spark, read)
    for format_name in ("debezium-json", "canal-json"):
        target = ROWS.with_options(
            {"connector": "filesystem", "path": str(tmp_path / format_name), "format": format_name}
        )
        sink = check_table(target, Role.SINK).sink(SinkContext(name="s", base_folder=tmp_path, table=target))
        assert isinstance(sink, ClusterSink)
        sink.prepare()
        sink.write(source.batch(context), BatchId("job", "s", 0, 0))
        [part] = (tmp_path / format_name).glob("part-*.json")
        written = [json.loads(line) for line in part.read_text().splitlines()]
        back = {"id": 9, "name": "ok", "price": None}
        now = {"id": 9, "name": None, "price": 1.5}
        if format_name == "debezium-json":
            assert written == [
                {"before": None, "after": back, "op": "c"}, {"before": back, "after": None, "op": "d"}, {"before": None, "after": now, "op": "c"},
            ]  # fmt: skip
        else:
            assert written == [
                {"data": [back], "type": "INSERT"}, {"data": [back], "type": "DELETE"}, {"data": [now], "type": "INSERT"},
            ]  # fmt: skip
