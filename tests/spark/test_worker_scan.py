"""Tasks that decode the input of an operator give the results, errors and counts of Catalyst."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.running import Done, Run

from everfold.spark.key_hash import hash_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 20, 31, 32, 33, 40, 63, 64, 65, 100, 200)
TIMES = [dt.datetime(1960, 1, 1, 1, 2, 3, 4), dt.datetime(2026, 1, 1), None]


def test_hashes_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    of, count = random.Random(1), 2_000

    def column(values: list[object], to: pa.DataType) -> pa.Array:
        return pa.array([of.choice(values) for _ in range(count)], to)

    texts = ["".join(of.choice("abcäß€😀 z") for _ in range(of.choice(LENGTHS))) for _ in range(count)]
    table = pa.table(
        {
            "l": column([None, 0, -1, 2**63 - 1, -(2**63), of.getrandbits(60)], pa.int64()),
            "i": column([None, 0, -1, 2**31 - 1, -(2**31)], pa.int32()),
            "h": column([None, 0, -1, 2**15 - 1, -(2**15)], pa.int16()),
            "b": column([None, True, False], pa.bool_()),
            "d": column([None, dt.date(1960, 1, 1), dt.date(2026, 1, 1)], pa.date32()),
            "t": column([*TIMES], pa.timestamp("us")),
            "z": column([*TIMES], pa.timestamp("us", "UTC")),
            "n": column([None, Decimal("-1.25"), Decimal(0), Decimal("123456789012345.67")], pa.decimal128(18, 2)),
            "s": pa.array([text if of.random() > 0.1 else None for text in texts]),
            "x": pa.array([text.encode() if of.random() > 0.1 else None for text in texts], pa.binary()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    names = table.column_names
    for chosen in [*([name] for name in names), ["l", "s"], ["s", "l", "b", "d"], ["x", "i", "z", "h"], names]:
        expected = [row[0] for row in frame.selectExpr(f"xxhash64({', '.join(chosen)})").collect()]
        assert hash_columns([table[name].combine_chunks() for name in chosen]).tolist() == expected, chosen


def both(run: Run, folder: Path, source: str, query: str, *settings: str) -> Done:
    """Run a query on both paths, compare what is printed, and return it."""
    (folder / "job.sql").write_text(f"CREATE TABLE t {source};\n{query};\n")
    done = []
    for scan in ("auto", "catalyst"):
        conf = [part for each in (f"everfold.scan={scan}", *settings) for part in ("--conf", each)]
        done.append(run(*conf))
    in_workers, in_catalyst = done
    assert (in_workers.code, in_workers.out, in_workers.first) == (
        in_catalyst.code,
        in_catalyst.out,
        in_catalyst.first,
    )
    assert [line for line in in_workers.err.splitlines() if "rows" in line and "batch" not in line] == [
        line for line in in_catalyst.err.splitlines() if "rows" in line and "batch" not in line
    ]
    return in_workers


def explain(run: Run, folder: Path, query: str, source: str, *conf: str) -> str:
    """Return the plan of a query."""
    (folder / "job.sql").write_text(f"CREATE TABLE t {source};\nEXPLAIN {query};\n")
    return run(*conf).out


SOURCE = """(k BIGINT, s STRING, n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = '{}')"""
WINDOWS = """SELECT window_start, s, SUM(n), COUNT(*), COUNT(DISTINCT k)
FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) WHERE n % 3 <> 0 OR k = 1 GROUP BY window_start, window_end, s"""


def make_rows(count: int) -> list[dict[str, object]]:
    of = random.Random(7)
    start = dt.datetime(2026, 1, 1)
    return [
        {
            "k": of.choice([None, 1, 2, 3]),
            "s": of.choice([None, "a", "b", "ä" * 40]),
            "n": of.randrange(100),
            "ts": start + dt.timedelta(milliseconds=100 * at - (90_000 if of.random() < 0.05 else 0)),
        }
        for at in range(count)
    ]


def write_json(folder: Path, rows: list[dict[str, object]], name: str = "1.json") -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({**row, "ts": row["ts"] and str(row["ts"])[:23]}) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")


def write_parquet(folder: Path, rows: list[dict[str, object]], name: str, unit: str) -> None:
    schema = pa.schema([("k", pa.int32()), ("s", pa.string()), ("n", pa.int32()), ("ts", pa.timestamp(unit))])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / name)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_rows_are_those_of_catalyst(run: Run, tmp_path: Path, form: str) -> None:
    rows = make_rows(3_000)
    (tmp_path / "in").mkdir()
    for at in range(0, len(rows), 1_000):
        if form == "json":
            write_json(tmp_path / "in", rows[at : at + 1_000], f"{at}.json")
        else:
            write_parquet(tmp_path / "in", rows[at : at + 1_000], f"{at}.parquet", "ns")
    done = both(run, tmp_path, SOURCE.format(form), WINDOWS)
    assert done.code == 0
    assert "2026-01-01 00:04:00.000" in done.out


@pytest.mark.slow
def test_texts_that_are_passed_on(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = make_rows(13_000)
    # Polars decodes the first file, Arrow the second one.
    write_parquet(tmp_path / "in", rows[:12_000], "0.parquet", "us")
    write_parquet(tmp_path / "in", rows[12_000:], "1.parquet", "us")
    assert both(run, tmp_path, SOURCE.format("parquet"), WINDOWS).code == 0
    last = """SELECT k, s, n, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k, n ORDER BY ts DESC) AS place FROM t
    WHERE n < 20) WHERE place <= 2"""
    assert both(run, tmp_path, SOURCE.format("parquet"), last).code == 0
    longest = "SELECT k, CHAR_LENGTH(s) AS l, COUNT(*), MAX(ts) FROM t WHERE s <> 'b' GROUP BY k, CHAR_LENGTH(s)"
    assert both(run, tmp_path, SOURCE.format("parquet"), longest).code == 0


@pytest.mark.slow
def test_groups_and_over(run: Run, tmp_path: Path) -> None:
    write_json(tmp_path / "in", make_rows(500))
    source = SOURCE.format("json")
    both(run, tmp_path, source, "SELECT k, s, COUNT(*), MAX(n), MIN(ts) FROM t GROUP BY k, s")
    both(run, tmp_path, source, "SELECT COUNT(*) FROM t")
    over = "SELECT k, ts, SUM(n) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) FROM t"
    both(run, tmp_path, source, over)


def test_a_row_without_a_time_stops_the_job_with_its_line(run: Run, tmp_path: Path) -> None:
    rows = make_rows(10)
    rows[6]["ts"] = None
    write_json(tmp_path / "in", rows)
    done = both(run, tmp_path, SOURCE.format("json"), WINDOWS)
    assert done.code != 0
    assert "`in/1.json` line 7" in done.first
    skipped = both(run, tmp_path, SOURCE.format("json"), WINDOWS, "everfold.null-rowtime=drop")
    assert skipped.code == 0
    assert "1 row" in skipped.err


@pytest.mark.parametrize(
    "line",
    [
        '{"k": "x"}',
        *(pytest.param(each, marks=pytest.mark.slow) for each in ('{"k": 1', "[1]", '{"n": 2147483648}')),
        '{"ts": "yesterday"}',
    ],
)
def test_a_bad_record_stops_the_job_with_its_line(run: Run, tmp_path: Path, line: str) -> None:
    write_json(tmp_path / "in", make_rows(50))
    content = (tmp_path / "in" / "1.json").read_text().splitlines()
    (tmp_path / "in" / "1.json").write_text("\r\n".join([*content[:30], "", line, *content[30:]]))
    done = both(run, tmp_path, SOURCE.format("json"), WINDOWS)
    assert done.code != 0
    assert "`in/1.json` line 32" in done.first


@pytest.mark.slow
def test_columns_of_folders_and_files(run: Run, tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        folder = tmp_path / "in" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "rows.json").write_text('{"n": 1}\n\n{"n": 2}\n')
    source = """(n INT, `day` DATE, f STRING METADATA FROM 'file.name') PARTITIONED BY (`day`)
    WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"""
    done = both(run, tmp_path, source, "SELECT `day`, f, SUM(n) FROM t GROUP BY `day`, f")
    assert "2026-01-02" in done.out
    assert "rows.json" in done.out
    done = both(run, tmp_path, source, "SELECT `day`, COUNT(*) FROM t GROUP BY `day`")
    assert done.code == 0


@pytest.mark.parametrize("form", [pytest.param("json", marks=pytest.mark.slow), "parquet"])
def test_a_folder_with_a_bad_value_stops_the_job(run: Run, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in" / "day=notadate"
    folder.mkdir(parents=True)
    if form == "json":
        (folder / "rows.json").write_text('{"n": 1}\n')
    else:
        pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), folder / "rows.parquet")
    source = f"""(n INT, `day` DATE) PARTITIONED BY (`day`)
    WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = '{form}')"""
    done = both(run, tmp_path, source, "SELECT `day`, SUM(n) FROM t GROUP BY `day`")
    assert "rows" in done.first
    assert "field `day` is not a value of DATE: `notadate`" in done.first


def test_tables_of_a_union_are_decoded_by_workers(run: Run, tmp_path: Path) -> None:
    rows = make_rows(60)
    write_json(tmp_path / "in", rows[:30])
    write_json(tmp_path / "more", rows[30:])
    source = f"""{SOURCE.format("json")};
    CREATE TABLE u (n INT, ts TIMESTAMP(3), s STRING, k BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'filesystem', 'path' = 'more', 'format' = 'json')"""
    both_tables = "SELECT k, s, n + 1 AS n FROM t WHERE k > 0 UNION ALL SELECT k, s, n FROM u"
    query = f"SELECT s, COUNT(*) AS c, SUM(n) AS n, MAX(k) AS k FROM ({both_tables}) GROUP BY s"
    done = both(run, tmp_path, source, query)
    assert done.code == 0
    assert explain(run, tmp_path, query, source).count("Python workers") == 2


def test_days_are_formatted_by_workers(run: Run, tmp_path: Path) -> None:
    write_json(tmp_path / "in", make_rows(60))
    source = SOURCE.format("json")
    query = (
        "SELECT DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm') AS m, COUNT(*) FROM t GROUP BY DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm')"
    )
    assert "2026-01-01 00:00" in both(run, tmp_path, source, query).out
    assert "Python workers" in explain(run, tmp_path, query, source)


@pytest.mark.parametrize(
    ("zone", "of_windows"), [("UTC", "Python workers"), pytest.param("Asia/Tokyo", "Catalyst", marks=pytest.mark.slow)]
)
def test_processing_time_is_that_of_the_batch(run: Run, tmp_path: Path, zone: str, of_windows: str) -> None:
    write_json(tmp_path / "in", make_rows(20))
    source = f"{SOURCE.format('json')};\nCREATE VIEW timed AS SELECT *, PROCTIME() AS proc FROM t"
    windows = """SELECT window_start AS since, window_end AS until, COUNT(*) AS c
    FROM TUMBLE(TABLE timed, DESCRIPTOR(proc), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
    over = "SELECT CAST(proc AS TIMESTAMP(3)) AS since, COUNT(*) OVER (ORDER BY proc) AS c FROM timed"
    conf = ("--conf", f"table.local-time-zone={zone}")
    for query, decoding in ((windows, of_windows), (over, "Python workers")):
        assert decoding in explain(run, tmp_path, query, source, *conf)
        (tmp_path / "job.sql").write_text(f"CREATE TABLE t {source};\n{query};\n")
        before = dt.datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
        done = run("--format", "json", *conf)
        after = dt.datetime.now(ZoneInfo(zone)).replace(tzinfo=None)
        rows = [json.loads(line) for line in done.out.splitlines()]
        assert max(row["c"] for row in rows) == 20
        since = [dt.datetime.fromisoformat(row["since"]) for row in rows]
        width = dt.timedelta(minutes=1 if query is windows else 0)
        assert before - width < min(since) <= max(since) <= after


@pytest.mark.slow
def test_what_is_not_proven_equal_is_left_to_catalyst(run: Run, tmp_path: Path) -> None:
    write_json(tmp_path / "in", make_rows(20))
    done = both(run, tmp_path, SOURCE.format("json"), "SELECT UPPER(s), COUNT(*) FROM t GROUP BY UPPER(s)")
    assert done.code == 0
