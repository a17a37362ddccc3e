"""Break a small job at each page that it writes, one after another, and compare the output.

This is a program. All runs share one Spark session. Arguments: a folder and the action of
`hooks/sitecustomize.py`. It prints how often the job was broken.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from faults.injection import Fault, Plan

from everfold import jobs
from everfold.cli.main import main
from everfold.jobs.engine import Engine
from everfold.spark.session import start_spark, stop_jvm

PAGE = "everfold.spark.processor:MapStateStore.put"
SCRIPT = """
SET 'parallelism.default' = '1';
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'scan.max-files-per-batch' = '1');
CREATE TABLE per_minute (window_end TIMESTAMP(3), page STRING, n BIGINT, distinct_n BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
INSERT INTO per_minute SELECT window_end, page, SUM(CAST(n AS BIGINT)), COUNT(DISTINCT n)
FROM HOP(TABLE click, DESCRIPTOR(clicked), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) GROUP BY window_start, window_end, page;
"""
PAGES = "ab"
WHOLE = sorted((minute, page, 4 if minute in (1, 3) else 8, 2) for minute in (1, 2, 3) for page in PAGES)
"""Minutes 0 and 1 have two clicks (n = 1 and n = 3) for each page.

A window of two minutes ends at each minute.
"""


def lay_out(folder: Path) -> None:
    (folder / "in").mkdir(parents=True)
    for minute in range(2):
        rows = (
            {"clicked": f"2020-01-01 10:0{minute}:{second:02}", "page": page, "n": n}
            for page in PAGES
            for second, n in ((10, 1), (20, 3))
        )
        file = folder / "in" / f"{minute}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_000_000_000 + minute, 1_000_000_000 + minute))
    (folder / "job.sql").write_text(SCRIPT)


def run_job() -> tuple[int, str]:
    """Run `job.sql` of the current folder. Return the exit code and what was printed on stderr."""
    sys.argv = ["everfold", "run", "job.sql"]
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), printed.getvalue()
    return 0, printed.getvalue()


def read_rows(folder: Path) -> list[tuple[int, str, int, int]]:
    files = [file for file in (folder / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
    rows = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return sorted((int(row["window_end"][14:16]), row["page"], row["n"], row["distinct_n"]) for row in rows)


def break_each(folder: Path, action: str, plan: Plan) -> int:
    """Break the job at its first page, its second page, and so on to the last.

    Return the number of pages.
    """
    call = 1
    while True:
        job = folder / str(call)
        lay_out(job)
        os.chdir(job)
        plan.set(Fault(PAGE, "before", call, action))
        code, printed = run_job()
        if not plan.is_done:
            assert code == 0, printed
            assert read_rows(job) == WHOLE, read_rows(job)
            return call - 1
        assert code == 1, (call, printed)
        assert "Traceback" not in printed, printed
        plan.clear()
        code, printed = run_job()
        assert code == 0, (call, printed)
        assert read_rows(job) == WHOLE, (call, read_rows(job))
        call += 1


if __name__ == "__main__":
    folder, action = Path(sys.argv[1]), sys.argv[2]
    session = start_spark(master="local[1]", conf={}, log_file=folder / "spark.log")
    jobs._ENGINES[None, ()] = Engine(session=session)
    print(break_each(folder, action, Plan(folder, PAGE)), "pages")
    session.stop()
    stop_jvm()
