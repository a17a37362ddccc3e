"""When a rewound job has caught up with its previous position, according to the logs of Spark's
sources; and which part of its input no longer exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role, Source, SourceContext
from everfold.connectors.kafka.client import Offsets, TopicDescription
from everfold.connectors.kafka.source import KafkaSource
from everfold.connectors.validate import check_table
from everfold.jobs.foreach_batch import Target
from everfold.jobs.rewind_progress import RewindProgress
from everfold.jobs.sources import OpenedSource, Sources
from everfold.storage import local
from everfold.types import STRING

TOPIC = table(a=STRING).with_("kafka", topic="x", properties__bootstrap__servers="h:1", format="json", scan__startup__mode="latest-offset")  # fmt: skip


def write_batch(checkpoint: Path, batch: int, lines: Mapping[str, object], *, done: bool = True) -> None:
    """Write a batch to a checkpoint, with the offset lines of its sources."""
    text = "\n".join(["v2", "{}", *(f"{name}:{json.dumps(line)}" for name, line in lines.items())])
    for folder in ("offsets", "commits") if done else ("offsets",):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint / folder / str(batch)).write_text(text)


def write_file_log(checkpoint: Path, source: str, log: str, files: Mapping[str, int]) -> None:
    """Write an entry of a file source's log: files with the numbers of their batches."""
    (checkpoint / "sources" / source).mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:{path}", "timestamp": 1, "batchId": at}) for path, at in files.items()]
    (checkpoint / "sources" / source / log).write_text("\n".join(["v1", *lines]))


@dataclass
class Leftover:
    """A sink that has leftover keys."""

    asked: list[bool] = field(default_factory=list)

    def report_leftovers(self, *, prune: bool) -> str | None:
        self.asked.append(prune)
        return "a sentence"


@dataclass
class Job:
    """A job that was rebuilt after it left the checkpoint 0."""

    folder: Path
    source: Source
    messages: list[str] = field(default_factory=list)
    sink: Leftover = field(default_factory=Leftover)

    def __post_init__(self) -> None:
        self.old, self.new = self.folder / "0", self.folder / "1"
        target = Target("0_o", self.sink, 1)  # type: ignore[arg-type]
        self.way = RewindProgress(
            local(self.new), [local(self.folder / "missing"), local(self.old)], [target], True, self.messages.append
        )
        self.opened = [
            OpenedSource("t_1", "t", False, True, self.source),
            OpenedSource("added_2", "added", False, True, self.source),
        ]

    def check_position(self, line: object) -> bool:
        """Check the position after a batch, and return whether the job has caught up."""
        self.way.check_position(self.opened, {"t_1": json.dumps(line), "added_2": json.dumps({"x": {"0": 1}})})
        return self.way.done


@pytest.fixture
def files(tmp_path: Path) -> Job:
    declared = table(a=STRING).with_("filesystem", path="in", format="json", source__monitor_interval="1 s")
    return Job(tmp_path, check_table(declared, Role.SOURCE).source())


@pytest.fixture
def topic(tmp_path: Path) -> Job:
    return Job(tmp_path, check_table(TOPIC, Role.SOURCE).source())


def test_a_topic_is_passed_when_all_its_offsets_are(topic: Job) -> None:
    write_batch(topic.old, 7, {"t_1": {"x": {"0": 100, "1": 5}}, "gone_3": {"y": {"0": 9}}})
    write_batch(topic.old, 8, {"t_1": {"x": {"0": 900, "1": 5}}}, done=False)
    assert not topic.check_position({"x": {"0": 99, "1": 7}})
    assert not topic.check_position({"x": {"0": 200}})
    assert not topic.check_position({"x": {"0": 100, "1": 4}})
    assert topic.check_position({"x": {"0": 100, "1": 5, "2": 0}})
    assert (topic.messages, topic.sink.asked) == (["a sentence"], [True])
    assert topic.check_position({"x": {"0": 101, "1": 5, "2": 0}})
    assert len(topic.messages) == 1  # reported once


