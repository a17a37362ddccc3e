"""The answers that are offered for a changed job, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from unit.job_dirs import start_job

from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_tables
from everfold.jobs.answers import ChangedJob, Inputs
from everfold.jobs.change import OnChange, list_options
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, NewQuery
from everfold.jobs.progress import Progress, SourceProgress
from everfold.jobs.progress_log import ProgressLog, locate_history
from everfold.jobs.read_cost import ReadCost, find_read_rows
from everfold.plan.naming import number_operators
from everfold.sql.planner import Session, Submit
from everfold.storage import local

FILES = "('connector' = 'filesystem', 'path' = 'in', 'format' = 'json')"
TOPIC = "('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'broker:9092', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
ROWS = "('connector' = 'datagen', 'number-of-rows' = '100')"
DELTA = "('connector' = 'delta', 'table-path' = 'in')"
OLD = "INSERT INTO out (k, s) SELECT k, SUM(v) FROM src GROUP BY k"
MORE = "INSERT INTO out (k, s, n) SELECT k, SUM(v), COUNT(*) FROM src GROUP BY k"
OTHER_KEY = "INSERT INTO out (k, s) SELECT v, SUM(v) FROM src GROUP BY v"
OTHER_FILTER = f"{OLD.removesuffix(' GROUP BY k')} WHERE v > 0 GROUP BY k"
FREE = [("--on-change rebuild", "rebuild"), ("--on-change reset", "reset")]
KEEPING = [("--on-change accept", "accept"), ("--on-change backfill", "backfill")]


def plan(sql: str, source: str = FILES, sink: str = "blackhole") -> Submit:
    tables = (
        f"CREATE TABLE src (k INT, v INT) WITH {source};"
        "CREATE TABLE out (k INT, s INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)"
        f" WITH ('connector' = '{sink}');"
    )
    *_, submit = Session(connected=apply_connector).run(tables + sql)
    assert isinstance(submit, Submit)
    return submit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path / "job"


def change(folder: Path, new: str, source: str = FILES, sink: str = "blackhole") -> ChangedJob:
    submit = plan(new, source, sink)
    job_dir = JobDir(local(folder))
    known = job_dir.read_manifest()
    assert known is not None
    query = NewQuery(roots=number_operators(submit.roots), zone="UTC", sql=new, base_folder=Path.cwd())
    inputs = Inputs.of(check_tables(submit.roots, streaming=True), Path.cwd())
    return ChangedJob.of(job_dir, known, query, inputs, submit.settings)


def run(folder: Path, *batches: str, first: str = "", source: str = FILES, sink: str = "blackhole") -> Manifest:
    """Start a job and pretend that Spark has run batches, which ended at positions in `src`."""
    manifest = start_job(folder, number_operators(plan(OLD, source, sink).roots), folder=Path.cwd())
    (version,) = manifest.versions
    notes = tuple(note | {"spark_name": "src_0"} for note in version.sources or ())
    manifest = replace(manifest, versions=(replace(version, sources=notes),))
    job_dir = JobDir(local(folder))
    with job_dir.locked():
        job_dir.read_manifest()
        job_dir.write_manifest(manifest)
    checkpoint = find_checkpoint(folder)
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
    for number, position in enumerate(batches):
        (checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\nsrc_0:{position}\n")
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    if first:
        (checkpoint / "sources" / "src_0").mkdir(parents=True)
        (checkpoint / "sources" / "src_0" / "0").write_text(f"v1\n{first}")
    return manifest


def find_checkpoint(folder: Path) -> Path:
    job_dir = JobDir(local(folder))
    path = job_dir.checkpoint(job_dir.load_manifest(), 0).local_path
    assert path is not None
    return path


def log_files(folder: Path, paths: Sequence[Path], number: int = 0) -> None:
    log = find_checkpoint(folder) / "sources" / "src_0"
    log.mkdir(parents=True, exist_ok=True)
    entries = [json.dumps({"path": f"file://{path}", "timestamp": 1, "batchId": number}) for path in paths]
    (log / str(number)).write_text("\n".join(["v1", *entries]))


def record(folder: Path, *totals: int | None, epoch: int = 0) -> None:
    """Record batches of two seconds, after which the job has read so many rows."""
    log = ProgressLog(locate_history(JobDir(local(folder)).log_file))
    before = 0
    for number, total in enumerate(totals):
        rows = 0 if total is None else total - before
        before = before if total is None else total
        log.add(
            Progress(
                batch=number,
                epoch=epoch,
                rows=rows,
                rows_per_second=rows / 2,
                watermark_ms=None,
                late_rows=0,
                state_rows=0,
                rows_out=0,
                started_ms=0,
                ended_ms=2000,
                sources=(SourceProgress(table="src", rows=rows, total_rows=total),),
            )
        )
    log.close()


def offers(job: ChangedJob) -> list[tuple[str, str]]:
    return [(answer.option, answer.how.value) for answer in job.list_answers()]


def cost(job: ChangedJob, how: OnChange) -> ReadCost:
    (found,) = (answer.cost for answer in job.list_answers() if answer.how is how)
    return found


def test_a_job_that_has_read_nothing_reads_nothing_again(folder: Path) -> None:
    run(folder)
    job = change(folder, MORE)
    assert offers(job) == [*KEEPING, *FREE]
    assert {answer.cost_summary for answer in job.list_answers()} == {""}


def test_only_answers_that_the_verdict_allows_are_offered(folder: Path) -> None:
    run(folder)
    assert offers(change(folder, OTHER_KEY)) == FREE


def test_rows_that_a_sink_would_have_twice_must_be_accepted_too(folder: Path) -> None:
    run(folder, sink="print")
    assert offers(change(folder, OTHER_KEY, sink="print")) == [
        ("--on-change rebuild --sink-duplicates accept", "rebuild"),
        ("--on-change reset", "reset"),
    ]


def test_a_backfill_is_not_offered_if_the_past_cannot_be_read(folder: Path) -> None:
    run(folder, '{"version":1}', source=ROWS)
    job = change(folder, MORE, ROWS)
    assert offers(job) == [("--on-change accept", "accept"), *FREE]
    with pytest.raises(Exception, match="the rows read from `datagen` cannot be read again"):
        job.plan(OnChange.BACKFILL)
    job = replace(job, inputs=Inputs(forgotten=["src"]))
    assert ("--on-change backfill", "backfill") not in offers(job)


def test_the_state_of_an_interrupted_batch_is_not_offered(folder: Path) -> None:
    run(folder, '{"logOffset":0}', '{"logOffset":1}')
    (find_checkpoint(folder) / "commits" / "1").unlink()
    job = change(folder, MORE)
    assert offers(job) == [("--on-change rebuild", "rebuild")]
    options = list_options(job.list_answers())
    assert "accept" not in options
    assert "--state FOLDER" in options


def test_files_have_a_number_and_a_size(folder: Path) -> None:
    run(folder, '{"logOffset":0}', '{"logOffset":1}')
    files = [Path("in", name).resolve() for name in ("a.json", "b.json", "gone.json", "unread.json")]
    for file in (files[0], files[1], files[3]):
        file.write_text("x" * 100)
    log_files(folder, files[:2])
    log_files(folder, files[2:3], 1)
    log_files(folder, files[3:], 2)
    assert cost(change(folder, MORE), OnChange.BACKFILL) == ReadCost(rows=None, size_bytes=200, files=2, seconds=None)
    record(folder, 1000, 3000)
    assert find_read_rows(JobDir(local(folder)), change(folder, MORE).known) == {"src": 3000}
    found = cost(change(folder, MORE), OnChange.BACKFILL)
    assert found == ReadCost(rows=3000, size_bytes=200, files=2, seconds=4.0)
    assert found.summary == "reads 2 files, 200 bytes, about 3,000 rows: 4.0 s at the last runs' rate"
    assert cost(change(folder, OTHER_KEY), OnChange.REBUILD) == found
    assert cost(change(folder, MORE), OnChange.ACCEPT).files == 0


def test_rows_are_unknown_after_a_rollback_and_in_records_of_an_earlier_release(folder: Path) -> None:
    run(folder, '{"logOffset":0}')
    record(folder, None)
    known = change(folder, MORE).known
    assert find_read_rows(JobDir(local(folder)), known) is None
    record(folder, 500, epoch=7)
    assert find_read_rows(JobDir(local(folder)), known) is None
    record(folder, 500)
    assert find_read_rows(JobDir(local(folder)), known) == {"src": 500}
    back = replace(known.version, number=1, epoch=1, back_to=0, back_after=0)
    assert find_read_rows(JobDir(local(folder)), replace(known, versions=(known.version, back), current=1)) == {}


def test_records_of_a_topic_are_counted_by_its_offsets(folder: Path) -> None:
    run(folder, '{"t":{"0":70,"1":45}}', first='{"t":{"0":20,"1":5}}', source=TOPIC)
    record(folder, 60)
    found = cost(change(folder, MORE, TOPIC), OnChange.BACKFILL)
    assert found == ReadCost(rows=90, size_bytes=None, files=None, seconds=3.0)
    assert found.summary == "reads about 90 rows: 3.0 s at the last runs' rate"


def test_the_log_of_a_delta_table_has_its_size(folder: Path) -> None:
    run(folder, '{"reservoirVersion":2,"isStartingVersion":false,"index":-1}', source=DELTA)
    log = Path("in", "_delta_log")
    log.mkdir()
    commits: list[list[dict[str, object]]] = [
        [{"add": {"path": "a", "size": 10, "stats": '{"numRecords":3}'}}],
        [{"add": {"path": "b", "size": 20, "stats": '{"numRecords":4}'}}, {"remove": {"path": "a"}}],
        [{"add": {"path": "c", "size": 5, "stats": '{"numRecords":1}'}}],
        [{"add": {"path": "later", "size": 99, "stats": '{"numRecords":9}'}}],
    ]
    for number, actions in enumerate(commits):
        (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))
    assert cost(change(folder, MORE, DELTA), OnChange.BACKFILL) == ReadCost(
        rows=5, size_bytes=25, files=2, seconds=None
    )
    (log / f"{0:020}.json").unlink()
    assert cost(change(folder, MORE, DELTA), OnChange.BACKFILL).summary == "reads an unknown number of rows"


def test_an_alternative_keeps_more(folder: Path) -> None:
    run(folder)
    alternative = change(folder, OTHER_FILTER).judgement.alternative
    assert alternative is not None
    assert alternative.settings == {"everfold.compat.ignore-filter": "true"}
    assert [column.name for column in alternative.columns] == ["k", "s", "n"]
    assert change(folder, OTHER_KEY).judgement.alternative is None
