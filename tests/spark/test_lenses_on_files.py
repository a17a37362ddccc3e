"""Lenses SQL over files: the newest file has the last row of a key, in streams and in batch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.running import run_script

from everfold.plan.changelog import KIND, RETRACTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = [{"_key": "a", "points": 1, "team": "x"}]
LARGE = [
    {"_key": "a", "points": 2, "team": "x"},
    *({"_key": f"k{at}", "points": 1, "team": "y"} for at in range(500)),
]
NEWEST = [{"_key": "a", "points": 3, "team": "x"}, *({"_key": f"k{at}", "points": 2, "team": "y"} for at in range(50))]
EXPECTED = {"x": (3, 1), "y": (550, 500)}
"""Spark reads the largest of several files first."""
QUERY = """
    CREATE TABLE players (_key STRING, points INT, team STRING) WITH ('connector' = 'filesystem', 'path' = 'players', 'format' = '{format}');
    SET 'everfold.dialect' = 'lenses';
    SELECT TABLE SUM(points) AS total, COUNT(*) AS n FROM players GROUP BY team;
"""


def write_files(folder: Path, form: str) -> None:
    folder.mkdir()
    for at, (name, rows) in enumerate({"c": OLDEST, "a": LARGE, "b": NEWEST}.items()):
        path = folder / f"{name}.{form}"
        if form == "json":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            schema = pa.schema({"_key": pa.string(), "points": pa.int32(), "team": pa.string()})
            pq.write_table(pa.Table.from_pylist(rows, schema), path)
        os.utime(path, (1_000_000 + at, 1_000_000 + at))


def current_rows(tables: Iterable[pa.Table]) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    rows: Iterable[dict[str, Any]] = (row for table in tables for row in table.to_pylist())
    for row in rows:
        if row.get(KIND) not in RETRACTIONS:
            found[row["c0"]] = (row["c1"], row["c2"])
    return found


@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize(
    "options",
    [
        {"execution.runtime-mode": "batch"},
        {},
        pytest.param({"everfold.scan": "catalyst"}, marks=pytest.mark.slow),
    ],
    ids=["batch", "stream", "stream through Catalyst"],
)
def test_the_newest_file_counts(spark: SparkSession, tmp_path: Path, form: str, options: dict[str, str]) -> None:
    write_files(tmp_path / "players", form)
    tables = run_script(spark, QUERY.replace("{format}", form), options, tmp_path, tmp_path / "job")
    assert current_rows(tables) == EXPECTED
