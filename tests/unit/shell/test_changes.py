"""What the shell asks before it changes a job."""

from __future__ import annotations

from typing import cast

import pytest
from shell_screen import Screen

from everfold.compat import CompatOptions, Judgement, judge_pairs, pair_queries, shape_of
from everfold.connectors.registry import apply_connector
from everfold.jobs.change import OnChange
from everfold.jobs.manifest import Manifest, NewQuery, create_version
from everfold.shell.changes import Decision, decide_change, judge_change
from everfold.sql.planner import Session, Submit

TABLES = """
CREATE TABLE src (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE out (k STRING, n BIGINT, m BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'print');
"""
OLD = "INSERT INTO out (k, n) SELECT k, COUNT(*) FROM src GROUP BY k"
MORE = "INSERT INTO out SELECT k, COUNT(*), COUNT(v) FROM src GROUP BY k"
OTHER_KEY = "INSERT INTO out (k, n) SELECT CAST(v AS STRING), COUNT(*) FROM src GROUP BY v"


def plan(sql: str) -> Submit:
    *_, submit = Session(connected=apply_connector).run(TABLES + sql)
    assert isinstance(submit, Submit)
    return submit


def create_manifest(sql: str) -> Manifest:
    """Return the manifest of a job that runs a query."""
    submit = plan(sql)
    query = NewQuery(roots=submit.roots, zone="UTC", sql=sql)
    return Manifest(
        job="0123", buckets=8, partitions=2, current=0, versions=(create_version(0, 0, query, submit.roots),)
    )


def judge(old: str, new: str) -> Judgement:
    pairs = pair_queries([shape_of(root) for root in plan(old).roots], [shape_of(root) for root in plan(new).roots])
    return judge_pairs(pairs, CompatOptions.of(plan(new).settings))


def test_an_unchanged_query_has_no_verdict() -> None:
    assert judge_change(create_manifest(OLD), plan(OLD)) is None
    found = judge_change(create_manifest(OLD), plan(MORE))
    assert found is not None
    assert found.verdict is judge(OLD, MORE).verdict


@pytest.mark.parametrize("answer", ["accept", "backfill", "reset", "no"])
def test_a_partly_reusable_state_may_be_kept(answer: str) -> None:
    screen = Screen(answers=[answer])
    found = decide_change(screen, "out", cast(Manifest, None), judge(OLD, MORE))
    assert found == Decision(how=OnChange.REFUSE if answer == "no" else OnChange(answer))
    assert "The change is partially compatible." in screen.messages[0]
    assert "column" in screen.messages[0]


def test_a_state_that_is_not_reusable_is_discarded_or_kept_by_the_old_query() -> None:
    screen = Screen(answers=["accept"])
    with pytest.raises(AssertionError, match="accept"):
        decide_change(screen, "out", cast(Manifest, None), judge(OLD, OTHER_KEY))


def test_a_rebuild_that_duplicates_rows_is_confirmed() -> None:
    manifest = create_manifest(OLD)
    for answer, wanted in (
        ("yes", Decision(how=OnChange.REBUILD, duplicates=True)),
        ("no", Decision(how=OnChange.REFUSE)),
    ):
        screen = Screen(answers=["rebuild", answer])
        assert decide_change(screen, "out", manifest, judge(OLD, OTHER_KEY)) == wanted
        assert screen.questions[1].startswith("`out` would hold duplicate rows")
