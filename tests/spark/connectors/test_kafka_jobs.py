"""Jobs whose tasks write topics: the driver receives counts, and no rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import KafkaBroker
from spark.running import Run

from everfold.connectors.contract import BatchId
from everfold.connectors.kafka import sink as kafka_sink
from everfold.connectors.kafka.sink import KafkaSink

KEYS, COPIES = 3000, 2
TABLES = """
SET 'parallelism.default' = '2';
CREATE TABLE t (k BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'in.parquet', 'format' = 'parquet');
CREATE TABLE plain (k BIGINT, n BIGINT) WITH ('connector' = 'kafka', 'topic' = '{plain}',
'properties.bootstrap.servers' = '{servers}', 'format' = 'json', 'key.format' = 'raw', 'key.fields' = 'k');
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
'topic' = '{totals}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'raw', 'value.format' = 'json');
"""
PLAIN = "INSERT INTO plain SELECT k, n FROM t"
TOTALS = "INSERT INTO totals SELECT k, SUM(n) FROM t GROUP BY k"
JOBS = {
    "rows of a source": f"{PLAIN};",
    "packed rows of an operator": f"{TOTALS};",
    "typed rows of a source and of an operator": f"EXECUTE STATEMENT SET BEGIN {PLAIN}; {TOTALS}; END;",
}


@pytest.mark.parametrize("job", JOBS)
def test_the_driver_receives_no_rows(
    job: str, run: Run, tmp_path: Path, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_sink, "_FEW_ROWS", 20)
    received: list[bytes] = []
    finish = KafkaSink.finish_batch

    def finish_batch(sink: KafkaSink, reports: Sequence[bytes], batch: BatchId) -> int:
        received.extend(reports)
        return finish(sink, reports, batch)

    monkeypatch.setattr(KafkaSink, "finish_batch", finish_batch)
    rows = [(at // COPIES, at % 7) for at in range(KEYS * COPIES)]
    keys, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"k": keys, "n": values}), tmp_path / "in.parquet")
    topics = {name: f"{name}-{list(JOBS).index(job)}" for name in ("plain", "totals")}
    for topic in topics.values():
        kafka_broker.create_topic(topic, 2)
    (tmp_path / "job.sql").write_text(TABLES.format(servers=kafka_broker.bootstrap_servers, **topics) + JOBS[job])
    assert run("--state", "state").code == 0
    totals: Counter[int] = Counter()
    for key, value in rows:
        totals[key] += value
    expected = {
        "plain": Counter(rows if PLAIN in JOBS[job] else []),
        "totals": Counter(totals.items() if TOTALS in JOBS[job] else []),
    }
    for name, topic in topics.items():
        found = [json.loads(each.value or b"") for each in kafka_broker.consume(topic)]
        assert Counter((each["k"], each["n"]) for each in found) == expected[name]
    assert received
    assert max(map(len, received)) < 100
