"""A job's folder: one process at a time, one query, a manifest that is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.errors import StateError
from everfold.jobs.folder import JobFolder, Manifest
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit

DDL = "CREATE TABLE t (ts TIMESTAMP(3), n INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'properties.password' = 'hunter2');"
QUERY = "SELECT window_end, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"


def roots(query: str = QUERY) -> tuple[Root, ...]:
    (*_, last) = Session().run(DDL + query)
    assert isinstance(last, Submit)
    return last.roots


def opened(path: Path, query: str = QUERY, zone: str = "UTC") -> Manifest:
    return JobFolder(path).open(roots(query), zone, "the plan", buckets=8, partitions=2)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    first, second = JobFolder(tmp_path), JobFolder(tmp_path)
    first.lock()
    with pytest.raises(StateError, match=r"job-is-running.*process \d+"):
        second.lock()
    first.release()
    second.lock()
    second.release()


def test_the_same_query_goes_on(tmp_path: Path) -> None:
    assert opened(tmp_path) == opened(tmp_path)


def test_white_space_and_aliases_are_no_change(tmp_path: Path) -> None:
    opened(tmp_path)
    opened(tmp_path, QUERY.replace("FROM", "\n  FROM  -- the same\n"))


@pytest.mark.parametrize(
    ("query", "zone"), [(QUERY.replace("SUM(n)", "MAX(n)"), "UTC"), (QUERY, "Asia/Tokyo")], ids=["query", "zone"]
)
def test_another_query_is_refused(tmp_path: Path, query: str, zone: str) -> None:
    opened(tmp_path)
    with pytest.raises(StateError, match="changed-query"):
        opened(tmp_path, query, zone)


def test_a_damaged_manifest_is_said_so(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(StateError, match="damaged-manifest"):
        opened(tmp_path)


def test_a_manifest_of_a_newer_everfold_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    text = (tmp_path / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(StateError, match="newer-manifest"):
        opened(tmp_path)


def test_secrets_stay_out_of_the_manifest(tmp_path: Path) -> None:
    opened(tmp_path)
    assert "hunter2" not in (tmp_path / "manifest.json").read_text()
