"""`everfold status` prints the samples of late and skipped rows."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from unit.jobs.test_progress_log import BATCH, RUN
from unit.jobs.test_row_samples import LATE, SKIPPED
from unit.jobs.test_status import make_job

from everfold.cli.main import everfold
from everfold.jobs.progress_log import ProgressLog
from everfold.jobs.row_samples import RowSamples, write_samples


def test_samples_are_printed(tmp_path: Path) -> None:
    make_job(tmp_path)
    log = ProgressLog(tmp_path / "progress")
    log.begin(RUN)
    log.add(BATCH)
    log.close()
    plain = CliRunner().invoke(everfold, ["status", str(tmp_path)])
    assert plain.exception is None
    assert "batch 1" not in plain.output
    write_samples(tmp_path / "progress", RowSamples(late=(LATE,), skipped=(SKIPPED,)))
    shown = CliRunner().invoke(everfold, ["status", str(tmp_path)]).output
    assert shown == plain.output + (
        "late in batch 1, w1: window until 1970-01-01 00:00:05.000, watermark 1970-01-01 00:00:09.000: k = ann, v = 7\n"
        "skipped in batch 2: in/1.json: not readable in full: {broken\n"
    )
    found = json.loads(CliRunner().invoke(everfold, ["status", str(tmp_path), "--format", "json"]).output)
    assert found["samples"]["late"][0]["values"] == {"k": "ann", "v": "7"}
    assert found["samples"]["skipped"][0]["location"] == "in/1.json"
