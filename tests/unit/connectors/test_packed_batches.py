"""A file sink applies a batch of packed rows exactly once, wherever an attempt ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import BatchId, Role, SinkContext
from everfold.connectors.filesystem import sink as file_sink
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.plan.changelog import KIND, RowKind
from everfold.types import BIGINT

BATCH = BatchId("job", "0_t", 0, 3, "digest")


@dataclass
class Packed:
    """Packed rows as a sink's task receives them."""

    values: list[int]

    def count(self) -> int:
        return len(self.values)

    def read(self, *, ordered: bool = False) -> pa.Table:
        kinds = pa.repeat(pa.scalar(RowKind.INSERT.value, pa.int8()), len(self.values))
        return pa.table({"c0": pa.array(self.values, pa.int64()), KIND: kinds})


def open_sink(folder: Path, keys: tuple[str, ...] = (), **options: str) -> FileSink:
    """Return the sink of a job that is started."""
    declared = table("t", keys, n=BIGINT, **dict.fromkeys(keys, BIGINT)).with_(
        "filesystem", path="out", **({"format": "parquet"} | options)
    )
    context = SinkContext(name="0_t", base_folder=folder, table=declared)
    made = check_table(declared, Role.SINK).sink(context)
    assert isinstance(made, FileSink)
    made.prepare()
    return made


def run_tasks(sink: FileSink, *values: list[int]) -> list[bytes]:
    """Run the work on the batch in one task, and return its report."""
    writer = sink.begin_batch(BATCH).open(0, None)
    for each in values:
        writer.write(Packed(each))
    return [writer.close()]


def read_visible(sink: FileSink) -> list[int]:
    files = sorted(sink.root.glob("part-*"))
    return [n for file in files for n in pq.read_table(str(file))["n"].to_pylist()]


def test_a_replayed_batch_is_not_written_again(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    reports = run_tasks(sink, [1, 2], [], [3])
    assert read_visible(sink) == []
    assert sink.finish_batch(reports, BATCH) == 3
    for again in (sink, open_sink(tmp_path)):
        assert again.finish_batch(run_tasks(again, [1, 2, 3]), BATCH) == 3
        assert read_visible(again) == [1, 2, 3]


def test_files_of_an_attempt_that_was_killed_are_removed(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    run_tasks(sink, [1, 2])
    (hidden,) = sink.root.walk()
    stem = hidden.name.rpartition("-")[0]
    identity = stem.removeprefix(".part-").partition("-")[0]
    # A copy, and a mark, that were not complete.
    left = [f"{stem}.parquet.0a1b.part", f"..everfold-{identity}.77.new"]
    kept = [".part-12345678-0-3-00000.parquet.0a1b.part", ".other.new"]
    for name in (*left, *kept):
        (tmp_path / "out" / name).write_text("")
    sink = open_sink(tmp_path)
    sink.finish_batch(run_tasks(sink, [1, 2]), BATCH)
    assert read_visible(sink) == [1, 2]
    unfinished = [each.name for each in sink.root.walk() if each.name.endswith((".inprogress", ".part", ".new"))]
    assert sorted(unfinished) == sorted(kept)


def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path) -> None:
    """An executor with a disk of its own has written them."""
    sink = open_sink(tmp_path)
    reports = run_tasks(sink, [1, 2])
    (hidden,) = sink.root.walk()
    hidden.delete()
    with pytest.raises(ConnectorError, match=r"executor-path.*the driver does not see a file"):
        sink.finish_batch(reports, BATCH)
    sink.finish_batch(run_tasks(sink, [1, 2]), BATCH)
    assert read_visible(sink) == [1, 2]


def test_a_recorded_batch_is_published_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = open_sink(tmp_path)
    reports = run_tasks(sink, [1, 2])

    def kill(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(file_sink.FileSink, "_publish", kill)
        with pytest.raises(KeyboardInterrupt):
            sink.finish_batch(reports, BATCH)
    assert read_visible(sink) == []
    again = open_sink(tmp_path)
    assert again.finish_batch(run_tasks(again, [1, 2]), BATCH) == 2
    assert read_visible(again) == [1, 2]


def test_a_batch_without_rows_leaves_no_file(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    assert sink.finish_batch([], BATCH) == 0
    assert not list(sink.root.glob("*part-*"))


@pytest.mark.parametrize(("name", "lines"), [("json", ['{"n":1}', '{"n":2}', '{"n":3}']), ("csv", ["1", "2", "3"])])
def test_records_of_text_formats_are_written(tmp_path: Path, name: str, lines: list[str]) -> None:
    sink = open_sink(tmp_path, format=name)
    assert sink.finish_batch(run_tasks(sink, [1, 2], [], [3]), BATCH) == 3
    (file,) = sink.root.glob("part-*")
    assert file.read_text() == "".join(f"{line}\n" for line in lines)


def test_a_change_is_written_with_its_kind(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, format="debezium-json")
    assert sink.finish_batch(run_tasks(sink, [1]), BATCH) == 1
    (file,) = sink.root.glob("part-*")
    assert file.read_text() == '{"before":null,"after":{"n":1},"op":"c"}\n'


def test_partitions_are_sorted_by_catalyst(tmp_path: Path) -> None:
    assert open_sink(tmp_path).takes_packed_rows
    assert not open_sink(tmp_path, keys=("day",)).takes_packed_rows
