"""`everfold run` over bad input: the message, the exit code, and that the same command resumes
after the input is corrected.

Each job has read good files before it reads the bad one. Their rows must be neither lost nor
counted twice.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from manifests import newest_manifest
from spark.running import Run

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow
SCRIPT = """
CREATE TABLE t (at_time TIMESTAMP(3), n INT, WATERMARK FOR at_time AS at_time)
WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = '{format}', 'scan.max-files-per-batch' = '1'{more});
CREATE TABLE totals (window_end TIMESTAMP(3), total INT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'json');
INSERT INTO totals SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(at_time), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
"""
MINUTES = 3
WHOLE = [sum(range(60))] * MINUTES


def lines(minute: int, form: str = "json") -> list[str]:
    stamps = [f"2020-01-01 00:0{minute}:{second:02}" for second in range(60)]
    if form == "csv":
        return [f"{stamp},{n}" for n, stamp in enumerate(stamps)]
    return [json.dumps({"at_time": stamp, "n": n}) for n, stamp in enumerate(stamps)]


def put(folder: Path, minute: int, content: str | bytes, name: str | None = None) -> None:
    """Write the file of a minute; the minutes are read in order."""
    file = folder / "in" / (name or f"{minute}")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    stamp = time.time() - 1000 + minute
    os.utime(file, (stamp, stamp))


def lay_out(folder: Path, form: str = "json", more: str = "", out: str = "out") -> None:
    for minute in range(MINUTES):
        put(folder, minute, "\n".join(lines(minute, form)) + "\n")
    (folder / "job.sql").write_text(SCRIPT.format(format=form, more=more, out=out))


def totals(folder: Path) -> list[int]:
    files = [file for file in (folder / "out").rglob("*.json") if not file.name.startswith((".", "_"))]
    return sorted(json.loads(line)["total"] for file in files for line in file.read_text().splitlines())


# --- records --------------------------------------------------------------------------------------

MISSING = ", 'json.fail-on-missing-field' = 'true'"
RECORDS = [
    ("json", "", '{"at_time": "2020-01-01 00:02:07", "n": 7', "bad-record]: `in/2` line 8: it is not JSON: "),
    ("json", "", '{"at_time": "2020-01-01 00:02:07", "n": 99999999999}', "bad-record]: `in/2` line 8: field `n` is not an INT: `99999999999`"),
    ("json", "", '{"at_time": "2020-02-30 00:02:07", "n": 7}', "bad-record]: `in/2` line 8: field `at_time` is not a TIMESTAMP(3): "),
    ("json", "", '{"at_time": "2020-01-01 00:02:07", "n": "\x1b[31m7"}', "bad-record]: `in/2` line 8: field `n` is not an INT: `\\x1b[31m7`"),
    ("json", "", '[{"at_time": "2020-01-01 00:02:07", "n": 7}, 5]', "bad-record]: `in/2` line 8: it is the number 5, not an object"),
    ("json", MISSING, '{"at_time": "2020-01-01 00:02:07"}', "bad-record]: `in/2` line 8: field `n` is missing"),
    ("json", "", '{"at_time": null, "n": 7}', "null-rowtime]: `in/2` line 8: the time attribute `at_time` is NULL"),
    ("json", "", '{"n": 7}', "null-rowtime]: `in/2` line 8: the time attribute `at_time` is NULL"),
    ("csv", "", "2020-01-01 00:02:07,seven", "bad-record]: `in/2` line 8: field `n` is not an INT: `seven`"),
    ("csv", "", "2020-01-01 00:02:07", "bad-record]: `in/2` line 8: it has 1 field, the table has 2"),
    ("csv", "", ",7", "bad-record]: `in/2` line 8: field `at_time` is not a TIMESTAMP(3): ``"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "more", "record", "words"), RECORDS, ids=[words.partition(": ")[2] for *_, words in RECORDS]
)
def test_a_bad_record_stops_the_job_until_it_is_corrected(
    run: Run, tmp_path: Path, form: str, more: str, record: str, words: str
) -> None:
    lay_out(tmp_path, form, more)
    good = lines(2, form)
    put(tmp_path, 2, "\n".join([*good[:7], record, *good[8:]]) + "\n")
    failed = run()
    assert failed.code == 1
    assert failed.first.startswith(f"error[{words}"), failed.err
    assert "  = help: fix the record, or " in failed.err
    assert len(totals(tmp_path)) < MINUTES
    put(tmp_path, 2, "\n".join(good) + "\n")
    done = run()
    assert done.code == 0, done.err
    assert totals(tmp_path) == WHOLE


def test_ignored_bad_records_are_counted(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path)
    good = lines(2)
    put(tmp_path, 2, "\n".join([*good[:7], good[7][:-1], good[8].replace('"2020', '"20'), *good[9:]]) + "\n")
    assert run().code == 1
    script = (tmp_path / "job.sql").read_text()
    script = script.replace("'path' = 'in'", "'path' = 'in', 'json.ignore-parse-errors' = 'true'")
    (tmp_path / "job.sql").write_text(script)
    assert run().first.startswith("error[null-rowtime]: `in/2` line 9: ")
    (tmp_path / "job.sql").write_text("SET 'everfold.null-rowtime' = 'drop';\n" + script)
    done = run()
    assert done.code == 0, done.err
    assert "2 rows dropped: not readable in full" in done.err
    assert "1 row dropped: no time, the time attribute is NULL" in done.err
    assert totals(tmp_path) == sorted([*WHOLE[1:], WHOLE[0] - 7 - 8])


def test_a_batch_reports_and_counts_like_a_stream(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path)
    good = lines(2)
    put(tmp_path, 2, "\n".join([*good[:7], good[7][:-1], good[8].replace('"2020', '"20'), *good[9:]]) + "\n")
    assert run("--batch").first.startswith("error[bad-record]: `in/2` line 8: it is not JSON: ")
    script = (tmp_path / "job.sql").read_text()
    script = script.replace("'path' = 'in'", "'path' = 'in', 'json.ignore-parse-errors' = 'true'")
    (tmp_path / "job.sql").write_text(script)
    done = run("--batch")
    assert done.code == 0, done.err
    assert "2 rows dropped: not readable in full" in done.err
    assert "1 row dropped: no time, the time attribute is NULL" in done.err
    assert totals(tmp_path) == sorted([*WHOLE[1:], WHOLE[0] - 7 - 8])


def parquet_file(minute: int, unit: str, numbers: str | None = "int32") -> bytes:
    """Return the rows of a minute with times in a unit. numbers: the type of `n`, None without it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [json.loads(line) for line in lines(minute)]
    columns = {"at_time": pa.array([datetime.fromisoformat(row["at_time"]) for row in rows], pa.timestamp(unit))}
    if numbers is not None:
        columns["n"] = pa.array([row["n"] for row in rows], pa.type_for_alias(numbers))
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("units", "numbers", "words"),
    [
        (("us", "us"), None, "missing-column]: table `t`: `2` has no column `n`"),
        (("us", "us"), "int64", "wrong-column-type]: table `t`: column `n` is an INT, but in `2` it is int64"),
    ],
    ids=["missing", "wide"],
)  # fmt: skip
def test_a_parquet_file_that_spark_would_not_read_right_stops_the_job(
    run: Run, tmp_path: Path, units: tuple[str, str], numbers: str | None, words: str
) -> None:
    lay_out(tmp_path, "parquet")
    for minute in range(MINUTES):
        put(tmp_path, minute, parquet_file(minute, units[0]))
    put(tmp_path, 2, parquet_file(2, units[1], numbers))
    failed = run("--conf", "everfold.scan=catalyst")
    assert failed.code == 1
    assert failed.first == f"error[{words}", failed.err
    assert len(totals(tmp_path)) < MINUTES
    put(tmp_path, 2, parquet_file(2, units[0], "int16"))
    done = run("--conf", "everfold.scan=catalyst")
    assert done.code == 0, done.err
    assert totals(tmp_path) == WHOLE


