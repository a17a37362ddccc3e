"""What the shell asks before it changes a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell_screen import Screen

from everfold.compat import Verdict
from everfold.connectors.registry import apply_connector
from everfold.jobs.answers import ChangedJob, Inputs
from everfold.jobs.change import OnChange
from everfold.jobs.changed_tables import behind_sink
from everfold.jobs.job_dir import JobDir
from everfold.jobs.manifest import Manifest, NewQuery, create_version
from everfold.jobs.rewind import NewSink
from everfold.plan.nodes import Sink
from everfold.shell.changes import Decision, decide_change, find_change
from everfold.sql.planner import Session, Submit
from everfold.storage import local

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


def change(folder: Path, old: str, new: str) -> ChangedJob | None:
    """Return the change of a job that has not read anything yet."""
    submit = plan(old)
    query = NewQuery(roots=submit.roots, zone="UTC", sql=old)
    version = create_version(0, 0, query, submit.roots)
    manifest = Manifest(job="0123", buckets=8, partitions=2, current=0, versions=(version,))
    return find_change(JobDir(local(folder)), manifest, plan(new), Inputs())


def decide(screen: Screen, folder: Path, new: str) -> Decision:
    job = change(folder, OLD, new)
    assert job is not None
    return decide_change(screen, "out", job)


def test_an_unchanged_query_has_no_verdict(tmp_path: Path) -> None:
    assert change(tmp_path, OLD, OLD) is None
    found = change(tmp_path, OLD, MORE)
    assert found is not None
    assert found.judgement.verdict is Verdict.PARTIALLY


@pytest.mark.parametrize("answer", ["accept", "backfill", "reset", "no"])
def test_a_partly_reusable_state_may_be_kept(answer: str, tmp_path: Path) -> None:
    screen = Screen(answers=[answer])
    found = decide(screen, tmp_path, MORE)
    assert found == Decision(how=OnChange.REFUSE if answer == "no" else OnChange(answer))
    assert "The change is partially compatible." in screen.messages[0]
    assert "column" in screen.messages[0]


def test_a_state_that_is_not_reusable_is_discarded_or_kept_by_the_old_query(tmp_path: Path) -> None:
    screen = Screen(answers=["accept"])
    with pytest.raises(AssertionError, match="accept"):
        decide(screen, tmp_path, OTHER_KEY)


def test_a_rebuild_that_duplicates_rows_is_confirmed(tmp_path: Path) -> None:
    for answer, wanted in (
        ("yes", Decision(how=OnChange.REBUILD, duplicates=True)),
        ("no", Decision(how=OnChange.REFUSE)),
    ):
        screen = Screen(answers=["rebuild", answer])
        assert decide(screen, tmp_path, OTHER_KEY) == wanted
        assert screen.questions[1].startswith("`out` would hold duplicate rows")


@pytest.mark.parametrize("answer", ["refresh", "empty", "rebuild", "no"])
def test_a_table_that_is_written_elsewhere(answer: str, tmp_path: Path) -> None:
    tables = TABLES.replace(
        "'connector' = 'print'", "'connector' = 'filesystem', 'path' = '{}', 'format' = 'debezium-json'"
    )

    def plan_in(path: str) -> Submit:
        *_, submit = Session(connected=apply_connector).run(tables.format(path) + OLD)
        assert isinstance(submit, Submit)
        return submit

    roots = plan_in("a").roots
    query = NewQuery(roots=roots, zone="UTC", sql=OLD, base_folder=tmp_path)
    manifest = Manifest(job="0", buckets=8, partitions=2, current=0, versions=(create_version(0, 0, query, roots),))
    (tmp_path / "checkpoints/0/offsets").mkdir(parents=True)
    (tmp_path / "checkpoints/0/offsets/0").write_text("v1")
    inputs = Inputs(base_folder=tmp_path)
    assert find_change(JobDir(local(tmp_path)), manifest, plan_in("a"), inputs) is None
    job = find_change(JobDir(local(tmp_path)), manifest, plan_in("b"), inputs)
    assert job is not None
    screen = Screen(answers=[answer])
    decision = decide_change(screen, "out", job)
    assert screen.questions[0].startswith("table `out`: the job has written ")
    expected = {"no": OnChange.REFUSE, "rebuild": OnChange.REBUILD}.get(answer, OnChange.ACCEPT)
    assert (decision.how, decision.sinks) == (expected, {} if answer == "no" else {"out": NewSink(answer)})


@pytest.mark.parametrize("answer", ["refresh", "empty", "no"])
def test_a_table_that_was_behind_when_the_job_last_started(answer: str, tmp_path: Path) -> None:
    submit = plan(OLD)
    query = NewQuery(roots=submit.roots, zone="UTC", sql=OLD)
    version = create_version(0, 0, query, submit.roots)
    manifest = Manifest(job="0", buckets=8, partitions=2, current=0, versions=(version,))
    (tmp_path / "checkpoints/0/offsets").mkdir(parents=True)
    (tmp_path / "checkpoints/0/offsets/0").write_text("v1")
    (root,) = submit.roots
    assert isinstance(root, Sink)
    behind = behind_sink(
        root.table, "it holds batch 0", can_refresh=True, can_change=True, duplicated=["out"], commands={}
    )
    job = find_change(JobDir(local(tmp_path)), manifest, submit, Inputs(), [behind])
    assert job is not None
    screen = Screen(answers=[answer])
    decision = decide_change(screen, "out", job)
    assert screen.questions[0].startswith("table `out` is behind the job: it holds batch 0")
    how = OnChange.REFUSE if answer == "no" else OnChange.ACCEPT
    assert decision == Decision(how=how, sinks={} if answer == "no" else {"out": NewSink(answer)})
