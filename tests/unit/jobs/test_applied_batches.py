"""The record of the batches that the sinks of a job have applied."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.jobs.test_folder import open_job

from everfold.connectors.contract import AppliedBatch
from everfold.errors import StateError
from everfold.jobs.applied_batches import AppliedBatches, Number, SinkRecord
from everfold.storage import local


def open_record(folder: Path, location: str = "here") -> AppliedBatches:
    record = AppliedBatches.read(local(folder), open_job(folder).version)
    record.locations = {"0_o": location, "1_p": location}
    return record


def targets(**applied: Number | None) -> Any:
    """Return sinks by name, with the batch that each has applied last."""
    return [
        SimpleNamespace(name=f"{at}_{name}", sink=SimpleNamespace(applied=batch))
        for at, (name, batch) in enumerate(applied.items())
    ]


def last(record: AppliedBatches, sink: str, until: Number = (9, 9), location: str = "here") -> Number | None:
    return record.find_last(sink, location, lambda number: number <= until)


def test_only_sinks_that_have_applied_a_batch_are_recorded(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    record.add(targets(o=(0, 3), p=None), 0, 3)
    record.add(targets(o=(0, 3), p=(0, 4)), 0, 4)  # no rows for the first
    for read in (record, open_record(tmp_path)):
        assert (last(read, "0_o"), last(read, "1_p"), last(read, "2_q")) == ((0, 3), (0, 4), None)


def test_the_batch_before_the_last_is_kept_in_case_the_last_runs_again(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    for batch in (3, 5, 8, 8):
        record.add(targets(o=(0, batch)), 0, batch)
    assert (last(record, "0_o"), last(record, "0_o", (0, 7)), last(record, "0_o", (0, 4))) == ((0, 8), (0, 5), None)
    record.add(targets(o=(1, 9)), 1, 9)
    assert (last(record, "0_o"), last(record, "0_o", (1, 8))) == ((1, 9), (0, 8))


def test_epochs_do_not_pile_up() -> None:
    record = SinkRecord("", ())
    for epoch in range(100):
        for batch in range(3):
            record = record.add((epoch, batch))
    assert len(record.batches) < 30
    assert record.batches[-3:] == ((98, 2), (99, 1), (99, 2))


def test_a_table_at_another_location_has_no_record(tmp_path: Path) -> None:
    open_record(tmp_path).add(targets(o=(0, 3)), 0, 3)
    moved = open_record(tmp_path, "there")
    assert last(moved, "0_o", location="there") is None
    moved.add(targets(o=(0, 4)), 0, 4)
    assert (last(moved, "0_o"), last(moved, "0_o", location="there")) == (None, (0, 4))


def test_a_user_accepts_what_a_table_holds(tmp_path: Path) -> None:
    record = open_record(tmp_path)
    record.add(targets(o=(0, 3), p=(0, 3)), 0, 3)
    record.replace({"0_o": AppliedBatch(0, 1), "1_p": None})
    assert (last(open_record(tmp_path), "0_o"), last(open_record(tmp_path), "1_p")) == ((0, 1), None)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"0_o": 1}', '{"0_o": {"location": 1, "batches": []}}', '{"0_o": {"location": "", "batches": [[0]]}}',
                '{"0_o": {"location": "", "batches": [["0", 1]]}}'],
)  # fmt: skip
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    version = open_job(tmp_path).version
    (tmp_path / "applied_batches.json").write_text(content)
    with pytest.raises(StateError, match=r"damaged-checkpoint.*applied_batches.json"):
        AppliedBatches.read(local(tmp_path), version)
