"""Samples of late and skipped rows: the newest few are kept, and any process can read them."""

from __future__ import annotations

import stat
from pathlib import Path

from everfold.connectors.skipped_rows import SkippedRow, find_skipped_rows
from everfold.jobs.row_samples import LateSample, RowSamples, SkippedSample, read_samples, write_samples

LATE = LateSample(
    batch=1, operator="w1", time_ms=5000, is_window_end=True, watermark_ms=9000, values={"k": "ann", "v": "7"}
)
SKIPPED = SkippedSample(batch=2, reason="not readable in full", table="orders", location="in/1.json", record="{broken")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    assert read_samples(folder) == RowSamples()
    samples = RowSamples(late=(LATE,), skipped=(SKIPPED,))
    write_samples(folder, samples)
    assert read_samples(folder) == samples
    assert [each.name for each in folder.iterdir()] == ["samples.json"]
    assert stat.S_IMODE((folder / "samples.json").stat().st_mode) == 0o600
    for damage in (b"", b"[]", b'{"late": [], "skipped": 3}', b"\xff"):
        (folder / "samples.json").write_bytes(damage)
        assert read_samples(folder) == RowSamples()


def test_the_newest_are_kept() -> None:
    samples = RowSamples()
    for batch in range(30):
        samples = samples.add([LateSample(**{**LATE.to_json(), "batch": batch})], [SKIPPED])
    assert [each.batch for each in samples.late] == list(range(29, 19, -1))
    assert len(samples.skipped) == 10


def test_the_examples_of_spark() -> None:
    found = list(
        find_skipped_rows(
            {
                "everfold_bad_orders": (2, '{"table":"orders","location":"/in/1.json","record":"{broken"}'),
                "everfold_bad_topic": (1, '{"table":"t","location":"topic `orders` partition 0 offset 17"}'),
                "everfold_null_rowtime_1": (1, '{"table":"orders","path":"/in/2.json?password=hunter2"}'),
                "everfold_bad_none": (0, None),
                "other": (5, "x"),
            }
        )
    )
    assert found[:2] == [
        SkippedRow("not readable in full", "orders", "/in/1.json", "{broken"),
        SkippedRow("not readable in full", "t", "topic `orders` partition 0 offset 17"),
    ]
    assert len(found) == 3
    assert "hunter2" not in found[2].location


def test_a_location_is_cut_and_has_no_secrets() -> None:
    found = SkippedRow.at(f"/in/a.json?password=hunter2&{'x' * 300}", "without a time", "orders")
    assert len(found.location) == 200
    assert "hunter2" not in found.location
