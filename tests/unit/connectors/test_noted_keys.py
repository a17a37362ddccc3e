"""Key snapshots of topics, in files.

tests/spark/connectors/test_left_over_in_topics.py checks their use.
"""

from __future__ import annotations

from pathlib import Path

from everfold.connectors.kafka.key_snapshot import TopicKeys
from everfold.storage import local

GOLDEN = Path(__file__).parents[2] / "golden" / "state" / "keys-v1.arrow"
NOTE = TopicKeys({0: 5, 11: 0}, frozenset({-(1 << 63), 7}))


def test_a_snapshot_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "keys-topic" / "3.arrow"
    NOTE.write(local(path))
    assert TopicKeys.read(local(path)) == NOTE
    assert [each.name for each in path.parent.iterdir()] == ["3.arrow"]


def test_snapshots_of_earlier_versions_are_readable() -> None:
    assert TopicKeys.read(local(GOLDEN)) == NOTE
