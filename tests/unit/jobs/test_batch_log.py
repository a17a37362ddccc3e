"""The digest of a batch's input: the same whenever the batch runs again, different
for other input.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from everfold.jobs.batch_log import BatchLog, compute_digest, last_batch
from everfold.jobs.ownership import LocalOwnership
from everfold.storage import local

TOPIC = '{{"clicks":{{"0":{},"1":{}}}}}'


def write_offsets(checkpoint: Path, batch: int, **sources: str) -> None:
    """Write a batch to Spark's offset log."""
    head = ["v2", json.dumps({"batchTimestampMs": batch, "conf": {}})]
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(
        "\n".join([*head, *(f"{name}:{line}" for name, line in sources.items())])
    )


def write_file_log(checkpoint: Path, name: str, *batches: list[str], folder: str = "/in") -> None:
    """Write an entry of the log of Spark's file source.

    An entry whose name ends in `compact` contains all earlier ones.
    """
    log = checkpoint / "sources" / "t_1"
    log.mkdir(parents=True, exist_ok=True)
    entries = [
        json.dumps({"path": f"file://{folder}/{file}", "timestamp": 5, "batchId": at}, separators=(",", ":"))
        for at, files in enumerate(batches)
        for file in files
    ]
    shown = entries if name.endswith("compact") else [each for each in entries if f'"batchId":{name}}}' in each]
    (log / name).write_text("\n".join(["v1", *shown]))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Create two planned batches that read a topic and files."""
    made = tmp_path / "checkpoints" / "0"
    write_file_log(made, "0", ["a"], ["b", "c"])
    write_file_log(made, "1", ["a"], ["b", "c"])
    write_offsets(made, 6, t_1='{"logOffset":0}', k_1=TOPIC.format(5, 6), g_1="17")
    write_offsets(made, 7, t_1='{"logOffset":1}', k_1=TOPIC.format(9, 6), g_1="18")
    return made


@pytest.mark.parametrize(
    "change",
    [
        lambda at: write_offsets(at, 7, t_1='{"logOffset":1}', k_1=TOPIC.format(8, 6), g_1="18"),
        lambda at: write_offsets(at, 7, t_1='{"logOffset":1}', k_1=TOPIC.format(9, 6), g_1="19"),
        lambda at: write_offsets(at, 7, t_1='{"logOffset":0}', k_1=TOPIC.format(9, 6), g_1="18"),
        lambda at: write_offsets(at, 6, t_1='{"logOffset":0}', k_1=TOPIC.format(4, 6), g_1="17"),
        lambda at: write_file_log(at, "1", ["a"], ["b", "d"]),
        lambda at: write_file_log(at, "1", ["a"], ["b"]),
    ],
)
def test_other_input_has_another_digest(checkpoint: Path, change: Callable[[Path], None]) -> None:
    before = compute_digest(local(checkpoint), 7)
    change(checkpoint)
    assert compute_digest(local(checkpoint), 7) != before


def test_the_digest_ignores_what_may_change_in_a_replay(checkpoint: Path) -> None:
    before = compute_digest(local(checkpoint), 7)
    head, _, rest = (checkpoint / "offsets" / "7").read_text().partition("\n")
    (checkpoint / "offsets" / "7").write_text(
        head + "\n" + '{"batchTimestampMs":99,"conf":{"x":"y"}}\n' + rest.partition("\n")[2]
    )
    assert compute_digest(local(checkpoint), 7) == before
    write_file_log(checkpoint, "1", ["a"], ["c", "b"], folder="/moved")
    assert compute_digest(local(checkpoint), 7) == before
    for name in ("0", "1"):
        (checkpoint / "sources" / "t_1" / name).unlink()
    write_file_log(checkpoint, "9.compact", ["a"], ["b", "c"], *([f"f{at}"] for at in range(2, 10)))
    write_file_log(checkpoint, "19.compact", ["a"])
    assert compute_digest(local(checkpoint), 7) == before


def test_a_batch_that_was_not_planned_has_no_digest(checkpoint: Path) -> None:
    assert compute_digest(local(checkpoint), 8) == ""
    assert compute_digest(local(checkpoint), -1) == ""


def test_the_last_batch_is_recorded(checkpoint: Path, tmp_path: Path) -> None:
    assert last_batch(local(tmp_path)) is None
    assert BatchLog(LocalOwnership(local(tmp_path)), local(checkpoint), 3).begin(7) == compute_digest(
        local(checkpoint), 7
    )
    assert last_batch(local(tmp_path)) == (3, 7)
