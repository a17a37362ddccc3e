"""The command line with Spark, as a user runs it: in a separate process, stopped by Ctrl-C,
started again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from manifests import newest_manifest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
SCRIPT = """\
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'bids', 'format' = 'json', 'source.monitor-interval' = '200 ms');
CREATE TABLE totals (window_start TIMESTAMP(3), total_price DECIMAL(38, 2))
WITH ('connector' = 'filesystem', 'path' = 'totals', 'format' = 'json');
INSERT INTO totals
SELECT window_start, SUM(price) FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
GROUP BY window_start, window_end;
"""


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start the command in a new process group, as a shell does."""
    command = [sys.executable, "-m", "everfold", *arguments]
    return subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def add_bids(folder: Path, name: str, bids: dict[str, float]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"bidtime": f"2020-04-15 {at}:00", "price": price}) for at, price in bids.items()]
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines) + "\n")
    hidden.rename(folder / name)


def totals(folder: Path) -> list[tuple[str, float]]:
    files = [each for each in (folder / "totals").glob("*") if not each.name.startswith((".", "_"))]
    rows = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    return sorted((row["window_start"], row["total_price"]) for row in rows)


def wait_for(rows: list[tuple[str, float]], folder: Path, job: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and job.poll() is None:
        if totals(folder) == rows:
            return
        time.sleep(0.2)
    os.killpg(job.pid, signal.SIGKILL)
    pytest.fail(f"{totals(folder)} is not {rows}\n{job.communicate()[1]}")


def test_the_first_example_prints_its_table() -> None:
    job = start("run", "examples/bids/tumble.sql", cwd=ROOT)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, err
    assert out.splitlines()[3:] == [
        "| 2020-04-15 08:00:00.000 | 2020-04-15 08:10:00.000 |       11.00 |",
        "| 2020-04-15 08:10:00.000 | 2020-04-15 08:20:00.000 |       10.00 |",
        "+-------------------------+-------------------------+-------------+",
        "2 rows in set",
    ]
    assert "WARN" not in err
    assert "Exception" not in err


# Flink's documentation of window aggregation, with the times in full.
TUMBLE = [("08:00", "08:10", "11.00"), ("08:10", "08:20", "10.00")]
HOP = [
    ("08:00", "08:10", "11.00"),
    ("08:05", "08:15", "15.00"),
    ("08:10", "08:20", "10.00"),
    ("08:15", "08:25", "6.00"),
]
CUMULATE = [
    ("08:00", "08:06", "4.00"), ("08:00", "08:08", "6.00"), ("08:00", "08:10", "11.00"), ("08:10", "08:12", "3.00"),
    ("08:10", "08:14", "4.00"), ("08:10", "08:16", "4.00"), ("08:10", "08:18", "10.00"), ("08:10", "08:20", "10.00"),
]  # fmt: skip
SESSION_BY_SUPPLIER = [
    ("08:05", "08:09", "supplier1", "6.00"), ("08:09", "08:13", "supplier2", "8.00"),
    ("08:13", "08:15", "supplier1", "1.00"), ("08:17", "08:19", "supplier2", "6.00"),
]  # fmt: skip
SESSION = [("08:05", "08:15", "15.00"), ("08:17", "08:19", "6.00")]
GROUPING_SETS = [
    ("08:00", "08:10", "<NULL>", "11.00"), ("08:00", "08:10", "supplier1", "6.00"), ("08:00", "08:10", "supplier2", "5.00"),
    ("08:10", "08:20", "<NULL>", "10.00"), ("08:10", "08:20", "supplier1", "1.00"), ("08:10", "08:20", "supplier2", "9.00"),
]  # fmt: skip


@pytest.mark.slow
def test_the_demo_prints_the_tables_of_flinks_documentation() -> None:
    job = start("run", "examples/bids/demo.sql", cwd=ROOT)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, err
    tables: list[list[tuple[str, ...]]] = []
    for line in out.splitlines():
        cells = tuple(cell.strip() for cell in line.split("|")[1:-1])
        if cells and cells[0] == "window_start":
            tables.append([])
        elif cells:
            assert cells[0].startswith("2020-04-15 ")
            assert cells[0].endswith(":00.000")
            tables[-1].append((cells[0][11:16], cells[1][11:16], *cells[2:]))
    *windows, sets, rollup, cube = tables
    assert windows == [TUMBLE, HOP, CUMULATE, SESSION_BY_SUPPLIER, SESSION]
    assert sorted(sets) == sorted(rollup) == GROUPING_SETS
    assert sorted((*row[:2], *row[3:]) for row in cube if row[2] == "<NULL>") == GROUPING_SETS
    assert len(cube) == 18


# Flink 2.3's answers to the queries of its documentation of OVER and group windows, over the orders
# of the example.
ONE_HOUR = [
    ("1", "3", "3"),
    ("2", "2", "2"),
    ("3", "4", "7"),
    ("4", "1", "8"),
    ("5", "2", "7"),
    ("6", "5", "5"),
    ("7", "6", "6"),
    ("8", "1", "1"),
]
MEANS = ["3", "2", "3", "2", "2", "5", "6", "1"]
DAYS = [("1", "15", "12"), ("1", "16", "1"), ("2", "15", "4"), ("3", "15", "1"), ("3", "16", "6")]


@pytest.mark.slow
def test_the_demo_of_orders_prints_what_flink_answers() -> None:
    job = start("run", "examples/orders/demo.sql", cwd=ROOT)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, err
    lines = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in out.splitlines() if "|" in line]
    rows = [line for line in lines if line[0].isdecimal()]
    assert [(row[0], *row[2:]) for row in rows[:8]] == ONE_HOUR
    assert [(row[0], *row[2:]) for row in rows[8:16]] == [
        (*row, mean) for row, mean in zip(ONE_HOUR, MEANS, strict=True)
    ]
    assert sorted((row[0], row[1][8:10], row[2]) for row in rows[16:]) == DAYS


def test_ctrl_c_stops_a_job_and_the_same_command_resumes_it(tmp_path: Path) -> None:
    (tmp_path / "totals.sql").write_text(SCRIPT)
    add_bids(tmp_path / "bids", "1.json", {"08:05": 4, "08:07": 2, "08:11": 3})
    first = [("2020-04-15 08:00:00", 6.0)]
    job = start("run", "totals.sql", cwd=tmp_path)
    wait_for(first, tmp_path, job)
    os.killpg(job.pid, signal.SIGINT)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert (job.returncode, out) == (0, ""), err
    assert "stopping after the running batch" in err
    assert "totals: stopped; " in err
    assert newest_manifest(tmp_path / ".everfold" / "totals").exists()

    add_bids(tmp_path / "bids", "2.json", {"08:12": 7, "08:25": 1})
    job = start("run", "totals.sql", cwd=tmp_path)
    wait_for([*first, ("2020-04-15 08:10:00", 10.0)], tmp_path, job)
    os.killpg(job.pid, signal.SIGINT)
    out, err = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, err
    assert "Traceback" not in err
    assert " starting Spark\n" in err
    assert re.search(r" resuming after batch \d+\n", err), err
