"""Kill a job with SIGKILL between the commits of the shards of a batch, and run it again.

Readers with `read_committed` see each row once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker import KafkaBroker
from faults.injection import Fault, Plan, start_job

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.kafka]

PARTITIONS, FILES, KEYS = 3, 2, 60_000
SCRIPT = """
SET 'parallelism.default' = '{partitions}';
CREATE TABLE t (k BIGINT, n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'parquet', 'scan.max-files-per-batch' = '1');
CREATE TABLE totals (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
'topic' = 'totals', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'raw', 'value.format' = 'json');
CREATE TABLE copies (k BIGINT, n BIGINT) WITH ('connector' = 'kafka',
'topic' = 'copies', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json');
{insert}
"""
TOTALS = "INSERT INTO totals SELECT k, SUM(n) FROM t GROUP BY k;"
COPIES = "INSERT INTO copies SELECT k, n FROM t;"
WRITE = "everfold.connectors.kafka.shards:write_shard"
MARK = "everfold.connectors.kafka.transaction:TransactionalSink._mark"
APPLY = "everfold.connectors.kafka.sink:KafkaSink._apply"
STEPS = {
    "after one of three shards": (TOTALS, Fault(WRITE, "after", PARTITIONS + 1)),
    "in the transaction of the second shard": (TOTALS, Fault(MARK, "before", PARTITIONS + 3)),
    "after all shards": (TOTALS, Fault(APPLY, "before", 2)),
    "after the transaction of the driver": (TOTALS, Fault(APPLY, "after", 2)),
    "between tasks without an operator": (COPIES, Fault(WRITE, "after", 2)),
}


def write_input(folder: Path) -> Counter[tuple[int, int]]:
    """Write the files, with each key in two rows of one file. Return the rows as (k, n)."""
    (folder / "in").mkdir()
    rows: Counter[tuple[int, int]] = Counter()
    for number in range(FILES):
        keys = [at // 2 + number * KEYS for at in range(2 * KEYS)]
        values = [at % 1000 for at in range(2 * KEYS)]
        rows.update(zip(keys, values, strict=True))
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"k": keys, "n": values}), file, row_group_size=KEYS // 2)
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    return rows


@pytest.fixture
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        running.create_topic("totals", 2)
        running.create_topic("copies", 2)
        yield running


@pytest.mark.parametrize("step", STEPS)
def test_each_row_is_read_once(step: str, tmp_path: Path, broker: KafkaBroker) -> None:
    insert, fault = STEPS[step]
    rows = write_input(tmp_path)
    script = SCRIPT.format(partitions=PARTITIONS, servers=broker.bootstrap_servers, insert=insert)
    (tmp_path / "job.sql").write_text(script)
    plan = Plan(tmp_path, fault.function)
    plan.set(fault)
    first = start_job(tmp_path, plan, "--master", "local[1]")
    first.wait(timeout=600)
    printed = (tmp_path / "log.txt").read_text()
    assert plan.is_done, printed
    assert first.returncode == -9, printed
    plan.clear()
    # With another number of cores the tasks must have the same rows.
    last = start_job(tmp_path, plan, "--master", "local[2]")
    assert last.wait(timeout=600) == 0, (tmp_path / "log.txt").read_text()
    records = broker.consume("totals" if insert == TOTALS else "copies")
    found = Counter((each["k"], each["n"]) for each in (json.loads(record.value or b"") for record in records))
    assert found == (sum_by_key(rows) if insert == TOTALS else rows)


def sum_by_key(rows: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
    totals: Counter[int] = Counter()
    for (key, number), count in rows.items():
        totals[key] += number * count
    return Counter(totals.items())
