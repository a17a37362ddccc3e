"""Which job each statement of a script continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from unit.job_dirs import start_job

from everfold.cli.main import everfold
from everfold.errors import StateError
from everfold.jobs.script_jobs import find_script_jobs
from everfold.sql.planner import Session, Submit
from everfold.storage import local

TABLES = """
CREATE TABLE orders (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
CREATE TABLE a (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'a', 'format' = 'debezium-json');
CREATE TABLE b (k STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'b', 'format' = 'debezium-json');
CREATE TABLE c (k STRING, n BIGINT) WITH ('connector' = 'print');
"""
COUNT, SUM, MAX = (f"SELECT k, {call} AS n FROM orders GROUP BY k" for call in ("COUNT(*)", "SUM(v)", "MAX(v)"))
INTO_A, INTO_B, INTO_C = f"INSERT INTO a {COUNT};\n", f"INSERT INTO b {SUM};\n", f"INSERT INTO c {MAX};\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*statements: str, tables: str = TABLES) -> list[Submit]:
    return [action for action in Session().run(tables + "".join(statements)) if isinstance(action, Submit)]


def find(*statements: str) -> list[str]:
    """Return the folder of each statement below that of the script."""
    script_jobs = find_script_jobs(local(Path("job")), plan(*statements), Path())
    return ["/".join(path) for path in script_jobs.folders]


def start(*statements: str) -> list[str]:
    folders = find(*statements)
    for path, submit in zip(folders, plan(*statements), strict=True):
        start_job(Path("job", path), submit.roots, sql=submit.text, folder=Path())
    return folders


@pytest.mark.parametrize(
    ("old", "folders", "new", "expected"),
    [
        ([INTO_A, INTO_B, INTO_C], ["", "jobs/b", "jobs/c"], [INTO_C, INTO_B, INTO_A], ["jobs/c", "jobs/b", ""]),
        ([INTO_A, INTO_B], ["", "jobs/b"], [INTO_B], ["jobs/b"]),
        ([INTO_A], [""], [INTO_B, INTO_A], ["jobs/b", ""]),
        # A removed job keeps its folder.
        ([INTO_A, INTO_B], ["", "jobs/b"], [INTO_C, INTO_B], ["jobs/c", "jobs/b"]),
        # Each of several INSERTs into one table continues the job of its own query.
        (
            [INTO_A, f"INSERT INTO a {SUM};\n", f"INSERT INTO a {MAX};\n"],
            ["", "jobs/a", "jobs/a-2"],
            [f"INSERT INTO a {MAX};\n", INTO_A],
            ["jobs/a-2", ""],
        ),
        ([INTO_A, f"INSERT INTO a {SUM};\n"], ["", "jobs/a"], [f"INSERT INTO a {MAX};\n"] * 3, ["", "jobs/a", "jobs/a-2"]),
        # The only statement continues the job of the script, a SELECT that of a SELECT.
        ([INTO_A], [""], [INTO_B], [""]),
        ([INTO_A, INTO_B], ["", "jobs/b"], [INTO_C], [""]),
        ([f"{COUNT};\n", INTO_A], ["", "jobs/a"], [f"{COUNT};\n", INTO_B], ["", "jobs/a"]),
        ([INTO_A], [""], [f"{COUNT};\n", INTO_B], ["jobs/query", ""]),
        ([f"{COUNT};\n", INTO_A], ["", "jobs/a"], [INTO_A, f"{SUM};\n"], ["jobs/a", ""]),
        # The same query for another table, but not a copy of one that goes on.
        ([INTO_A, INTO_B], ["", "jobs/b"], [INTO_B.replace("INTO b", "INTO c"), INTO_A], ["jobs/b", ""]),
        ([INTO_A, INTO_B], ["", "jobs/b"], [INTO_B.replace("INTO b", "INTO c"), INTO_B], ["jobs/c", "jobs/b"]),
        # Statement sets.
        (
            [f"EXECUTE STATEMENT SET BEGIN {INTO_A}{INTO_B} END;\n", INTO_C],
            ["", "jobs/c"],
            [INTO_C, f"EXECUTE STATEMENT SET BEGIN {INTO_B}{INTO_A} END;\n"],
            ["jobs/c", ""],
        ),
        (
            [INTO_C, f"EXECUTE STATEMENT SET BEGIN {INTO_A}{INTO_B} END;\n"],
            ["", "jobs/a+b"],
            [INTO_A, INTO_C, INTO_B],
            ["jobs/a+b", "", "jobs/b"],
        ),
    ],
)  # fmt: skip
def test_a_statement_continues_the_job_that_has_written_its_table(
    old: Sequence[str], folders: Sequence[str], new: Sequence[str], expected: Sequence[str]
) -> None:
    assert start(*old) == folders
    assert find(*old) == folders
    assert find(*new) == expected


def test_a_table_is_found_by_its_location_before_its_name() -> None:
    start(INTO_A, INTO_B)
    exchanged = TABLES.replace("TABLE a ", "TABLE x ").replace("TABLE b ", "TABLE a ").replace("TABLE x ", "TABLE b ")
    submits = plan(f"INSERT INTO a {SUM};\n", f"INSERT INTO b {COUNT};\n", tables=exchanged)
    assert find_script_jobs(local(Path("job")), submits, Path()).folders == [("jobs", "b"), ()]


def test_a_folder_with_all_its_jobs_can_be_moved(folder: Path) -> None:
    start(INTO_A, INTO_B)
    (folder / "elsewhere").mkdir()
    for name in ("a", "b", "job"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).rename(folder / "elsewhere" / name)
    script_jobs = find_script_jobs(local(folder / "elsewhere/job"), plan(INTO_B, INTO_A), folder / "elsewhere")
    assert script_jobs.folders == [("jobs", "b"), ()]


def test_the_tables_of_an_earlier_release_are_known_by_name() -> None:
    start(INTO_A, INTO_B)
    for file in Path("job").rglob("manifest/*.json"):
        members = json.loads(file.read_text())
        for version in members["versions"]:
            version["sinks"] = None
        members["format"] = 3
        del members["writer"], members["checksum"]
        file.write_text(json.dumps(members))
    assert find(INTO_B, INTO_A) == ["jobs/b", ""]


def test_a_job_that_cannot_be_read_keeps_others_from_beginning() -> None:
    """Its statement would start from the beginning, in another folder. `everfold run` reports a job
    that cannot be read when it has locked it, in the same place.
    """
    start(INTO_A, INTO_B)
    newest = max(Path("job/manifest").iterdir())
    newest.write_text(newest.read_text()[:100])
    assert find(INTO_B) == ["jobs/b"]
    with pytest.raises(StateError, match="damaged-manifest"):
        find(INTO_B, INTO_A)
    assert find(INTO_A) == find(INTO_A, INTO_B)[:1] == [""]
    Path("new.sql").write_text(TABLES + INTO_A)
    result = CliRunner().invoke(everfold, ["check", "new.sql", "--state", "job"])
    assert isinstance(result.exception, StateError)
    assert result.exception.code == "damaged-manifest"


def test_check_names_the_jobs_that_begin_and_that_are_left(folder: Path) -> None:
    start(INTO_A, INTO_B)
    Path("old.sql").write_text(TABLES + INTO_A + INTO_B)
    Path("new.sql").write_text(TABLES + INTO_C + INTO_B)
    for arguments in (["new.sql", "--state", "job"], ["old.sql", "new.sql"]):
        result = CliRunner().invoke(everfold, ["check", *arguments, "--format", "json"])
        report = json.loads(result.stdout)
        assert (result.exit_code, report["verdict"]) == (0, "fully compatible")
        columns = [(column["sink"], column["name"], column["status"]) for column in report["columns"]]
        assert columns == [("b", "k", "kept"), ("b", "n", "kept"), ("a", "k", "dropped"), ("a", "n", "dropped")]
        assert "`c`: written by a new job, which reads its tables from the beginning" in report["notes"]
        left = f"no statement of the script continues the job in `{folder}/job`, which writes `a`, any more"
        assert any(note.startswith(left) for note in report["notes"]) == ("--state" in arguments)


def test_a_select_without_a_folder_keeps_no_job() -> None:
    """Only the INSERT is a job for `everfold run` without --state."""
    start(INTO_A)
    Path("old.sql").write_text(f"{TABLES}{SUM};\n{INTO_A}")
    Path("new.sql").write_text(f"{TABLES}{SUM};\n{INTO_B}")
    for arguments in (["new.sql", "--state", "job"], ["old.sql", "new.sql"]):
        assert CliRunner().invoke(everfold, ["check", *arguments]).exit_code in (2, 5)


def test_one_incompatible_statement_makes_the_change_incompatible() -> None:
    start(INTO_A, INTO_B)
    Path("old.sql").write_text(TABLES + INTO_A + INTO_B)
    Path("new.sql").write_text(TABLES + INTO_B + INTO_A.replace("COUNT(*)", "MIN(v)"))
    for arguments in (["new.sql", "--state", "job"], ["old.sql", "new.sql"]):
        result = CliRunner().invoke(everfold, ["check", *arguments, "--format", "json"])
        report = json.loads(result.stdout)
        assert (result.exit_code, report["verdict"]) == (5, "incompatible")
        assert [(column["sink"], column["status"]) for column in report["columns"]] == [
            ("b", "kept"), ("b", "kept"), ("a", "not reusable"), ("a", "not reusable"),
        ]  # fmt: skip