@pytest.mark.parametrize("how", ["--conf=everfold.scan=auto", "--conf=everfold.scan=catalyst", "--batch"])
def test_parquet_files_with_times_in_several_units(run: Run, tmp_path: Path, how: str) -> None:
    lay_out(tmp_path, "parquet")
    for minute, (unit, numbers) in enumerate((("ns", "int8"), ("us", "int32"), ("ms", "uint16"))):
        put(tmp_path, minute, parquet_file(minute, unit, numbers))
    done = run(how)
    assert done.code == 0, done.err
    assert totals(tmp_path) == WHOLE


def test_a_new_file_whose_name_is_not_utf_8_stops_the_job(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path, more=", 'source.monitor-interval' = '200 ms'")
    unseen = os.path.join(os.fsencode(tmp_path / "in"), b"\xff.json")

    def add() -> None:
        end = time.monotonic() + 120
        while not totals(tmp_path) and time.monotonic() < end:
            time.sleep(0.1)
        with open(unseen, "w") as file:
            file.write("\n".join(lines(3)) + "\n")
        put(tmp_path, 4, "\n".join(lines(4)) + "\n")

    adding = threading.Thread(target=add)
    adding.start()
    done = run()
    adding.join()
    assert done.code == 1
    assert done.first.startswith("error[bad-file-name]: table `t`: the name of `in/\\xff.json` is not UTF-8"), done.err


