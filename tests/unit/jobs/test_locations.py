"""Where a job's tables are, compared with where they were according to its checkpoint and its
manifest.

Without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from unit.job_dirs import carry_out, open_dir

from everfold.checkpoint.file_log import list_logged_files, uri
from everfold.connectors.contract import Role
from everfold.connectors.validate import CheckedTable, check_table, check_tables
from everfold.errors import StateError
from everfold.jobs.change import OnChange
from everfold.jobs.change_plan import ChangePlan
from everfold.jobs.job_dir import JobDir
from everfold.jobs.locations import LocatedSources, Locations, locate_table, move_job
from everfold.jobs.manifest import Manifest
from everfold.jobs.rewind import Moved
from everfold.jobs.rollback import roll_back
from everfold.jobs.sources import name_by_options
from everfold.plan.nodes import Root, Table
from everfold.sql.planner import Session, Submit
from everfold.storage import local

FILES = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'json');"
DATABASE = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'jdbc', 'url' = '{}', 'table-name' = '{}');"
QUERY = "SELECT k, SUM(x) FROM t GROUP BY k"


def roots(table: str, query: str = QUERY) -> tuple[Root, ...]:
    (*_, last) = Session().run(table + query)
    assert isinstance(last, Submit)
    return last.roots


def table_of(ddl: str) -> Table:
    (*_, last) = Session().run(ddl + QUERY)
    assert isinstance(last, Submit)
    return last.sources[0]


def locate(project: Path, path: str, query: str = QUERY, **answers: Moved) -> LocatedSources:
    """Return the sources of the job in a directory of the project, as its next start
    locates them.
    """
    plan = open_dir(project / "job", roots(FILES.format(path), query))
    return Locations(JobDir(local(project / "job")), project, (), answers).locate(
        plan.manifest, plan.roots, check_sources(plan)
    )


def check_sources(plan: ChangePlan) -> Mapping[Table, CheckedTable]:
    return check_tables(plan.roots, streaming=True).sources


def start(project: Path, path: str, **answers: Moved) -> Manifest:
    """Start the job, and write the checkpoint of a batch that has read the files of
    its directory.
    """
    located = locate(project, path, **answers)
    folder = JobDir(local(project / "job"))
    folder.read_manifest()
    manifest = move_job(folder, located)
    folder.write_manifest(manifest)
    name, checkpoint = located.spark_names["t"], Path(str(folder.checkpoint(manifest, 0)))
    log = checkpoint / "sources" / name
    if not log.exists():
        for each in (checkpoint / "offsets", checkpoint / "commits", log):
            each.mkdir(parents=True, exist_ok=True)
        (checkpoint / "offsets" / "0").write_text(f'v2\n{{}}\n{name}:{{"logOffset":0}}')
        (checkpoint / "commits" / "0").write_text("v1\n{}")
        (checkpoint / "metadata").write_text('{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}')
        files = sorted(Path(located.manifest.version.sources[0]["location"]).iterdir())  # type: ignore[index]
        lines = [json.dumps({"path": uri(each), "timestamp": 1, "batchId": 0}, separators=(",", ":")) for each in files]
        (log / "0").write_text("\n".join(["v1", *lines]))
    return manifest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "in").mkdir(parents=True)
    (project / "in" / "a #%\u00e4.json").write_text("{}")
    return project


def test_a_source_keeps_its_name_for_every_spelling_of_its_location(project: Path) -> None:
    first = start(project, "in")
    (project / "link").symlink_to("in")
    for path in ("in/", "./in", "../project/in", str(project / "in"), f"file://{project}/in", "link"):
        assert start(project, path) == first


def test_a_moved_project_keeps_its_names_and_gets_new_paths(project: Path) -> None:
    first = locate(project, "in")
    start(project, "in")
    moved = project.rename(project.with_name("m\u00f6ved here"))
    manifest = start(moved, "in")
    assert [each["spark_name"] for each in manifest.version.sources or ()] == [first.spark_names["t"]]
    assert JobDir(local(moved / "job")).read_manifest() == manifest
    assert manifest.version.checkpoint == "0.1"
    assert [each.name for each in (moved / "job" / "checkpoints").iterdir()] == ["0.1"]
    log = moved / "job" / "checkpoints" / "0.1" / "sources" / first.spark_names["t"]
    assert [*list_logged_files(local(log))] == [moved / "in" / "a #%\u00e4.json"]
    assert f"file://{project.parent}/m\u00f6ved%20here/in/a%20%23%25\u00e4.json" in (log / "0").read_text()


def test_other_data_at_the_same_relative_path_is_detected(project: Path) -> None:
    start(project, "in")
    other = project.with_name("other")
    (other / "in").mkdir(parents=True)
    (project / "job").rename(other / "job")
    with pytest.raises(StateError, match="changed-source"):
        locate(other, "in")


def test_data_at_another_location_must_be_confirmed(project: Path) -> None:
    first = start(project, "in")
    (project / "in").rename(project / "there")
    with pytest.raises(StateError, match="changed-source") as caught:
        locate(project, "there")
    message = f"the job has read `{project}/in` (filesystem), but the table is now at `{project}/there` (filesystem)"
    assert f"table `t`: {message}" in str(caught.value)
    assert "--source t=moved" in str(caught.value)
    assert "--source t=new" in str(caught.value)
    assert JobDir(local(project / "job")).read_manifest() == first
    other = locate(project, "there", t=Moved.NEW)
    assert other.spark_names["t"] != first.version.sources[0]["spark_name"]  # type: ignore[index]
    moved = start(project, "there", t=Moved.MOVED)
    assert moved.version.sources[0]["spark_name"] == first.version.sources[0]["spark_name"]  # type: ignore[index]
    assert locate(project, "there", t=Moved.MOVED).notes


def test_an_unfinished_batch_of_the_old_data_must_be_finished_first(project: Path) -> None:
    start(project, "in")
    (project / "there").mkdir()
    (project / "job" / "checkpoints" / "0" / "commits" / "0").unlink()
    with pytest.raises(StateError, match="unfinished-batch"):
        locate(project, "there", t=Moved.NEW)
    assert locate(project, "there", t=Moved.MOVED).moves


def test_another_connector_counts_as_other_data(project: Path) -> None:
    start(project, "in")
    folder = JobDir(local(project / "job"))
    plan = open_dir(Path(folder.path.path), roots(DATABASE.format("jdbc:postgresql://h/d", "t")))
    manifest, made = plan.manifest, plan.roots
    with pytest.raises(StateError, match="changed-source") as caught:
        Locations(folder, project, (), {"t": Moved.MOVED}).locate(manifest, made, check_sources(plan))
    assert "`h:5432/d/t` (jdbc)" in str(caught.value)
    assert "t=moved" not in str(caught.value)
    assert Locations(folder, project, (), {"t": Moved.NEW}).locate(manifest, made, check_sources(plan)).spark_names


def downgrade_job(project: Path, change: Callable[[str], str] = lambda name: name) -> str:
    """Turn the job into one of an earlier version, which recorded no locations.

    Return the name of its source in the checkpoint.
    """
    manifest = start(project, "in")
    (note,) = manifest.version.sources or ()
    old_name = change(name_by_options(table_of(FILES.format("in")), "t", project))
    checkpoint = project / "job" / "checkpoints" / "0"
    (checkpoint / "sources" / note["spark_name"]).rename(checkpoint / "sources" / old_name)
    offsets = checkpoint / "offsets" / "0"
    offsets.write_text(offsets.read_text().replace(note["spark_name"], old_name))
    bare = {each: note[each] for each in ("name", "table", "reader")}
    version = replace(manifest.version, sources=(bare,))
    folder = JobDir(local(project / "job"))
    folder.read_manifest()
    folder.write_manifest(replace(manifest, folder="", versions=(version,)))
    return old_name


@pytest.mark.parametrize("path", ["in", "./in/"])
def test_a_job_of_an_earlier_version_keeps_the_name_of_its_source(project: Path, path: str) -> None:
    assert locate(project, path).spark_names == {"t": locate(project, "in").spark_names["t"]}
    name = downgrade_job(project)
    assert locate(project, path).spark_names == {"t": name}


def test_a_job_of_an_earlier_version_detects_a_new_location(project: Path) -> None:
    name = downgrade_job(project, lambda _: "t_0123abcd")
    (project / "there").mkdir()
    with pytest.raises(StateError, match="changed-source") as caught:
        locate(project, "there")
    assert f"the job has read `{project}/in` (filesystem)" in str(caught.value)
    assert locate(project, "there", t=Moved.MOVED).spark_names == {"t": name}


def test_a_second_reader_of_a_table_is_named_after_the_first(project: Path) -> None:
    name = start(project, "in").version.sources[0]["spark_name"]  # type: ignore[index]
    twice = f"{QUERY} UNION ALL SELECT k, MAX(x) FROM t GROUP BY k"
    folder = JobDir(local(project / "other"))
    plan = open_dir(Path(folder.path.path), roots(FILES.format("in"), twice))
    names = Locations(folder, project).locate(plan.manifest, plan.roots, check_sources(plan)).spark_names
    assert names == {"t": name, "t_1": name.replace("t_", "t_1_", 1)}


@pytest.mark.parametrize(
    ("url", "name", "same"),
    [
        ("jdbc:postgresql://db:5432/shop", "orders", True),
        ("jdbc:postgresql://DB/shop?ssl=false", "ORDERS", True),
        ("jdbc:postgresql://db/shop?user=me&ApplicationName=x", '"orders"', True),
        ("jdbc:postgresql://db/shop", '"ORDERS"', False),
        ("jdbc:postgresql://db:5433/shop", "orders", False),
        ("jdbc:postgresql://db/shop2", "orders", False),
    ],
)
def test_spellings_of_the_same_database_table_have_one_location(url: str, name: str, same: bool) -> None:
    first = locate_table(
        check_table(table_of(DATABASE.format("jdbc:postgresql://db/shop", "orders")), Role.SOURCE), Path()
    )
    other = locate_table(check_table(table_of(DATABASE.format(url, name)), Role.SOURCE), Path())
    assert (first.location == other.location) is same


def test_check_reports_data_at_another_location(
    project: Path,
) -> None:
    from click.testing import CliRunner

    from everfold.cli.main import everfold

    start(project, "in")
    (project / "there").mkdir()
    for path, elsewhere in (("./in/", False), ("there", True)):
        (project / "job.sql").write_text(FILES.format(path) + QUERY + ";")
        for form in ("text", "json", "github"):
            command = ["check", str(project / "job.sql"), "--state", str(project / "job"), "--format", form]
            done = CliRunner().invoke(everfold, command)
            assert done.exit_code == (2 if elsewhere else 0), done.output
            assert ("changed-source" in done.output) is elsewhere
            assert ("--source t=moved" in done.output) is elsewhere
        answered = CliRunner().invoke(everfold, [*command[:4], "--source", "t=moved"])
        assert answered.exit_code == 0, answered.output
        assert ("--source t=moved has no effect" in answered.output) is not elsewhere


def test_a_query_can_change_when_its_project_is_moved(project: Path) -> None:
    name = start(project, "in").version.sources[0]["spark_name"]  # type: ignore[index]
    moved = project.rename(project.with_name("moved"))
    folder = JobDir(local(moved / "job"))
    changed = roots(FILES.format("in"), QUERY.replace("SUM(x)", "SUM(x), COUNT(*)"))
    plan = open_dir(Path(folder.path.path), changed, how=OnChange.ACCEPT)
    located = Locations(folder, moved).locate(plan.manifest, plan.roots, check_sources(plan))
    assert located.spark_names == {"t": name}
    folder.read_manifest()
    manifest = move_job(folder, located)
    before = folder.read_manifest()
    assert before is not None
    assert before.current == 0  # moved, but not changed yet
    carry_out(Path(folder.path.path), replace(plan, manifest=manifest))
    after = folder.read_manifest()
    assert after is not None
    assert [each.epoch for each in after.versions] == [0, 1]
    for version in (*before.versions, *after.versions):
        assert version.sources is not None
        assert version.sources[0]["location"] == str(moved / "in")
        log = folder.checkpoint(after, version.epoch) / "sources" / name
        assert [*list_logged_files(log)] == [moved / "in" / "a #%\u00e4.json"]
    # Roll back to the first version: its checkpoint and its recorded location have moved, too.
    roll_back(local(moved / "job"), 0, duplicates=True, say=lambda _: None)
    assert locate(moved, "in").spark_names == {"t": name}


def test_all_checkpoints_of_a_changed_job_are_moved(project: Path) -> None:
    name = start(project, "in").version.sources[0]["spark_name"]  # type: ignore[index]
    folder = JobDir(local(project / "job"))
    changed = roots(FILES.format("in"), QUERY.replace("SUM(x)", "SUM(x), COUNT(*)"))
    plan = open_dir(project / "job", changed, how=OnChange.ACCEPT)
    located = Locations(folder, project).locate(plan.manifest, plan.roots, check_sources(plan))
    carry_out(project / "job", replace(plan, manifest=located.manifest))
    moved = project.rename(project.with_name("moved"))
    folder = JobDir(local(moved / "job"))
    plan = open_dir(moved / "job", changed)
    located = Locations(folder, moved).locate(plan.manifest, plan.roots, check_sources(plan))
    assert located.spark_names == {"t": name}
    folder.read_manifest()
    move_job(folder, located)
    manifest = folder.read_manifest()
    assert manifest is not None
    assert [version.epoch for version in manifest.versions] == [0, 1]
    for version in manifest.versions:
        checkpoint = folder.checkpoint(manifest, version.epoch)
        assert [*list_logged_files(checkpoint / "sources" / name)] == [moved / "in" / "a #%\u00e4.json"]
    # The first version is still one to go back to, and its checkpoint to copy state from.
    made = roll_back(local(moved / "job"), 0, duplicates=True, say=lambda _: None)
    manifest = folder.read_manifest()
    assert manifest is not None
    log = folder.checkpoint(manifest, made.epoch) / "sources" / name
    assert [*list_logged_files(log)] == [moved / "in" / "a #%\u00e4.json"]
    assert locate(moved, "in").spark_names == {"t": name}


def test_a_rebuild_needs_no_confirmation_of_a_new_location(project: Path) -> None:
    start(project, "in")
    (project / "there").mkdir()
    folder = JobDir(local(project / "job"))
    changed = roots(FILES.format("there"), QUERY.replace("SUM(x)", "SUM(x), COUNT(*)"))
    plan = open_dir(Path(folder.path.path), changed, how=OnChange.REBUILD)
    located = Locations(folder, project).locate(plan.manifest, plan.roots, check_sources(plan))
    assert located.manifest.version.sources is not None
    assert located.manifest.version.sources[0]["location"] == str(project / "there")
