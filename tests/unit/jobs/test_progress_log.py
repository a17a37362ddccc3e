"""The history of a job: what is written can be read at any time, and its size is bounded."""

from __future__ import annotations

import itertools
import json
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everfold.jobs.progress import OperatorProgress, Progress, RunInfo, SinkProgress, SourceProgress
from everfold.jobs.progress_log import ProgressLog, RunEnd, locate_history, read_history

RUN = RunInfo(name="orders", pid=12, host="here", started_ms=1000, everfold="1.0", version=3, operators={"w1": "GROUP"})
BATCH = Progress(
    batch=0,
    rows=10,
    rows_per_second=2.5,
    watermark_ms=None,
    late_rows=1,
    state_rows=4,
    rows_out=5,
    phases_ms={"addBatch": 20},
    sources=(SourceProgress(table="in", rows=10, lag={"in/0": 7}), SourceProgress(table="other", rows=0)),
    sinks=(SinkProgress(table="out", rows=5),),
    operators=(OperatorProgress(name="w1", watermark_ms=5, splits={"in/0": 5}, aggregate_bytes={"SUM(v)": 8}),),
)


@pytest.fixture
def start_log() -> Iterator[Callable[..., ProgressLog]]:
    """Return a function that creates the log of a run, which begins."""
    logs: list[ProgressLog] = []

    def start(folder: Path, run: RunInfo = RUN, **options: Any) -> ProgressLog:
        logs.append(ProgressLog(folder, **options))
        logs[-1].begin(run)
        return logs[-1]

    yield start
    for each in logs:
        each.close()


def batches(found: tuple[Progress, ...]) -> list[int]:
    return [each.batch for each in found]


def test_what_was_written_is_read(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    log = start_log(tmp_path / "progress")
    log.add(BATCH)
    found = read_history(tmp_path / "progress", 5)
    assert (found.run, found.end, found.batches) == (RUN, None, (BATCH,))
    log.end(RunEnd(how="failed", ended_ms=9, error="disk-full", message="the disk is full"))
    assert read_history(tmp_path / "progress", 5).end == RunEnd(
        how="failed", ended_ms=9, error="disk-full", message="the disk is full"
    )
    assert read_history(tmp_path / "nothing", 5).run is None


def test_the_end_of_an_earlier_run_does_not_count(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    for started_ms in (1000, 2000):
        log = start_log(tmp_path, replace(RUN, started_ms=started_ms))
        log.add(replace(BATCH, batch=started_ms))
        if started_ms == 1000:
            log.end(RunEnd(how="finished", ended_ms=1500))
    found = read_history(tmp_path, 5)
    assert found.run is not None
    assert (found.run.started_ms, found.end, batches(found.batches)) == (2000, None, [1000, 2000])


def test_the_newest_batches_are_read(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    log = start_log(tmp_path)
    for number in range(10):
        log.add(replace(BATCH, batch=number))
    found = read_history(tmp_path, 3)
    assert (found.run, batches(found.batches)) == (RUN, [7, 8, 9])


def test_the_size_is_bounded(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    log = start_log(tmp_path, limit_bytes=5000)
    for number in range(200):
        log.add(replace(BATCH, batch=number))
        files = list(tmp_path.iterdir())
        assert {each.name for each in files} <= {"current.jsonl", "previous.jsonl"}
        assert all(each.stat().st_size <= 5000 for each in files)
        found = read_history(tmp_path, 3)
        assert (found.run, batches(found.batches)) == (RUN, list(range(max(0, number - 2), number + 1)))
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_a_partial_line_is_left_out(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    log = start_log(tmp_path)
    log.add(BATCH)
    with (tmp_path / "current.jsonl").open("a") as file:
        file.write('{"kind":"batch","ba')
    assert read_history(tmp_path, 5).batches == (BATCH,)
    again = start_log(tmp_path)
    again.add(replace(BATCH, batch=1))
    assert batches(read_history(tmp_path, 5).batches) == [0, 1]


def test_members_of_a_later_release_are_left_out(tmp_path: Path) -> None:
    members = {"kind": "run", **RUN.to_json(), "mood": "good"}
    batch = {"kind": "batch", **BATCH.to_json(), "sinks": [{"table": "out", "rows": 5, "mood": "good"}]}
    (tmp_path / "current.jsonl").write_text(f'{json.dumps(members)}\n{json.dumps(batch)}\n{{"kind":"mood"}}\n')
    found = read_history(tmp_path, 5)
    assert (found.run, found.batches) == (RUN, (BATCH,))


def test_a_failure_to_write_is_ignored(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    (tmp_path / "file").write_text("")
    log = start_log(tmp_path / "file")  # no folder
    log.add(BATCH)
    log.end(RunEnd(how="finished", ended_ms=1))


def test_reading_while_it_is_written(tmp_path: Path, start_log: Callable[..., ProgressLog]) -> None:
    log = start_log(tmp_path, limit_bytes=20_000)
    done = threading.Event()

    def write() -> None:
        for number in range(2000):
            log.add(replace(BATCH, batch=number))
        done.set()

    threading.Thread(target=write).start()
    newest = -1
    while not done.is_set():
        found = read_history(tmp_path, 5)
        assert found.run == RUN
        numbers = batches(found.batches)
        assert numbers == sorted(set(numbers))
        newest = max([newest, *numbers])
    assert batches(read_history(tmp_path, 2).batches) == [1998, 1999]
    assert newest >= 0


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_files_rotated_while_they_are_read(
    tmp_path: Path, start_log: Callable[..., ProgressLog], monkeypatch: pytest.MonkeyPatch, rotations: int
) -> None:
    log = start_log(tmp_path, limit_bytes=5000)
    numbers = itertools.count()
    for number in itertools.islice(numbers, 30):
        log.add(replace(BATCH, batch=number))
    read_bytes = Path.read_bytes
    left = rotations

    def rotate_and_read(path: Path) -> bytes:
        nonlocal left
        while left and path.name == "previous.jsonl":
            content = read_bytes(tmp_path / "current.jsonl")
            log.add(replace(BATCH, batch=next(numbers)))
            left -= not read_bytes(tmp_path / "current.jsonl").startswith(content)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", rotate_and_read)
    found = batches(read_history(tmp_path, 5).batches)
    newest = next(numbers) - 1
    assert found == list(range(newest - 4, newest + 1))


def test_the_history_lies_next_to_the_log() -> None:
    assert locate_history(Path("/jobs/orders/job.log")) == Path("/jobs/orders/progress")
