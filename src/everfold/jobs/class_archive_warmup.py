"""Run small jobs of each kind to record the classes that Spark loads for them in an archive."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from everfold.errors import UsageError
from everfold.files import cache_folder
from everfold.jobs.engine import Engine
from everfold.jobs.spec import JobSpec
from everfold.spark.archive import archive_of, write_archive
from everfold.spark.java import require_java
from everfold.spark.session import quote_option, stop_jvm
from everfold.sql.planner import Session, Submit

_SCRIPT = """
CREATE TABLE bids (at TIMESTAMP(3), price DECIMAL(10, 2), item STRING, WATERMARK FOR at AS at - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'bids', 'format' = 'json');
CREATE TABLE totals (window_start TIMESTAMP(3), item STRING, total DECIMAL(38, 2))
WITH ('connector' = 'filesystem', 'path' = 'totals', 'format' = 'json');
SELECT window_start, window_end, SUM(price) FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;
INSERT INTO totals SELECT window_start, item, SUM(price) FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, item;
SET 'execution.runtime-mode' = 'batch';
SELECT window_start, window_end, SUM(price) FROM TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;
"""
_ROWS = [{"at": f"2020-04-15 08:0{minute}:00", "price": 4.25, "item": "C"} for minute in range(6)]


def write_class_archive() -> Path:
    """Write the class archive for the current Java and Spark unless it exists, and return its path.

    Raises UsageError `no-archive` if the JVM does not write one, and the errors of starting Spark.
    """
    java = require_java()
    known = archive_of(java)
    if known is not None:
        return known
    log_file = cache_folder() / "rehearsal.log"
    with tempfile.TemporaryDirectory(prefix="everfold-rehearsal-") as folder, write_archive(java) as part:
        _run(Path(folder), log_file, part)
    made = archive_of(java)
    if made is None:
        raise UsageError.of(
            "no-archive",
            "Java did not write an archive of Spark's classes; Spark works without it but starts more slowly",
            help=f"for details see {log_file}",
        )
    return made


def _run(folder: Path, log_file: Path, part: Path) -> None:
    bids = folder / "bids" / "1.json"
    bids.parent.mkdir()
    bids.write_text("\n".join(map(json.dumps, _ROWS)))
    record = quote_option(f"-XX:ArchiveClassesAtExit={part}")
    engine = Engine(conf={"spark.driver.extraJavaOptions": record}, log_file=log_file)
    try:
        submits = [action for action in Session().run(_SCRIPT) if isinstance(action, Submit)]
        for number, submit in enumerate(submits):
            job_dir = folder / "jobs" / str(number)  # a stream and a batch may not share one
            engine.run(
                JobSpec(
                    roots=submit.roots,
                    settings=submit.settings,
                    base_folder=folder,
                    state_dir=job_dir,
                    receive=lambda _: None,
                )
            )
    finally:
        engine.close()
        stop_jvm()