# --- files ----------------------------------------------------------------------------------------


def test_files_of_every_shape_are_read(run: Run, tmp_path: Path) -> None:
    """A byte order mark, `\\r\\n`, no line break at the end, an empty file, a compressed file, a
    line of 10 MB, a dangling link.
    """
    lay_out(tmp_path)
    put(tmp_path, 0, "\ufeff" + "\r\n".join(lines(0)))
    put(tmp_path, 1, gzip.compress("\n".join(lines(1)).encode()), "1.gz")
    (tmp_path / "in" / "1").unlink()
    put(tmp_path, 2, "\n".join(["[" + ",".join(lines(2)[:30]) + "]", *lines(2)[30:]]))
    put(tmp_path, 3, "", "empty")
    put(tmp_path, 3, "\n\r\n", "blank")
    put(tmp_path, 3, '{"at_time": "2020-01-01 00:02:59", "n": 0, "more": "' + "x" * 10_000_000 + '"}', "huge")
    (tmp_path / "in" / "link").symlink_to("nothing")
    done = run()
    assert done.code == 0, done.err
    assert totals(tmp_path) == WHOLE


@pytest.mark.parametrize("content", [gzip.compress("\n".join(lines(2)).encode())[:-12], "\n".join(lines(2)).encode()], ids=["cut off", "not compressed"])  # fmt: skip
def test_a_damaged_or_wrongly_named_compressed_file_is_refused(run: Run, tmp_path: Path, content: bytes) -> None:
    lay_out(tmp_path)
    (tmp_path / "in" / "2").unlink()
    put(tmp_path, 2, content, "2.gz")
    failed = run()
    assert failed.code == 1
    assert failed.first.startswith("error[bad-file]: `in/2.gz`: ")
    put(tmp_path, 2, gzip.compress("\n".join(lines(2)).encode()), "2.gz")
    assert run().code == 0
    assert totals(tmp_path) == WHOLE


def test_a_missing_folder_and_a_job_that_reads_its_output_are_refused(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "in").rename(tmp_path / "away")
    failed = run()
    assert (failed.code, failed.first) == (1, "error[no-such-path]: table `t`: there is no file or folder `in`")
    (tmp_path / "away").rename(tmp_path / "in")
    failed = run("--state", "in/job")
    assert failed.code == 1
    assert failed.first.startswith(
        f"error[job-in-source]: table `t`: the job directory `{tmp_path}/in/job` lies in `in`"
    )
    shutil.rmtree(tmp_path / "in" / "job")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert run().first.startswith("error[link-loop]: table `t`: the link ")
    (tmp_path / "in" / "again").unlink()
    assert run().code == 0
    assert totals(tmp_path) == WHOLE


def test_a_sink_path_that_is_not_a_folder_is_refused(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "out").write_text("x")
    failed = run()
    assert (failed.code, failed.first) == (
        1,
        "error[not-a-folder]: table `totals`: cannot write to `out`: it is not a folder",
    )
    (tmp_path / "out").unlink()
    assert run().code == 0
    assert totals(tmp_path) == WHOLE


# --- the job directory ----------------------------------------------------------------------------


def test_a_damaged_job_directory_is_reported_and_resumes_when_restored(run: Run, tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert run("--suspend").code == 0
    job = tmp_path / ".everfold" / "job"
    record = max((job / "sinks").rglob("*.json"))
    offsets = max((job / "checkpoints" / "0" / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    for file, code in (
        (newest_manifest(job), "damaged-manifest"),
        (record, "damaged-record"),
        (offsets, "damaged-checkpoint"),
    ):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        failed = run()
        assert (failed.code, failed.first.partition("]")[0]) == (1, f"error[{code}"), failed.err
        assert f"`{file}`" in failed.first
        file.write_bytes(whole)
    (job / "control" / "junk").mkdir()
    (job / "control" / "junk" / "x").write_text("flush\n")
    assert run().code == 0
    assert totals(tmp_path) == WHOLE
