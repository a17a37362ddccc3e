"""The rate of a batch in memory counts the time in which its rows are read."""

from __future__ import annotations

import json
import time
from pathlib import Path

from everfold.cli.memory_jobs import MemoryEngine
from everfold.connectors.registry import apply_connector
from everfold.jobs.progress import Progress
from everfold.jobs.spec import JobSpec
from everfold.sql.planner import Session, Submit

SCRIPT = """
CREATE TABLE t (a INT, s STRING) WITH ('connector' = 'filesystem', 'path' = 't.json', 'format' = 'json');
CREATE TABLE o (a INT, n BIGINT) WITH ('connector' = 'print');
INSERT INTO o SELECT a, COUNT(*) FROM t GROUP BY a
"""


def test_batches_last_as_long_as_the_run(tmp_path: Path) -> None:
    lines = (json.dumps({"a": number % 10, "s": "x" * 50}) for number in range(20_000))
    (tmp_path / "t.json").write_text("\n".join(lines))
    submit = next(each for each in Session(connected=apply_connector).run(SCRIPT) if isinstance(each, Submit))
    seen: list[Progress] = []
    spec = JobSpec(roots=submit.roots, settings=submit.settings, base_folder=tmp_path, progress=seen.append)
    began = time.perf_counter()
    MemoryEngine().run(spec)
    lasted = time.perf_counter() - began
    rows = [now.rows - before for now, before in zip(seen, [0, *(each.rows for each in seen)], strict=False)]
    of_batches = sum(count / now.rows_per_second for count, now in zip(rows, seen, strict=True))
    assert sum(rows) == 20_000
    assert lasted / 2 < of_batches <= lasted
