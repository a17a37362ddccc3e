"""A backfill reads the files of a table as the job has read them, to the byte."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.running import Run

Rows = list[tuple[str, int]]
OLD = "INSERT INTO o SELECT k, COUNT(*) AS c FROM t GROUP BY k;"
NEW = "INSERT INTO o SELECT k, COUNT(*) AS c, COUNT(n) AS d, SUM(n) AS s FROM t GROUP BY k;"
ALL_ROWS: Rows = [("a", 1), ("b", 2), ("a", 4), ("b", 8)]


def encode_json(rows: Rows) -> bytes:
    return "".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in rows).encode()


def encode_csv(rows: Rows) -> bytes:
    return "".join(f"{k},{n}\n" for k, n in rows).encode()


def encode_parquet(rows: Rows) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [k for k, _ in rows], "n": pa.array([n for _, n in rows], pa.int32())}), sink)
    return bytes(sink.getvalue())


FILES: dict[str, tuple[str, str, Callable[[Rows], bytes]]] = {
    "json": ("json", "1.json", encode_json),
    "csv": ("csv", "day=7/a b#%.csv", encode_csv),
    "gz": ("json", "1.json.gz", lambda rows: gzip.compress(encode_json(rows))),
    "parquet": ("parquet", "1.parquet", encode_parquet),
}


def declare(form: str, query: str, options: str = "") -> None:
    added = ", d BIGINT, s BIGINT" if query == NEW else ""
    Path("job.sql").write_text(
        f"CREATE TABLE t (k STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = '{form}'{options});\n"
        f"CREATE TABLE o (k STRING, c BIGINT{added}) WITH ('connector' = 'print');\n{query}"
    )


def append(file: Path, content: bytes) -> None:
    """Add to a file, which gets another time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as out:
        out.write(content)
    changed = time.time() - 1000 + file.stat().st_size
    os.utime(file, (changed, changed))


def backfill(run: Run, form: str, options: str = "") -> tuple[int, str, list[str]]:
    """Change the query; return the exit code, the messages, and the last row of each key."""
    declare(form, NEW, options)
    done = run("--state", "state", "--on-change", "backfill", "--refresh")
    return (
        done.code,
        done.err,
        sorted({line[3]: line[2:] for line in done.out.splitlines() if line.startswith("+")}.values()),
    )


@pytest.mark.parametrize(
    "kind", [kind if kind == "json" else pytest.param(kind, marks=pytest.mark.slow) for kind in FILES]
)
def test_what_was_added_to_a_file_is_not_read(run: Run, kind: str) -> None:
    form, name, encode = FILES[kind]
    file = Path("in", name)
    append(file, encode(ALL_ROWS[:2]))
    append(file.with_name(f"z{file.suffix}"), encode([("b", 16)]))
    options = ", 'source.path.regex-pattern' = '.*/(in/.*)'"
    declare(form, OLD, options)
    assert run("--state", "state").code == 0
    append(file, encode(ALL_ROWS[2:]))
    code, messages, rows = backfill(run, form, options)
    assert code == 0, messages
    assert rows == ["[a, 1, 1, 1]", "[b, 2, 2, 18]"]
    assert not Path("state/read_again").exists()


@pytest.mark.slow
def test_a_file_whose_read_part_is_gone_or_unknown_is_refused(run: Run) -> None:
    file = Path("in/1.json")
    append(file, encode_json(ALL_ROWS))
    declare("json", OLD)
    assert run("--state", "state").code == 0
    content = file.read_bytes()
    file.write_bytes(content[:-5])
    code, messages, _ = backfill(run, "json")
    assert (code, messages.count("error[no-past]")) == (1, 1), messages
    assert "the file `in/1.json` has changed since the job read it" in messages
    file.write_bytes(content)
    (record,) = Path("state/sources").glob("*.files.json")
    record.unlink()  # as if the job was killed before it looked at the file again
    code, messages, _ = backfill(run, "json")
    assert (code, messages.count("has changed since the job read it")) == (1, 1), messages
    os.utime(file, ns=(logged_time("state"),) * 2)
    code, messages, rows = backfill(run, "json")
    assert code == 0, messages
    assert rows == ["[a, 2, 2, 5]", "[b, 2, 2, 10]"]


def logged_time(state: str) -> int:
    """Return the time of the only file in the log of the source, ns."""
    (log,) = Path(state, "checkpoints/0/sources").glob("t_*/0")
    return int(json.loads(log.read_text().splitlines()[1])["timestamp"]) * 1_000_000
