"""Kill a job with SIGKILL during a refresh and start it again with the same command.

The refresh completes: the table holds what the new query computes from all rows, and operators
above others are complete.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from killing import CHANGE_STAGES, kill_at_stage
from postgres import Database

ROWS = 400
SCRIPT = """
SET 'everfold.compat.rules' = 'extended';
CREATE TABLE click (page STRING, who STRING, n INT)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE most (most BIGINT, pages BIGINT, least STRING, total BIGINT, PRIMARY KEY (most) NOT ENFORCED) WITH ({options});
INSERT INTO most
SELECT most % 7 AS most, COUNT(*), {calls}
FROM (SELECT page, SUM(n) AS most FROM click GROUP BY page)
GROUP BY most % 7 {having};
"""
OLD = {"calls": "CAST(NULL AS STRING), CAST(NULL AS BIGINT)", "having": "HAVING COUNT(*) > 4"}
NEW = {"calls": "MIN(page), SUM(most)", "having": "HAVING COUNT(*) < 8"}


def put(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    made = random.Random(number)
    rows = [{"page": f"p{made.randrange(40)}", "who": "a", "n": made.randrange(-20, 20)} for _ in range(ROWS)]
    (folder / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "everfold", "run", "job.sql", "--state", "state", "--refresh"]
    with (folder / "log.txt").open("ab") as out:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, start_new_session=True)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("stage", CHANGE_STAGES)
def test_a_refresh_killed_at_each_stage(stage: str, tmp_path: Path, database: Database) -> None:
    database.run("CREATE TABLE most (most bigint PRIMARY KEY, pages bigint, least text, total bigint)")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in database.options("most").items())

    def wait_for_end(job: subprocess.Popen[bytes]) -> None:
        assert job.wait(timeout=300) == 0, (tmp_path / "log.txt").read_text()

    (tmp_path / "job.sql").write_text(SCRIPT.format(options=options, **OLD))
    for number in range(2):
        put(tmp_path, number)
    wait_for_end(start(tmp_path))
    put(tmp_path, 2)
    (tmp_path / "job.sql").write_text(SCRIPT.format(options=options, **NEW))
    killed = kill_at_stage(start(tmp_path), CHANGE_STAGES[stage], tmp_path / "state")
    wait_for_end(start(tmp_path))
    expected = duckdb.execute(
        f"""
        WITH groups AS (SELECT page, SUM(n)::BIGINT AS most FROM read_json('{tmp_path}/in/*.json') GROUP BY page)
        SELECT most % 7, COUNT(*), MIN(page), SUM(most)::BIGINT FROM groups GROUP BY most % 7 HAVING COUNT(*) < 8
        """
    ).fetchall()
    assert sorted(database.run("SELECT * FROM most")) == sorted(expected)
    assert killed, "the job ended before it could be killed"
