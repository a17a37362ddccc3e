"""Rows of an operator are delivered to their sink in the task that runs the operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pytest

from everfold.connectors.contract import PackedRows, RowWriter
from everfold.plan.changelog import KIND, ORDER, RowKind
from everfold.plan.expressions import InputRef, Literal, column_references
from everfold.spark import delivery
from everfold.spark.buckets import bucket_ids
from everfold.spark.delivery import REPORT, Delivery, TaskDelivery, encode_sink_tasks, find_failed_sink
from everfold.spark.output_rows import OutputRows, decode_rows
from everfold.spark.task_input import ROWS
from everfold.sql.functions import build
from everfold.types import BIGINT, Field, Schema

SCHEMA = Schema((Field(name="k", type=BIGINT), Field(name="n", type=BIGINT)))
IDS = bucket_ids(8, 3)


@dataclass(slots=True)
class Sum:
    """A sink's task that adds up the column `n`."""

    total: int = 0
    fails_at: int = -1
    log: list[str] = field(default_factory=list)

    def open(self, shard: int, target: object) -> RowWriter:
        self.log.append(f"open {shard}")
        return self

    def write(self, rows: PackedRows) -> None:
        read = rows.read()
        assert rows.count() == read.num_rows
        assert read.column_names == ["c0", "c1", KIND]
        self.total += sum(read["c1"].to_pylist())
        if self.total == self.fails_at:
            raise OSError("disk full")

    def close(self) -> bytes:
        self.log.append("close")
        return str(self.total).encode()

    def abort(self) -> None:
        self.log.append("abort")


def begin(monkeypatch: pytest.MonkeyPatch, task: Sum | None, rows: OutputRows | None = None) -> TaskDelivery:
    columns = column_references(SCHEMA)
    made = rows or OutputRows(schema=SCHEMA, is_timed=False, has_row_kinds=False, expressions=columns)
    monkeypatch.setattr(delivery, "_read_sink_tasks", lambda: (None, task))
    return Delivery(made, 1, IDS, 3).begin()


def frames(*values: int) -> Iterator[pl.DataFrame]:
    for value in values:
        yield pl.DataFrame({"c0": [value, value], "c1": [value, 1], ORDER: [0, 1]})
    yield pl.DataFrame({"c0": [], "c1": [], ORDER: []}, schema=dict.fromkeys(("c0", "c1", ORDER), pl.Int64))


def test_a_sink_reports_after_the_last_bucket_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets 0, 3 and 6 are in the first one of 3 partitions, 2 and 5 in the last one."""
    task = Sum()
    delivered = begin(monkeypatch, task)
    assert list(delivered.deliver(IDS[3], frames(5))) == []
    assert list(delivered.deliver(IDS[0], frames())) == []
    assert list(delivered.deliver(IDS[6], frames(7, 8))) == [REPORT + b"23"]
    assert task.log == ["open 0", "close"]
    task = Sum()
    delivered = begin(monkeypatch, task)
    assert list(delivered.deliver(IDS[2], frames(5))) == []
    assert list(delivered.deliver(IDS[5], frames())) == [REPORT + b"6"]


def test_a_task_without_rows_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Sum()
    delivered = begin(monkeypatch, task)
    assert [list(delivered.deliver(bucket, frames())) for bucket in (IDS[0], IDS[3], IDS[6])] == [[], [], []]
    assert task.log == []


def test_a_failure_names_the_sink_and_removes_what_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Sum(fails_at=6)
    delivered = begin(monkeypatch, task)
    with pytest.raises(RuntimeError, match="sink 1: disk full") as caught:
        list(delivered.deliver(IDS[0], frames(5)))
    assert find_failed_sink(f"RuntimeError: {caught.value}") == 1
    assert task.log == ["open 0", "abort"]


def test_rows_for_the_driver_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = column_references(SCHEMA)
    condition = build(">", (columns[1], Literal(type=BIGINT, value=1)))
    rows = OutputRows(
        schema=SCHEMA, is_timed=False, has_row_kinds=False, conditions=(condition,), expressions=(columns[1],)
    )
    assert isinstance(columns[1], InputRef)
    (blob,) = begin(monkeypatch, None, rows).deliver(IDS[0], frames(5))
    assert blob[:1] == ROWS
    insert = RowKind.INSERT.value
    assert decode_rows(pa.py_buffer(blob[1:])).to_pydict() == {"c0": [5], ORDER: [0], KIND: [insert]}


def test_the_tasks_of_a_batch_are_a_property_without_spaces() -> None:
    number, _, tasks = encode_sink_tasks(7, [None, Sum()]).partition(" ")
    assert number == "7"
    assert " " not in tasks
