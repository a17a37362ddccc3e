"""A job of an earlier release that keeps groups of sessions forever: the change to final results.

`golden/state/job-v6-sessions.tar.gz` was written before these groups were final, and suspended
between two sessions.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from unit.job_dirs import open_dir

from everfold.compat import Judgement, judge, shape_of
from everfold.jobs.change import OnChange
from everfold.jobs.job_dir import load_manifest
from everfold.sql.planner import Session, Submit
from everfold.storage import local

GOLDEN = Path(__file__).parents[2] / "golden" / "state" / "job-v6-sessions.tar.gz"
FINAL = "copy checkpoint 0 to checkpoint 1; keep the state of SESSION(gap=5 s), SESSION(gap=5 s), GROUP BY a; "


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bind(script: str) -> Submit:
    (*_, action) = Session().run(script)
    assert isinstance(action, Submit)
    return action


def judge_script(job: Path, script: str) -> Judgement:
    old = load_manifest(local(job / "state")).version.query_shapes
    return judge(old, [shape_of(root) for root in bind(script).roots])


def test_the_groups_are_discarded_and_the_sessions_kept(job: Path) -> None:
    script = (job / "job.sql").read_text()
    judgement = judge_script(job, script)
    codes = [[finding.code for finding in operator.findings] for operator in judgement.operators]
    assert (judgement.verdict.value, codes) == ("fully compatible", [["OPR008"], [], ["OPR008"], []])
    assert {column.status.value for column in judgement.columns} == {"kept"}
    action = bind(script)
    for how in (OnChange.REFUSE, OnChange.BACKFILL):
        plan = open_dir(job / "state", action.roots, how=how, folder=job)
        (copied,) = [stage.summary for stage in plan.stages if stage.summary.startswith("copy")]
        assert copied.startswith(FINAL), copied
        assert plan.manifest.version.operators == ("w5", "w1", "w6", "w3")


@pytest.mark.parametrize(
    ("old", "new", "verdict", "codes"),
    [
        ("SUM(v), COUNT(DISTINCT b)", "SUM(v) + 1, COUNT(DISTINCT b)", "fully compatible", ["OPR008"]),
        ("SUM(v), COUNT(DISTINCT b)", "SUM(v), COUNT(*)", "incompatible", ["OPR008", "WIN006"]),
        ("ROLLUP (a)", "ROLLUP (a, b)", "incompatible", ["OPR003", "OPR008"]),
        ("INTERVAL '5' SECOND)\nGROUP", "INTERVAL '6' SECOND)\nGROUP", "incompatible", ["OPR008", "WIN001"]),
        ("INTERVAL '5' SECOND)\nGROUP", "INTERVAL '5' SECOND) WHERE v > 0\nGROUP", "incompatible", ["OPR003", "OPR008"]),
        ("GROUP BY window_start, window_end;", "GROUP BY window_start, window_end, s;", "incompatible", ["OPR003", "OPR008"]),
        ("MAX(s), COUNT(*)", "MAX(s), COUNT(*) + MIN(s)", "fully compatible", ["OPR008"]),
    ],
)  # fmt: skip
def test_a_query_that_is_changed_at_the_same_time(
    job: Path, old: str, new: str, verdict: str, codes: list[str]
) -> None:
    script = (job / "job.sql").read_text()
    assert script.count(old) == 1, script
    judgement = judge_script(job, script.replace(old, new))
    found = {finding.code for operator in judgement.operators for finding in operator.findings}
    assert (judgement.verdict.value, sorted(found)) == (verdict, codes)
