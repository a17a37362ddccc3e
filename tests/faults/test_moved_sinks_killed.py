"""Kill a job with SIGKILL while it starts to write a table elsewhere and a second one, and start it
again with the same command.

Each table then holds the result over all rows, once.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from killing import CHANGE_STAGES, kill_at_stage

ROWS = 300
TABLES = """
CREATE TABLE {name} (page STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json',
  'scan.max-files-per-batch' = '1');
CREATE TABLE totals (page STRING, n INT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'debezium-json');
CREATE TABLE most (page STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'most', 'format' = 'debezium-json');
CREATE TABLE copied (page STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'copied', 'format' = 'debezium-json');
"""
TOTALS, MOST = (f"SELECT page, {call}(n) AS n FROM {{name}} GROUP BY page" for call in ("SUM", "MAX"))
OLD = f"{TABLES}EXECUTE STATEMENT SET BEGIN INSERT INTO totals {TOTALS}; INSERT INTO most {MOST}; END;"
NEW = (
    f"{TABLES}EXECUTE STATEMENT SET BEGIN INSERT INTO copied {MOST}; INSERT INTO most {MOST};"
    f" INSERT INTO totals {TOTALS}; END;"
)
ANSWERS = ("--sink", "totals=refresh", "--sink", "copied=refresh", "--source", "click=visits")
STAGES: dict[str, Callable[[Path], bool]] = {
    "the checkpoint is copied": lambda folder: (folder / "checkpoints/1").exists(),
    **CHANGE_STAGES,
}


def put(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    chance = random.Random(number)
    rows = [{"page": f"p{chance.randrange(60)}", "n": chance.randrange(1000)} for _ in range(ROWS)]
    (folder / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def start(folder: Path, script: str, *options: str, name: str, path: str) -> subprocess.Popen[bytes]:
    (folder / "job.sql").write_text(script.format(name=name, path=path))
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "state", "--suspend", *options]
    with (folder / "log.txt").open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


def read_table(folder: Path) -> list[tuple[str, int]]:
    """Return the rows after all changes, each as often as the table has it."""
    rows: Counter[tuple[str, int]] = Counter()
    files = (file for file in folder.iterdir() if file.name[0] not in "._")
    changes: list[dict[str, Any]] = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for change in changes:
        for part, count in (("before", -1), ("after", 1)):
            if change[part] is not None:
                rows[change[part]["page"], change[part]["n"]] += count
    assert min(rows.values()) >= 0, rows
    return sorted(rows.elements())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_start_with_moved_tables_killed_at_each_stage(stage: str, tmp_path: Path) -> None:
    def wait_for_end(job: subprocess.Popen[bytes]) -> None:
        assert job.wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()

    for number in range(2):
        put(tmp_path, number)
    wait_for_end(start(tmp_path, OLD, name="click", path="totals"))
    put(tmp_path, 2)
    job = start(tmp_path, NEW, *ANSWERS, name="visits", path="totals2")
    killed = kill_at_stage(job, STAGES[stage], tmp_path / "state")
    put(tmp_path, 3)
    wait_for_end(start(tmp_path, NEW, *ANSWERS, name="visits", path="totals2"))
    for table, call in (("totals2", "SUM"), ("most", "MAX"), ("copied", "MAX")):
        query = f"SELECT page, {call}(n)::INT FROM read_json('{tmp_path}/in/*.json') GROUP BY page"
        assert read_table(tmp_path / table) == sorted(duckdb.execute(query).fetchall()), table
    assert killed, "the job ended before it could be killed"
