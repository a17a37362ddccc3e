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

from everfold.connectors.registry import apply_connector
from everfold.jobs.engine import Engine
from everfold.jobs.spec import JobSpec
from everfold.plan.changelog import KIND, RETRACTIONS
from everfold.sql.planner import Session, Submit

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
    session = Session(options, connected=apply_connector)
    (submit,) = [each for each in session.run(QUERY.replace("{format}", form)) if isinstance(each, Submit)]
    received: list[pa.Table] = []
    spec = JobSpec(
        roots=submit.roots,
        settings=submit.settings,
        base_folder=tmp_path,
        state_dir=tmp_path / "job",
        receive=received.append,
    )
    Engine(session=spark).run(spec)
    assert current_rows(received) == EXPECTED
