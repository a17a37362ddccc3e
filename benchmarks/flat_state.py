"""Run OVER with a RANGE of 60 s over 50 million rows and record the size of the state after each
batch: it must not grow.

    python flat_state.py --out ../scratch/bench/flat_state.jsonl
    python plot_flat_state.py ../scratch/bench/flat_state.jsonl --out flat_state.svg

The output is one JSON line per progress report of the job: `rows` read so far, and `state_rows` in
the state. `everfold state <job> --sizes` shows the bytes while the job runs. The job directory as a
whole grows for a while: Spark keeps the state as it was after each of the last hundred batches.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_stream
from queries import QUERIES
from query import BLACKHOLE, parquet_connector

SCRATCH = Path(__file__).resolve().parent.parent / "scratch" / "bench"
KEYS = 1000
FILE_ROWS = 1_000_000
_REPORT = re.compile(r"batch \d+ · ([\d,]+) rows? .* · ([\d,]+) state rows?")


def reports(script: Path, state: Path) -> Iterator[dict[str, Any]]:
    """Run a script as a job and yield its progress reports."""
    command = [sys.executable, "-m", "everfold", "run", str(script), "--state", str(state), "--master", "local[2]"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        for line in job.stderr:
            found = _REPORT.search(line)
            if found is not None:
                rows, state_rows = (int(each.replace(",", "")) for each in found.groups())
                yield {"rows": rows, "state_rows": state_rows}
            elif "error" in line:
                sys.stderr.write(line)
    if job.returncode:
        raise SystemExit(f"the job ended with {job.returncode}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Note the size of OVER's state over an endless stream.")
    parser.add_argument("--rows", type=float, default=50e6)
    parser.add_argument("--query", default="over_range", choices=[name for name in QUERIES if name.startswith("over")])
    parser.add_argument("--out", type=Path, default=SCRATCH / "flat_state.jsonl")
    options = parser.parse_args(arguments)
    rows = int(options.rows)
    data = SCRATCH / f"flat-{rows // 1000}k-rows"
    if not (data / "files").exists():
        files = max(rows // FILE_ROWS, 1)
        make_stream.main(["--out", str(data), "--rows", str(rows), "--keys", str(KEYS), "--files", str(files)])
    query = QUERIES[options.query]
    with tempfile.TemporaryDirectory() as folder, options.out.open("w") as file:
        script = Path(folder, "flat.sql")
        connector = {**parquet_connector(data / "files"), "scan.max-files-per-batch": "1"}
        statements = [
            *query.source_statements(connector),
            query.sink_statement(BLACKHOLE),
            f"INSERT INTO snk {query.select}",
        ]
        script.write_text(";\n".join(statements) + ";\n")
        for report in reports(script, Path(folder, "job")):
            print(json.dumps(report), flush=True)
            file.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
