"""Inspecting a job before Spark starts: its operators, and the reasons why there is no state to
read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from manifests import newest_manifest, replace_manifest
from unit.job_dirs import open_dir

from everfold.errors import EverfoldError, StateError, UsageError
from everfold.inspection.job_state import Inspection, named_operators, select_operators
from everfold.jobs.job_dir import JobDir
from everfold.sql.planner import Session, Submit
from everfold.storage import Location, local

TABLE = "CREATE TABLE t (n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'blackhole');"
WINDOWS = "SELECT window_start, n, COUNT(*) AS c FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, n"
STACKED = f"SELECT c, SUM(n) FROM ({WINDOWS}) GROUP BY c"


def create_job(folder: Path, *queries: str) -> JobDir:
    """Create a job that has not run."""
    submits = [each for each in Session().run(TABLE + ";".join(queries)) if isinstance(each, Submit)]
    open_dir(folder, [root for each in submits for root in each.roots])
    return JobDir(local(folder))


def checkpoint_of(job: JobDir) -> Location:
    """Return the checkpoint of the current version."""
    manifest = job.read_manifest()
    assert manifest is not None
    return job.checkpoint(manifest, manifest.current)


def create_job_with_batch(folder: Path, *queries: str) -> JobDir:
    """Create a job whose checkpoint has a finished batch, as far as small files show it."""
    made = create_job(folder, *queries)
    files = {
        "metadata": '{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}',
        "offsets/3": "v2\n{}",
        "commits/3": "v1\n{}",
    }
    for name, text in files.items():
        (checkpoint_of(made) / name).write(text)
    return made


def test_operators_are_listed_from_the_top_with_the_names_of_their_state(tmp_path: Path) -> None:
    manifest = create_job(tmp_path, STACKED, "SELECT DISTINCT n FROM t").read_manifest()
    assert manifest is not None
    found = [(each.name, each.label) for each in named_operators(manifest.version)]
    assert found == [
        ("w2", "GROUP BY c"),
        ("w1", "TUMBLE(size=1 min), GROUP BY n"),
        ("w3", "GROUP BY n"),
    ]


def test_an_operator_is_selected_by_name_or_label(tmp_path: Path) -> None:
    manifest = create_job(tmp_path, STACKED).read_manifest()
    assert manifest is not None
    operators = named_operators(manifest.version)
    assert [each.name for each in select_operators(operators, None)] == ["w2", "w1"]
    assert (
        select_operators(operators, "w1")
        == select_operators(operators, "TUMBLE(size=1 min), GROUP BY n")
        == operators[1:]
    )
    with pytest.raises(UsageError, match="no-operator") as caught:
        select_operators(operators, "w7")
    assert "its operators are `w2` (GROUP BY c), `w1` (TUMBLE(size=1 min), GROUP BY n)" in str(caught.value)
    with pytest.raises(UsageError, match="its query has no stateful operator"):
        select_operators([], "w1")


def expect_error(folder: Path, **options: Any) -> EverfoldError:
    with pytest.raises(EverfoldError) as caught:
        Inspection(local(folder), **options)
    return caught.value


def test_a_directory_without_a_job_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        error = expect_error(folder)
        assert (error.code, error.exit_code) == ("no-job", 2)
    (tmp_path / "manifest.json").write_text("{")
    assert expect_error(tmp_path).code == "damaged-manifest"


def test_a_job_without_a_finished_batch_is_refused(tmp_path: Path) -> None:
    made = create_job(tmp_path, STACKED)
    assert (expect_error(tmp_path).code, expect_error(tmp_path).exit_code) == ("no-batch", 1)
    (checkpoint_of(made) / "commits").make_folder()
    assert expect_error(tmp_path).code == "no-batch"
    assert expect_error(tmp_path, wanted="w9").code == "no-operator"


@pytest.mark.parametrize("name", ["metadata", "offsets/3", "commits/3"])
def test_a_damaged_file_is_reported(tmp_path: Path, name: str) -> None:
    file = checkpoint_of(create_job_with_batch(tmp_path, STACKED)) / name
    assert Inspection(local(tmp_path)).batch == 3
    file.write("v1\n{")
    error = expect_error(tmp_path)
    assert error.code == "damaged-checkpoint"
    assert f"`{file}`" in str(error)


def test_without_operators_spark_is_not_started(tmp_path: Path) -> None:
    create_job_with_batch(tmp_path, "SELECT n FROM t")

    def start() -> Any:
        raise AssertionError

    found = Inspection(local(tmp_path)).read(start)
    assert (found.batch, found.version.number, found.operators) == (3, 0, ())


def test_missing_state_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = create_job_with_batch(tmp_path, STACKED)
    monkeypatch.setattr("everfold.inspection.job_state.reading_session", lambda *_: None)
    with pytest.raises(StateError, match="damaged-checkpoint"):
        Inspection(local(tmp_path)).read(lambda: None)  # type: ignore[arg-type, return-value]
    metadata = checkpoint_of(made) / "state" / "0" / "_metadata" / "v2" / "0"
    metadata.write("v2\n{}")
    with pytest.raises(StateError, match="damaged-checkpoint") as caught:
        Inspection(local(tmp_path)).read(lambda: None)  # type: ignore[arg-type, return-value]
    assert f"`{metadata}`" in str(caught.value)


def test_a_batch_deleted_during_the_read_is_replaced_by_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create_job_with_batch(tmp_path, STACKED)
    read: list[int] = []

    def reading(self: Inspection, spark: object, batch: int) -> int:
        read.append(batch)
        if batch < 5:
            (checkpoint_of(made) / "commits" / str(batch + 1)).write("v1\n{}")
            raise RuntimeError("batch 3 doesn't exist")
        return batch

    monkeypatch.setattr(Inspection, "_read", reading)
    with pytest.raises(StateError, match="damaged-checkpoint"):
        Inspection(local(tmp_path)).read(lambda: None)  # type: ignore[arg-type, return-value]
    assert read == [3, 4]
    assert Inspection(local(tmp_path)).read(lambda: None) == 5  # type: ignore[arg-type, comparison-overlap, return-value]


def test_an_unknown_failure_is_reported_as_unreadable_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_job_with_batch(tmp_path, STACKED)

    def reading(*_: object) -> None:
        raise RuntimeError("something new")

    monkeypatch.setattr(Inspection, "_read", reading)
    with pytest.raises(StateError, match="unreadable-state") as caught:
        Inspection(local(tmp_path)).read(lambda: None)  # type: ignore[arg-type, return-value]
    assert "something new" in str(caught.value)


def test_manifests_of_earlier_versions_are_readable(tmp_path: Path) -> None:
    made = create_job(tmp_path, STACKED)
    found = json.loads(newest_manifest(tmp_path).read_text())
    for operator in found["versions"][0]["shapes"][0]["operators"]:
        del operator["kept"]
        for call in operator["calls"]:
            for name in ("function", "args", "constants"):
                del call[name]
    replace_manifest(tmp_path, {**found, "format": 3})
    manifest = made.read_manifest()
    assert manifest is not None
    (shape,) = manifest.version.query_shapes
    assert [call.label for each in shape.operators for call in each.calls] == ["SUM(n)", "COUNT(*)"]