def test_files_are_passed_when_all_have_been_read_in_any_batches(files: Job) -> None:
    write_batch(files.old, 4, {"t_1": {"logOffset": 2}})
    write_file_log(files.old, "t_1", "1.compact", {"/a%20b": 0, "/b": 1})
    write_file_log(files.old, "t_1", "2", {"/c": 2})
    write_file_log(files.old, "t_1", "3", {"/planned, and not read": 3})
    write_file_log(files.new, "t_1", "0", {"/c": 0, "/b": 0})
    assert not files.check_position({"logOffset": 0})
    write_file_log(files.new, "t_1", "1", {"/a%20b": 1})
    assert not files.check_position({"logOffset": 0})
    assert files.check_position({"logOffset": 1})


def test_an_unreadable_position_is_never_passed(files: Job) -> None:
    write_batch(files.old, 4, {"t_1": {"logOffset": 2}})
    (files.old / "offsets" / "4").write_bytes(b"v2\n{}\n\xff")
    files.way.report_lost_input(files.opened)
    assert not files.check_position({"logOffset": 7})
    assert files.messages == []


def test_missing_files_are_reported_before_the_first_batch(files: Job, tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("")
    write_batch(files.old, 4, {"t_1": {"logOffset": 1}})
    write_file_log(files.old, "t_1", "1", {f"{tmp_path}/a%20b": 0, f"{tmp_path}/b": 1})
    files.way.report_lost_input(files.opened)
    messages = ["table `bids`: 1 of the 2 files that were read no longer exist; the job is rebuilt from the others"]
    assert files.messages == messages
    write_batch(files.new, 0, {})
    files.way.report_lost_input(files.opened)
    assert files.messages == messages


@pytest.fixture
def rewound(topic: Job, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Create a job that did not start at the first offsets of its topic.

    Since then the topic has lost records and got a new partition.
    """
    log = topic.old / "sources" / "t_1" / "0"
    log.parent.mkdir(parents=True)
    log.write_text('\0v1\n{"x":{"0":40,"1":60}}')
    write_batch(topic.old, 3, {"t_1": {"x": {"0": 100, "1": 100}}})
    assert isinstance(topic.source, KafkaSource)
    first = {"x": {0: 50, 1: 50, 2: 0}}

    def list_first(partitions: Mapping[str, Iterable[int]], **_: object) -> Offsets:
        return {name: {number: first[name][number] for number in numbers} for name, numbers in partitions.items()}

    described = {name: TopicDescription("", frozenset(offsets)) for name, offsets in first.items()}
    monkeypatch.setattr(topic.source.client, "ends", list_first)
    monkeypatch.setattr(topic.source.client, "first_offsets", list_first)
    monkeypatch.setattr(topic.source.client, "describe_topics", lambda names: described)
    return topic


def test_a_rebuild_reads_a_topic_from_where_the_job_once_started(rewound: Job) -> None:
    declared = TOPIC
    none: Any = None
    sources = Sources(
        none,
        rewound.folder,
        none,
        none,
        local(rewound.folder),
        {},
        1,
        [local(rewound.folder / "missing"), local(rewound.old)],
    )
    context: SourceContext = sources._context(declared, "t_1")
    assert context.previous_log == local(rewound.old) / "sources" / "t_1"
    assert context.start_folder == local(rewound.folder) / "sources" / "1"
    assert isinstance(rewound.source, KafkaSource)
    partitions = {"x": [0, 1, 2]}
    assert rewound.source._rebuild_starts(context, partitions) == {"x": {0: 50, 1: 60, 2: 0}}
    new = sources._context(declared, "another_5")
    assert rewound.source._rebuild_starts(new, partitions) is None


def test_missing_records_are_reported(rewound: Job) -> None:
    rewound.way.report_lost_input(rewound.opened)
    assert rewound.messages == [
        "table `bids`: 10 of the records that were read no longer exist; the job is rebuilt from the others"
    ]
