"""Which batches a sink accepts: compared by number and by the digest of their input.

Also: the mark files in a table's directory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.connectors.tables import table

from everfold.connectors.applied import AppliedBatch, BatchId, check_not_ahead, is_applied
from everfold.connectors.contract import Role, SinkContext
from everfold.connectors.filesystem.sink import FileSink
from everfold.connectors.filesystem.withdrawn import identify_sink
from everfold.connectors.validate import check_table
from everfold.errors import StateError
from everfold.storage import Location, local
from everfold.types import STRING

OWN = identify_sink("job", "0_o")


def batch(number: int, digest: str = "", epoch: int = 1) -> BatchId:
    return BatchId("job", "0_o", epoch, number, digest)


@pytest.mark.parametrize(
    ("number", "digest", "last", "known"),
    [
        (0, "a", None, False),
        (5, "a", AppliedBatch(1, 4, "x"), False),
        (5, "a", AppliedBatch(0, 9, "x"), False),  # an earlier epoch
        (5, "a", AppliedBatch(1, 5, "a"), True),
        (5, "a", AppliedBatch(1, 5), True),  # a record of an earlier version
        (5, "", AppliedBatch(1, 5, "a"), True),
        (5, "abc", AppliedBatch(1, 5, "ab"), True),  # the start of a digest
    ],
)
def test_a_batch_is_new_or_already_applied(number: int, digest: str, last: AppliedBatch | None, known: bool) -> None:
    assert is_applied("o", batch(number, digest), last) is known
    check_not_ahead("o", batch(number, digest), last)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (AppliedBatch(1, 6, "a"), "it holds batch 6 of the job, and the job's checkpoint is only at batch 5"),
        (AppliedBatch(1, 6), "it holds batch 6 of the job, and the job's checkpoint is only at batch 5"),
        (
            AppliedBatch(1, 5, "b"),
            "its batch 5 read other input than batch 5 of the job's checkpoint (digests b and a)",
        ),
    ],
)
def test_a_sink_that_is_ahead_is_refused(last: AppliedBatch, words: str) -> None:
    for check in (is_applied, check_not_ahead):
        with pytest.raises(StateError, match="sink-ahead") as caught:
            check("o", batch(5, "a"), last)
        assert words in str(caught.value)
        assert "everfold rollback FOLDER --restored" in str(caught.value)


def test_a_later_epoch_is_ahead_at_the_start_and_another_run_afterwards() -> None:
    with pytest.raises(
        StateError, match=r"sink-ahead.*holds batch 0 of epoch 2 of the job, and .* at batch 5 of epoch 1"
    ):
        check_not_ahead("o", batch(5), AppliedBatch(2, 0))
    with pytest.raises(StateError, match="sink-taken-over"):
        is_applied("o", batch(5), AppliedBatch(2, 0))
    with pytest.raises(StateError, match="is only at its start"):
        check_not_ahead("o", batch(-1), AppliedBatch(1, 0))


def test_a_mark_of_the_first_format_is_readable(sink: FileSink) -> None:
    golden = Path(__file__).parents[2] / "golden" / "state" / "mark-v1.json"
    (sink.root / f".everfold-{OWN}").write(golden.read_bytes())
    assert sink.last_applied("job", "0_o") == AppliedBatch(2, 17, "0123456789abcdef0123456789abcdef")


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def sink(tmp_path: Path) -> FileSink:
    declared = table(a=STRING).with_("filesystem", path="out", format="json")
    context = SinkContext(
        name="0_o", base_folder=tmp_path, table=declared, job_folder=local(tmp_path / "job"), query="q"
    )
    made = check_table(declared, Role.SINK).sink(context)
    assert isinstance(made, FileSink)
    made.prepare()
    return made


def mark(sink: FileSink, job: str = "job", **more: object) -> Location:
    members = {"job": job, "sink": "0_o", "epoch": 0, "batch": 3, "digest": "d", "query": "q", "folder": f"/jobs/{job}"}
    path = sink.root / f".everfold-{identify_sink(job, '0_o')}"
    path.write(json.dumps({**members, **more}))
    return path


def test_the_last_batch_is_found_in_the_mark_or_the_visible_files(sink: FileSink) -> None:
    assert sink.last_applied("job", "0_o") is None
    for name in (f"part-{OWN}-0-2-00000.json", f".part-{OWN}-0-9-00000.json.withdrawn", "part-01234567-0-9-00000.json"):
        (sink.root / name).write("")
    assert sink.last_applied("job", "0_o") == AppliedBatch(0, 2)  # without a mark, as written by an earlier version
    mark(sink)
    assert sink.last_applied("job", "0_o") == AppliedBatch(0, 3, "d")
    assert sink.last_applied("another", "0_o") is None
    (sink.root / "day=1" / f"part-{OWN}-0-10-00000.json").write("")
    assert sink.last_applied("job", "0_o") == AppliedBatch(0, 10)


def test_a_mark_never_goes_back(sink: FileSink) -> None:
    path = mark(sink)
    later = path.read_bytes()
    sink._write_mark({**json.loads(later), "batch": 2})
    assert path.read_bytes() == later
    sink._write_mark({**json.loads(later), "epoch": 1, "batch": 0})
    assert sink.last_applied("job", "0_o") == AppliedBatch(1, 0, "d")


def test_an_incomplete_batch_without_a_record_is_refused(sink: FileSink) -> None:
    (sink.root / f".part-{OWN}-1-4-00000-abc.json.inprogress").write("")
    sink._check_published(OWN, batch(3))
    with pytest.raises(StateError, match=r"lost-record.*batch 4 was being made visible, and its record in .* is gone"):
        sink._check_published(OWN, batch(4))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"job": "job"}'])
def test_a_damaged_mark_is_reported(sink: FileSink, content: str) -> None:
    path = mark(sink)
    path.write(content)
    with pytest.raises(StateError, match="damaged-record") as caught:
        sink.last_applied("job", "0_o")
    assert f"`{path}`" in str(caught.value)


def test_a_mark_with_a_field_of_a_wrong_type_is_damaged(sink: FileSink) -> None:
    fields: list[dict[str, Any]] = [{"batch": "3"}, {"epoch": None}, {"digest": 5}, {"batch": True}]
    for field in fields:
        mark(sink, **field)
        with pytest.raises(StateError, match="damaged-record"):
            sink.last_applied("job", "0_o")


def test_another_job_is_detected_while_its_files_exist(sink: FileSink) -> None:
    mark(sink, "other")
    assert sink.find_other_job("job") is None
    file = sink.root / f"part-{identify_sink('other', '0_o')}-0-3-00000.json"
    file.write("")
    assert sink.find_other_job("job") == "/jobs/other"
    assert sink.find_other_job("other") is None
    mark(sink, "other", query="another")
    assert sink.find_other_job("job") is None
