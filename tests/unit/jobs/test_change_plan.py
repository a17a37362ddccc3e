"""The plan of a change: the same for the same question, with the stages that users read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.job_dirs import carry_out, open_dir, start_job

from everfold.jobs.change import OnChange
from everfold.jobs.change_plan import ChangePlan
from everfold.plan.nodes import Root
from everfold.plan.walk import operators_of, scans_of
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE t (ts TIMESTAMP(3), k STRING, x INT, WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE totals (k STRING, n BIGINT, m BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'totals',
  'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO totals
"""
OLD = "SELECT k, COUNT(*), SUM(x) FROM t GROUP BY k"
MORE = "SELECT k, COUNT(*), SUM(x) + COUNT(x) FROM t GROUP BY k"
ABOVE = "SELECT CAST(n AS STRING), COUNT(*), SUM(m) FROM (SELECT k, COUNT(*) AS n, SUM(x) AS m FROM t GROUP BY k) GROUP BY n"
SWITCH = "make version 1 the current one in the manifest"
POSITION = "continue at the current position in the input"
LEAVE = "leave the rows of `totals` as they are"


def roots(query: str) -> Sequence[Root]:
    (*_, submit) = Session().run(TABLES + query)
    assert isinstance(submit, Submit)
    return submit.roots


def plan(path: Path, query: str, how: OnChange, old: str = OLD, *, extended: bool = False) -> ChangePlan:
    start_job(path, roots(old))
    return open_dir(path, roots(query), how=how, extended=extended)


def summaries(found: ChangePlan) -> list[str]:
    """Return the stages after the judgement."""
    return [stage.summary for stage in found.stages][1:]


@pytest.mark.parametrize(
    ("query", "how", "expected"),
    [
        (MORE, OnChange.ACCEPT, ["copy checkpoint 0 to checkpoint 1; keep the state of GROUP BY k", POSITION, SWITCH, LEAVE]),
        (
            MORE,
            OnChange.BACKFILL,
            [
                "backfill COUNT(x) from the input that the job has read",
                "copy checkpoint 0 to checkpoint 1; keep the state of GROUP BY k",
                POSITION,
                SWITCH,
                LEAVE,
            ],
        ),
        (MORE, OnChange.RESET, ["copy checkpoint 0 to checkpoint 1; discard the state of GROUP BY k", POSITION, SWITCH, LEAVE]),
        (
            MORE,
            OnChange.REBUILD,
            ["start checkpoint 1 empty, at the beginning of the input", SWITCH, "take a key snapshot of `totals`"],
        ),
    ],
    ids=lambda each: each.value if isinstance(each, OnChange) else None,
)  # fmt: skip
def test_a_new_aggregate(tmp_path: Path, query: str, how: OnChange, expected: list[str]) -> None:
    assert summaries(plan(tmp_path, query, how)) == expected


def test_a_new_operator_reads_the_rows_that_are_re_emitted(tmp_path: Path) -> None:
    assert summaries(plan(tmp_path, ABOVE, OnChange.ACCEPT, extended=True)) == [
        "copy checkpoint 0 to checkpoint 1; keep the state of GROUP BY k; start GROUP BY n",
        POSITION,
        "re-emit the current rows of GROUP BY k",
        SWITCH,
        LEAVE,
    ]


def test_a_dropped_operator(tmp_path: Path) -> None:
    found = plan(tmp_path, OLD, OnChange.RESET, ABOVE)
    assert summaries(found)[0] == "copy checkpoint 0 to checkpoint 1; discard the state of GROUP BY k; drop GROUP BY n"


def test_a_resumed_job_has_no_change(tmp_path: Path) -> None:
    found = plan(tmp_path, OLD, OnChange.REFUSE)
    assert found.replaces is None
    assert [stage.summary for stage in found.stages] == ["make version 0 the current one in the manifest", LEAVE]


def test_a_plan_depends_only_on_what_it_is_given(tmp_path: Path) -> None:
    first = plan(tmp_path, MORE, OnChange.BACKFILL)
    files = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    second = open_dir(tmp_path, roots(MORE), how=OnChange.BACKFILL)
    assert (second.stages, second.roots, second.replaces) == (first.stages, first.roots, first.replaces)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == files


def test_operators_and_sources_are_named_in_the_plans(tmp_path: Path) -> None:
    found = plan(tmp_path, ABOVE, OnChange.ACCEPT, extended=True)
    (root,) = found.roots
    assert [each.operator_id for each in operators_of([root])] == ["w2", "w1"]
    assert [each.source_name for each in scans_of([root])] == ["t"]
    assert found.manifest.version.operators == ("w2", "w1")


def test_the_manifest_is_written_by_the_last_stage_of_a_change(tmp_path: Path) -> None:
    found = plan(tmp_path, MORE, OnChange.ACCEPT)
    assert carry_out(tmp_path, found).current == 1
    assert open_dir(tmp_path, roots(MORE)).replaces is None
