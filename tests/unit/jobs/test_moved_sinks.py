"""The tables that a job writes under another name or at another location, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit.job_dirs import carry_out, open_dir, start_job
from unit.jobs.test_folder import add_checkpoint

from everfold.connectors.registry import apply_connector
from everfold.errors import StateError
from everfold.jobs.change_plan import CopyCheckpoint, Reemit
from everfold.jobs.job_dir import JobDir
from everfold.jobs.rewind import NewSink
from everfold.jobs.rollback import roll_back
from everfold.jobs.sink_tables import SinkNote, compare_sinks
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit
from everfold.storage import local

SOURCE = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');"
SUMS = "SELECT k, SUM(x) FROM t GROUP BY k"
MOST = "SELECT k, MAX(x) FROM t GROUP BY k"
ROWS = "SELECT k, x FROM t"


def plan(*inserts: tuple[str, str, str]) -> tuple[Root, ...]:
    """Return the plans of INSERTs, each with its table, the path of it, and its query."""
    tables = {
        f"CREATE TABLE {name} (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'debezium-json');"
        for name, path, _ in inserts
    }
    texts = "".join(f"INSERT INTO {name} {query};" for name, _, query in inserts)
    script = f"{SOURCE}{''.join(sorted(tables))}EXECUTE STATEMENT SET BEGIN {texts} END;"
    (submit,) = [action for action in Session(connected=apply_connector).run(script) if isinstance(action, Submit)]
    return tuple(submit.roots)


OLD = (("sums", "a", SUMS), ("most", "b", MOST))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    start_job(tmp_path / "job", plan(*OLD), folder=tmp_path)
    add_checkpoint(tmp_path / "job")
    return tmp_path / "job"


def note(table: str, location: str | None, connector: str = "filesystem") -> SinkNote:
    note = {"table": table, "connector": connector, "again": "twice"}
    return note if location is None else note | {"location": location}


@pytest.mark.parametrize(
    ("old", "new", "renamed", "moved"),
    [
        ([note("a", "/a")], [note("a", "/a")], {}, []),
        ([note("a", "/a")], [note("a", "/b")], {}, ["a"]),
        ([note("a", "/a")], [note("b", "/a")], {"b": "a"}, []),
        ([note("a", "/a")], [note("b", "/b")], {}, []),
        ([note("a", "/a"), note("b", "/b")], [note("a", "/b"), note("b", "/a")], {"a": "b", "b": "a"}, []),
        ([note("a", "/a"), note("b", "/b")], [note("b", "/a"), note("a", "/c")], {"b": "a"}, []),
        ([note("a", None)], [note("a", "/b")], {}, []),
        ([note("a", "/a")], [note("a", "", "print")], {}, []),
        ([note("a", "", "print")], [note("a", "/a")], {}, ["a"]),
        ([note("a", "h:1/t\nh:2/t", "kafka")], [note("a", "h:2/t", "kafka")], {}, []),
        ([note("a", "h:1/t", "kafka")], [note("a", "h:1/t", "upsert-kafka")], {}, ["a"]),
    ],
)
def test_tables_are_compared_by_their_locations(
    old: list[SinkNote], new: list[SinkNote], renamed: dict[str, str], moved: list[str]
) -> None:
    comparison = compare_sinks(old, new)
    assert (dict(comparison.renamed), list(comparison.moved)) == (renamed, moved)


def test_a_moved_table_needs_an_answer(job: Path) -> None:
    moved = plan(("sums", "c", SUMS), OLD[1])
    with pytest.raises(StateError, match="changed-sink") as error:
        open_dir(job, moved, folder=job.parent)
    assert [diagnostic.code for diagnostic in error.value.diagnostics] == ["changed-sink"]
    notes: list[str] = []
    empty = open_dir(job, moved, folder=job.parent, sinks={"sums": NewSink.EMPTY}, notes=notes)
    assert (empty.replaces, notes) == (
        None,
        ["`sums`: its present location receives only rows that change from now on"],
    )
    refreshed = open_dir(job, moved, folder=job.parent, sinks={"sums": NewSink.REFRESH})
    (stage,) = [stage for stage in refreshed.stages if isinstance(stage, Reemit)]
    assert [operator.operator_id for operator in stage.operators] == ["w1"]
    rebuilt = open_dir(job, moved, folder=job.parent, sinks={"sums": NewSink.REBUILD})
    assert rebuilt.manifest.version.rebuilt
    assert [note["table"] for note in rebuilt.manifest.rewritten_sinks] == ["most"]
    carry_out(job, empty)
    assert open_dir(job, moved, folder=job.parent).replaces is None


def test_rows_without_state_cannot_be_written_again(tmp_path: Path) -> None:
    start_job(tmp_path / "job", plan(("rows", "a", ROWS)), folder=tmp_path)
    add_checkpoint(tmp_path / "job")
    with pytest.raises(StateError, match="changed-sink") as error:
        open_dir(tmp_path / "job", plan(("rows", "b", ROWS)), folder=tmp_path, sinks={"rows": NewSink.REFRESH})
    assert error.value.diagnostics[0].help is not None
    assert "refresh" not in error.value.diagnostics[0].help


def test_a_second_table_needs_an_answer_and_gets_a_copy(job: Path) -> None:
    three = plan(("again", "c", SUMS), *OLD)
    with pytest.raises(StateError, match="table `again`: the job has written the rows of this query into `sums` only"):
        open_dir(job, three, folder=job.parent)
    plan_of_three = open_dir(job, three, folder=job.parent, sinks={"again": NewSink.REFRESH})
    (stage,) = [stage for stage in plan_of_three.stages if isinstance(stage, CopyCheckpoint)]
    assert [(operator.operator_id, operator.old_position, operator.copied_from) for operator in stage.operators] == [
        ("w3", 0, "w1"),
        ("w1", 0, ""),
        ("w2", 1, ""),
    ]
    version = plan_of_three.manifest.version
    assert version.state_names == {"w3": "w1"}
    assert plan_of_three.manifest.foreign_operators == {"w3": ("w2",)}
    # A copy of the copy has the same name in its state.
    assert version.carry_state_names({"w4": "w3", "w1": ""}) == {"w4": "w1"}


def test_a_renamed_table_and_another_order_need_no_answer(job: Path) -> None:
    changed = open_dir(job, plan(("most", "b", MOST), ("totals", "a", SUMS)), folder=job.parent)
    assert changed.manifest.version.operators == ("w2", "w1")
    assert changed.manifest.sink_names["totals"] == {"0_sums", "1_totals"}


def test_an_earlier_release_recorded_no_location(job: Path) -> None:
    job_dir = JobDir(local(job))
    manifest = job_dir.load_manifest()
    sinks = tuple(
        {key: value for key, value in note.items() if key != "location"} for note in manifest.version.sinks or ()
    )
    job_dir.write_manifest(replace(manifest, versions=(replace(manifest.version, sinks=sinks),)))
    started = open_dir(job, plan(("sums", "c", SUMS), OLD[1]), folder=job.parent)
    assert started.replaces is None
    assert [note["location"] for note in started.manifest.version.sinks or ()] == [
        str(job.parent / "c"),
        str(job.parent / "b"),
    ]


def test_a_project_that_was_moved_is_not_asked(job: Path, tmp_path: Path) -> None:
    job_dir = JobDir(local(job))
    job_dir.write_manifest(replace(job_dir.load_manifest(), folder=str(job)))
    (tmp_path / "a").mkdir()
    moved = tmp_path.parent / f"{tmp_path.name} moved"
    tmp_path.rename(moved)
    assert open_dir(moved / "job", plan(*OLD), folder=moved).replaces is None
    # A copy of the job directory alone, whose table is still at the old path.
    (tmp_path / "a").mkdir(parents=True)
    (moved / "a").rmdir()
    with pytest.raises(StateError, match="changed-sink"):
        open_dir(moved / "job", plan(*OLD), folder=moved)


def test_a_rollback_knows_where_the_tables_are(tmp_path: Path) -> None:
    job, moved = tmp_path / "job", plan(("sums", "c", SUMS))
    start_job(job, plan(OLD[0]), folder=tmp_path)
    add_checkpoint(job)
    carry_out(job, open_dir(job, moved, folder=tmp_path, sinks={"sums": NewSink.REFRESH}))
    roll_back(local(job), 0, duplicates=True, say=lambda _: None)
    assert open_dir(job, moved, folder=tmp_path).replaces is None
    with pytest.raises(StateError, match="changed-sink"):
        open_dir(job, plan(OLD[0]), folder=tmp_path)
