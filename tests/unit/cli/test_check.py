"""`everfold check`, `everfold history` and the pages of rules: their output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from manifests import newest_manifest
from unit.job_dirs import start_job

from everfold.cli.explain import explain_error
from everfold.compat.rules import all_rules
from everfold.error_codes import ErrorCode, all_codes
from everfold.jobs.change import OnChange
from everfold.jobs.manifest import compute_checksum
from everfold.sql.planner import Session, Submit

OLD = "SELECT k, SUM(x) AS s, MAX(x) AS m FROM t GROUP BY k;\n"
ENGINES = ("pyspark", "py4j", "polars", "duckdb", "pyarrow", "pandas", "numpy")
PARTLY = "SELECT k, SUM(x) AS s,\n  COUNT(*) AS n\nFROM t GROUP BY k;\n"


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.sql").write_text(OLD)
    Path("partly.sql").write_text(PARTLY)
    Path("fully.sql").write_text(OLD.replace("SUM(x) AS s, ", ""))
    Path("other.sql").write_text(OLD.replace("GROUP BY k", "GROUP BY k, j"))
    Path("python.sql").write_text(OLD.replace("MAX(x)", "my_max(x)"))
    Path("nothing.sql").write_text("SET 'pipeline.name' = 'x';")


def everfold(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "everfold", *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("new", "code", "verdict"),
    [
        ("old", 0, "fully compatible"),
        ("fully", 0, "fully compatible"),
        ("partly", 3, "partially compatible"),
        ("python", 4, "unknown"),
        ("other", 5, "incompatible"),
    ],
)
def test_each_verdict_has_an_exit_code(new: str, code: int, verdict: str) -> None:
    done = everfold("check", "old.sql", f"{new}.sql", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (code, verdict)
    assert done.stderr == ""


def test_check_imports_no_engine() -> None:
    """Importing one takes longer than everything else: `benchmarks/check_times.py`."""
    code = (
        "import atexit, sys; from everfold.cli.main import everfold;"
        f"atexit.register(lambda: print([name for name in {ENGINES} if name in sys.modules], file=sys.stderr));"
        "everfold(['check', 'old.sql', 'partly.sql'], standalone_mode=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (3, "[]\n")


def test_json_has_all_findings_and_columns() -> None:
    found = json.loads(everfold("check", "old.sql", "partly.sql", "--format", "json").stdout)
    assert found == {
        "verdict": "partially compatible",
        "operators": [
            {
                "operator": "GROUP BY k",
                "verdict": "partially compatible",
                "findings": [
                    {
                        "code": "AGG006",
                        "verdict": "partially compatible",
                        "message": "COUNT(*) is new: it starts at the restart",
                        "file": "partly.sql",
                        "line": 2,
                        "column": 3,
                    },
                    {
                        "code": "AGG007",
                        "verdict": "fully compatible",
                        "message": "MAX(x) was dropped: its state is discarded",
                        "file": "partly.sql",
                        "line": 3,
                        "column": 8,
                    },
                ],
            }
        ],
        "columns": [
            describe_column("k", "kept", "computed as before", "k"),
            describe_column("s", "kept", "computed as before", "SUM(x)"),
            describe_column("n", "starts at the restart", "COUNT(*) is new", "COUNT(*)", meaning="new", since=None),
            describe_column(
                "m", "dropped", "the new query has no such column", "MAX(x)", meaning="dropped", since=None
            ),
        ],
        "rows": [],
        "alternatives": [],
    }


def describe_column(
    name: str, status: str, reason: str, expression: str, *, meaning: str = "unchanged", since: int | None = 0
) -> dict[str, object]:
    return {
        "name": name,
        "status": status,
        "reason": reason,
        "state": status,
        "meaning": meaning,
        "expression": expression,
        "was": None,
        "since": since,
    }


def test_the_github_format_prints_annotations() -> None:
    done = everfold("check", "old.sql", "other.sql", "--format", "github")
    assert done.returncode == 5
    whole, annotation = done.stdout.splitlines()
    assert whole == "::error title=everfold::the change is incompatible"
    place, _, message = annotation.partition("title=GRP001::")
    assert place == "::error file=other.sql,line=1,col=43,"
    assert message == "GROUP BY k, j: the grouping keys changed from `t.k` to `t.k`, `t.j`"


def test_a_note_reports_what_run_would_refuse() -> None:
    Path("desc.sql").write_text("SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY proctime DESC) AS s FROM t")
    done = everfold("check", "desc.sql", "desc.sql")
    assert done.returncode == 0
    assert (
        "note: desc.sql: `everfold run` refuses it: a stream cannot be ordered by descending processing time"
        in done.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["old.sql"], "name two scripts"),
        (["old.sql", "fully.sql", "--state", "job"], "name two scripts"),
        (["old.sql", "nothing.sql"], "error[nothing-to-check]: `nothing.sql` has no query"),
        (["old.sql", "missing.sql"], "error[unreadable-file]: `missing.sql` cannot be read"),
        (["old.sql", "--state", "missing"], "missing` is not a job directory\n  = help: name the folder"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], words: str) -> None:
    done = everfold("check", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_wrong_sql_is_reported() -> None:
    Path("wrong.sql").write_text("SELECT k, SUM(x FROM t")
    done = everfold("check", "old.sql", "wrong.sql")
    assert done.returncode == 2
    assert "wrong.sql:1:" in done.stderr


def test_a_job_is_checked_by_its_directory_and_has_a_history() -> None:
    tables = "CREATE TABLE t (k STRING, x INT) WITH ('connector' = 'kafka', 'properties.password' = 'hunter2');"
    for text in (OLD, PARTLY):
        (*_, submit) = Session().run(tables + text)
        assert isinstance(submit, Submit)
        start_job(Path("job"), submit.roots, sql=submit.text, how=OnChange.ACCEPT)
    assert "hunter2" not in newest_manifest(Path("job")).read_text()
    assert everfold("check", "partly.sql", "--state", "job").returncode == 0
    assert everfold("check", "old.sql", "--state", "job").returncode == 3
    shown = everfold("history", "job").stdout.splitlines()
    assert [line.partition(", since 2")[0] for line in shown] == [
        "version 0",
        "  GROUP BY k",
        "    SUM(x): since the beginning",
        "    MAX(x): since the beginning",
        "",
        "version 1 (current)",
        "  GROUP BY k",
        "    SUM(x): since the beginning",
        "    COUNT(*): since version 1",
    ]
    different = everfold("diff", "job", "0", "1").stdout
    assert "-SELECT k, SUM(x) AS s, MAX(x) AS m FROM t GROUP BY k" in different
    assert "+  COUNT(*) AS n" in different
    assert "The change is partially compatible." in different
    assert "error[no-version]: the job has no version 7" in everfold("diff", "job", "0", "7").stderr
    found = json.loads(everfold("history", "job", "--format", "json").stdout)
    assert [(each["version"], each["current"]) for each in found] == [(0, False), (1, True)]
    manifest = json.loads(newest_manifest(Path("job")).read_text())
    manifest["versions"][1] |= {"history": 0, "filled": True}
    manifest["checksum"] = compute_checksum(manifest)
    newest_manifest(Path("job")).write_text(json.dumps(manifest))
    assert "    COUNT(*): since version 1 and backfilled" in everfold("history", "job").stdout.splitlines()


@pytest.mark.parametrize("code", [each.code for each in all_rules()])
def test_each_rule_has_a_page(code: str) -> None:
    (rule,) = [each for each in all_rules() if each.code == code]
    assert rule.title.endswith((".", ":"))
    assert len(rule.page.splitlines()) >= 3
    assert not rule.title.startswith(" ")


def test_explain_prints_the_page_of_a_rule() -> None:
    done = everfold("explain", "grp001")
    assert done.returncode == 0
    assert done.stdout.startswith("GRP001: incompatible\n\nThe fields of GROUP BY have changed")
    done = everfold("explain", "GRP009")
    assert done.returncode == 2
    assert "error[unknown-rule]: no rule has the code GRP009" in done.stderr


def test_explain_prints_an_error_code() -> None:
    done = everfold("explain", "too-complex")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("too-complex: Wrong SQL, for its author to fix. Exit code 2.\n\nThe script exceeds")
    assert "5,000,000 characters" in done.stdout
    assert "\n\nTo resolve this, split the script" in done.stdout
    assert everfold("explain", "Too-Complex").stdout == done.stdout
    assert "everfold explain too-complex" in everfold("explain", "--help").stdout


def test_explain_suggests_the_nearest_error_code() -> None:
    done = everfold("explain", "too-complx")
    assert done.returncode == 2
    assert "error[unknown-code]: `too-complx` is neither a file nor an error code" in done.stderr
    assert "did you mean `too-complex`?" in done.stderr
    done = everfold("explain", "qqqq")
    assert (done.returncode, "error[unreadable-file]: `qqqq` cannot be read" in done.stderr) == (2, True)


def test_explain_reads_a_file_that_has_the_name_of_a_code() -> None:
    Path("syntax").write_text("CREATE TABLE t (x INT) WITH ('connector' = 'datagen'); SELECT SUM(x) AS s FROM t;")
    done = everfold("explain", "syntax")
    assert (done.returncode, done.stderr) == (0, "")
    assert "SUM(x)" in done.stdout


@pytest.mark.parametrize("entry", all_codes(), ids=lambda entry: entry.code)
def test_explain_finds_every_error_code(entry: ErrorCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_error(entry.code)
    assert capsys.readouterr().out == f"{entry.code}: {entry.family}\n\n{entry.page}\n"


def test_lenses_sql_is_checked_too() -> None:
    Path("old.sql").write_text("INSERT INTO t SUM(points) AS total FROM gaming-sessions GROUP BY country")
    Path("new.sql").write_text("INSERT INTO t SUM(points) AS total, LAST(points) AS l FROM gaming-sessions GROUP BY country AS c")  # fmt: skip
    done = everfold("check", "--dialect", "lenses", "old.sql", "new.sql")
    assert (done.returncode, done.stderr) == (3, "")
    assert "LAST_VALUE(points) is new: it starts at the restart  (new.sql:1:" in done.stdout
