"""A long-running job: memory, open files and threads do not grow, and every emitted window is
correct.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from faults.sampling import Sampler, fit_growth, measure_live_heap_mb
from jvm import conf_options
from killing import commits

pytestmark = [pytest.mark.slow, pytest.mark.spark]

MINUTES = float(os.environ.get("EVERFOLD_STEADY_MINUTES", "15"))
ROWS_PER_FILE, KEYS = 2000, 500
WARM_UP_BATCHES = 200 if MINUTES >= 10 else 0
"""Before that, and in the first third of the time, memory may grow: the JVM compiles, caches fill,
and Spark keeps its last hundred batches. On a busy machine it takes longer to run so many.
"""
HEAP_MB = 1024
HEAP = {
    "spark.driver.memory": f"{HEAP_MB}m",
    "spark.driver.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch",
}
"""The heap of the JVM has its whole size at once: otherwise it grows with the garbage until that is
collected. What is in use there is measured apart from the rest of the memory.
"""
EVERFOLD = """
import gc, signal
signal.signal(signal.SIGUSR1, lambda *_: gc.collect())
from everfold.__main__ import main
main()
"""
"""The command, which collects Python's garbage when asked to. Frames of earlier batches are a part of
it, and they hold objects of the JVM: about 50 kB a batch, until Python's oldest generation is
collected, which takes hundreds of batches.
"""
SCRIPT = """
CREATE TABLE click (clicked TIMESTAMP(3), page STRING, n INT, WATERMARK FOR clicked AS clicked)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json', 'source.monitor-interval' = '200 ms');
CREATE TABLE windows (window_start TIMESTAMP(3), clicks BIGINT, people BIGINT)
WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE nothing (page STRING, n BIGINT) WITH ('connector' = 'blackhole');
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows SELECT window_start, COUNT(*), COUNT(DISTINCT page)
FROM TUMBLE(TABLE click, DESCRIPTOR(clicked), INTERVAL '10' SECOND) GROUP BY window_start, window_end;
INSERT INTO nothing SELECT page, SUM(CAST(n AS BIGINT)) FROM click GROUP BY page;
END;
"""


def add_file(folder: Path, number: int) -> Counter[str]:
    """Write a file with two seconds of event time. Return its clicks by window of ten seconds."""
    seconds = [number * 2 + at * 2 // ROWS_PER_FILE for at in range(ROWS_PER_FILE)]
    stamps = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1_577_836_800 + second)) for second in seconds]
    rows = ({"clicked": stamp, "page": f"p{at % KEYS}", "n": at} for at, stamp in enumerate(stamps))
    hidden = folder / "in" / f".{number}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / "in" / f"{number}.json")
    return Counter(stamp[:-1] + "0" for stamp in stamps)


def test_memory_files_and_threads_do_not_grow(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "job.sql").write_text(SCRIPT)
    command = [sys.executable, "-c", EVERFOLD, "run", "job.sql", "--state", "state", "--master", "local[2]"]
    command += conf_options(HEAP)
    expected: Counter[str] = Counter()
    log = tmp_path / "log.txt"
    with log.open("wb") as out:
        job = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out, start_new_session=True)
    started, number, warm_at = time.monotonic(), 0, None
    with Sampler(job.pid) as sampler:
        while warm_at is None or time.monotonic() < warm_at + MINUTES * 40:
            assert job.poll() is None, log.read_text()
            expected += add_file(tmp_path, number)
            number += 1
            time.sleep(1.0)
            if warm_at is None and time.monotonic() > started + MINUTES * 20 and commits(tmp_path) >= WARM_UP_BATCHES:
                heap_mb = _measure_objects_mb(job.pid)
                warm_at, warm_samples = time.monotonic(), len(sampler.samples)
        steady = sampler.samples[warm_samples:]
        heap_growth = _measure_objects_mb(job.pid) / heap_mb - 1
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=300) == 0, log.read_text()
    files = [file for file in (tmp_path / "out").glob("part-*") if file.is_file()]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = {row["window_start"].replace("T", " ")[:19]: (row["clicks"], row["people"]) for row in rows}
    assert len(found) == len(rows) > 0
    assert found == {start: (expected[start], KEYS) for start in found}
    growth = {
        "memory outside the heap": fit_growth(steady, [sample.memory_mb - HEAP_MB for sample in steady]),
        "open files": fit_growth(steady, [sample.open_files for sample in steady]),
        "threads": fit_growth(steady, [sample.threads for sample in steady]),
    }
    print(f"{len(sampler.samples)} samples, at most {sampler.peak_mb:,.0f} MB, heap {heap_mb:,.0f} MB")
    print(f"growth {growth}, of the heap {heap_growth}")
    assert max(growth.values()) < 0.1, growth
    assert heap_growth < 0.2


def _measure_objects_mb(pid: int) -> float:
    os.kill(pid, signal.SIGUSR1)
    time.sleep(1)
    return measure_live_heap_mb(pid)
