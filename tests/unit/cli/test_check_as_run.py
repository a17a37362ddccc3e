"""`everfold check` refuses what `everfold run` would refuse, and reports tables at another location.

`tests/property/test_preflight.py` compares both commands for random scripts.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from unit.job_dirs import start_job

from everfold.cli.change import judge_change
from everfold.cli.main import everfold
from everfold.cli.run import RunOptions, Script
from everfold.errors import EverfoldError
from everfold.sql.planner import Session, Submit
from everfold.storage import local

KAFKA = "'connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'a:9092', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'"
ORDERS = "CREATE TABLE orders (customer STRING, amount INT) WITH ({});\n"
TOTALS = "CREATE TABLE totals (customer STRING, total INT, PRIMARY KEY (customer) NOT ENFORCED) WITH ({});\n"
UPSERT = "'connector' = 'upsert-kafka', 'topic' = 'totals', 'properties.bootstrap.servers' = 'a:9092', 'key.format' = 'json', 'value.format' = 'json'"
SUM = "INSERT INTO totals SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer;\n"
SCRIPT = ORDERS.format(KAFKA) + TOTALS.format(UPSERT) + SUM


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(old: str, new: str, *options: str) -> Result:
    """Check the change of a script."""
    Path("old.sql").write_text(old)
    Path("new.sql").write_text(new)
    return CliRunner().invoke(everfold, ["check", "old.sql", "new.sql", *options])


def code_of(result: Result) -> str:
    """Return the code of the error with which a command has ended; empty without one."""
    return result.exception.code if isinstance(result.exception, EverfoldError) else ""


# --- what run would refuse ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("'upsert-kafka'", "'upsert-kafak'", "unknown-connector"),
        ("'value.format' = 'json'", "'value.format' = 'xml'", "unknown-format"),
        (", 'scan.startup.mode' = 'earliest-offset'", "", "missing-option"),
        ("'topic' = 'orders'", "'tpic' = 'orders'", "unknown-option"),
        ("PRIMARY KEY (customer)", "PRIMARY KEY (total)", "sink-key"),
        (UPSERT, "'connector' = 'filesystem', 'path' = 'x', 'format' = 'json'", "updates-into-appends"),
        (UPSERT, "'connector' = 'datagen'", "not-a-sink"),
        (f" WITH ({KAFKA})", "", "missing-option"),
        ("INSERT INTO totals", "INSERT INTO total", "unknown-table"),
        ("FROM orders", "FROM order_items", "unknown-table"),
        ("SUM(amount)", "TOTAL(amount)", "unknown-function"),
        ("'topic' = 'orders'", "'topic' = '${topic}'", "unknown-variable"),
        ("INSERT", "SET 'everfold.engine' = 'memory';\nINSERT", "not-in-memory"),
    ],
)
def test_a_script_that_run_refuses_is_refused_with_the_same_error(old: str, new: str, code: str) -> None:
    assert old in SCRIPT
    changed = SCRIPT.replace(old, new, 1)
    result = check(SCRIPT, changed)
    ran = CliRunner().invoke(everfold, ["run", "new.sql"])
    assert isinstance(result.exception, EverfoldError), result.output
    assert isinstance(ran.exception, EverfoldError), ran.output
    assert (result.exception.code, result.exception.exit_code) == (code, 2)
    assert result.exception.diagnostics == ran.exception.diagnostics
    assert result.stdout == ""


def test_the_old_script_may_be_wrong() -> None:
    """It was started before, perhaps by another release: what is wrong is only noted."""
    result = check(SCRIPT.replace("'scan.startup.mode'", "'scan.mode'"), SCRIPT)
    assert result.exit_code == 0, result.output
    assert (
        "note: old.sql: `everfold run` refuses it: table `orders`: the connector `kafka` has no option `scan.mode`"
        in result.stdout
    )


@pytest.mark.parametrize("other", ["'all', amount FROM orders", "UPPER(customer), -amount FROM orders"])
def test_the_columns_of_a_second_branch_need_no_names(other: str) -> None:
    query = f"SELECT k, SUM(n) AS n FROM (SELECT customer AS k, amount AS n FROM orders UNION ALL SELECT {other}) GROUP BY k;"
    for script in (ORDERS.format(KAFKA) + query, query):
        result = check(script, script)
        assert (result.exit_code, "kept" in result.output) == (0, True), result.output


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(x) AS s FROM t GROUP BY k",
        "INSERT INTO nowhere SELECT k, my_sum(x) AS s FROM t GROUP BY k",
        "CREATE TABLE accounts (id INT) WITH ('connector' = 'kafka'); SELECT k, SUM(x) AS s FROM t GROUP BY k",
        "CREATE TABLE copy WITH ('connector' = 'blackhole') AS SELECT k, SUM(x) AS s FROM t GROUP BY k",
    ],
)
def test_a_script_that_declares_no_table_of_its_queries_is_only_judged(query: str) -> None:
    result = check(query, query)
    assert result.exit_code in (0, 4), result.output


def test_variables_and_the_mode_are_given_as_to_run() -> None:
    script = SCRIPT.replace("'topic' = 'orders'", "'topic' = '${topic}'")
    assert check(script, script, "--var", "topic=orders").exit_code == 0
    assert code_of(check(SCRIPT, SCRIPT + "SELECT customer FROM orders ORDER BY amount;")) == "streaming-order-by"
    assert check(SCRIPT, SCRIPT, "--batch").exit_code == 0


SECRET = "'properties.sasl.password' = '{}', 'properties.bootstrap.servers'"


@pytest.mark.parametrize("variable", ["${env:EVERFOLD_TEST_MISSING}", "${missing}", "user:${missing}@"])
def test_a_secret_needs_no_value(variable: str) -> None:
    """Nothing is connected to, so `check` runs where the secrets of a job are not known."""
    script = SCRIPT.replace("'properties.bootstrap.servers'", SECRET.format(variable), 1)
    result = check(SCRIPT, script)
    assert result.exit_code == 0, result.output
    assert "note: new.sql: `everfold run` needs a value for ${" in result.stdout
    used_elsewhere = script.replace("'topic' = 'orders'", f"'topic' = '{variable}'")
    assert code_of(check(SCRIPT, used_elsewhere)) == "unknown-variable"
    given = check(SCRIPT, script, "--var", "missing=x")
    assert ("needs a value" in given.output) is ("env:" in variable)
    # An error of the script comes with that about the variable, as in `everfold run`.
    assert code_of(check(SCRIPT, script.replace("'kafka'", "'kafak'"))) == "unknown-variable"


def test_github_gets_an_annotation_of_the_error() -> None:
    result = check(SCRIPT, SCRIPT.replace("'kafka'", "'kafak'"), "--format", "github")
    assert code_of(result) == "unknown-connector"
    assert result.stdout == (
        "::error file=new.sql,line=1,col=57,title=unknown-connector::table `orders`: no connector is named `kafak`"
        "%0Adid you mean `kafka`?\n"
    )


def test_the_values_of_the_environment_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may offer a script need not be trusted with the environment of the command."""
    monkeypatch.setenv("EVERFOLD_TEST_CANARY", "s3cr3t-canary")
    for option in ("'topic' = 'orders'", "'connector' = 'kafka'", "'format' = 'json'", "'earliest-offset'"):
        name = option.removesuffix(option.rpartition(" = ")[2])
        changed = SCRIPT.replace(option, f"{name}'${{env:EVERFOLD_TEST_CANARY}}'", 1)
        for arguments in ((), ("--format", "json"), ("--format", "github")):
            result = check(SCRIPT, changed, *arguments)
            shown = f"{result.output} {result.exception}"
            assert "${env:EVERFOLD_TEST_CANARY}" in shown, option
            assert "canary" not in shown.lower().replace("everfold_test_canary", ""), option
        explained = CliRunner().invoke(everfold, ["explain", "new.sql"])
        assert "s3cr3t" not in f"{explained.output} {explained.exception}"


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("'table.local-time-zone' = 'Asia/Tokyo'", "changed-zone"),
        ("'execution.runtime-mode' = 'batch'", "streaming-job"),
    ],
)
@pytest.mark.parametrize("script", [SCRIPT, "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"])
def test_the_mode_and_the_time_zone_of_a_job_cannot_change(setting: str, code: str, script: str) -> None:
    result = check(script, f"SET {setting};\n{script}")
    assert isinstance(result.exception, EverfoldError), result.output
    assert (result.exception.code, result.exception.exit_code) == (code, 2)
    assert "`old.sql`" in str(result.exception)
    assert check(f"SET {setting};\n{script}", f"SET {setting};\n{script}").exit_code == 0


# --- locations ------------------------------------------------------------------------------------

FILES = "'connector' = 'filesystem', 'path' = '{}', 'format' = 'json'"
JDBC = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://{}', 'table-name' = '{}'"
DELTA = "'connector' = 'delta', 'table-path' = '{}'"
TOPIC = KAFKA.replace("'orders'", "'{}'").replace("'a:9092'", "'{}'")


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (FILES.format("in"), FILES.format("./in/"), True),
        (FILES.format("in"), FILES.format("in") + ", 'source.monitor-interval' = '1 s'", True),
        (FILES.format("in"), FILES.format("in2"), False),
        (FILES.format("s3a://b/in"), FILES.format("s3a://b/in/"), True),
        (FILES.format("s3a://b/in"), FILES.format("s3a://c/in"), False),
        (FILES.format("in"), DELTA.format("in"), False),
        (DELTA.format("in"), DELTA.format("in/."), True),
        (DELTA.format("in"), DELTA.format("out"), False),
        (JDBC.format("h/shop", "t"), JDBC.format("H:5432/shop?sslmode=require", '"t"'), True),
        (JDBC.format("h/shop", "t"), JDBC.format("h/shop", "u"), False),
        (JDBC.format("h/shop", "t"), JDBC.format("h/shop2", "t"), False),
        (JDBC.format("h/shop", "t"), JDBC.format("h2/shop", "t"), False),
        (TOPIC.format("t", "a:1"), TOPIC.format("t", "A:1, b:1"), True),
        (TOPIC.format("t", "a:1,b:1"), TOPIC.format("t", "c:1,b:1"), True),
        (TOPIC.format("t;u", "a:1"), TOPIC.format("u;t", "a:1"), True),
        (TOPIC.format("t", "a:1"), TOPIC.format("t;u", "a:1"), False),
        (TOPIC.format("t", "a:1"), TOPIC.format("u", "a:1"), False),
        (TOPIC.format("t", "a:1"), TOPIC.format("t", "b:1"), False),
        (TOPIC.format("t", "a:1"), TOPIC.format("t", "a:1").replace("'topic'", "'topic-pattern'"), True),
        ("'connector' = 'datagen'", "'connector' = 'datagen', 'rows-per-second' = '3'", True),
        ("'connector' = 'datagen'", FILES.format("in"), False),
    ],
)  # fmt: skip
def test_a_source_at_another_location_needs_an_answer(old: str, new: str, is_same: bool) -> None:
    rest = TOTALS.format("'connector' = 'print'") + SUM
    result = check(ORDERS.format(old) + rest, ORDERS.format(new) + rest)
    assert (result.exit_code, "changed-source: table `orders`" in result.stdout) == (
        (0, False) if is_same else (2, True)
    )
    answered = check(ORDERS.format(old) + rest, ORDERS.format(new) + rest, "--source", "orders=new")
    assert answered.exit_code == 0
    assert ("--source orders=new has no effect" in answered.stdout) is is_same


def test_another_connector_cannot_resume_at_a_position() -> None:
    rest = TOTALS.format("'connector' = 'print'") + SUM
    result = check(ORDERS.format(FILES.format("in")) + rest, ORDERS.format(KAFKA) + rest, "--source", "orders=moved")
    assert result.exit_code == 2
    assert "orders=moved" not in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        (UPSERT, UPSERT.replace("'totals'", "'totals2'"), False),
        (UPSERT, UPSERT.replace("'a:9092'", "'a:9092,b:9092'"), True),
        (JDBC.format("h/shop", "t"), JDBC.format("h/shop", "u"), False),
        (DELTA.format("out"), DELTA.format("out2"), False),
        ("'connector' = 'print'", UPSERT, False),
        (UPSERT, "'connector' = 'print'", True),
        (UPSERT, "'connector' = 'blackhole'", True),
    ],
)
def test_a_sink_at_another_location_needs_an_answer(old: str, new: str, is_same: bool) -> None:
    old, new = (ORDERS.format(KAFKA) + TOTALS.format(options) + SUM for options in (old, new))
    result = check(old, new)
    assert (result.exit_code, "changed-sink: table `totals`" in result.stdout) == ((0, False) if is_same else (2, True))
    for answer in ("refresh", "empty", "rebuild"):
        assert check(old, new, "--sink", f"totals={answer}").exit_code == 0
        assert ("--sink totals=" in result.stdout) is not is_same


def test_an_answer_about_any_table() -> None:
    moved = SCRIPT.replace("'a:9092'", "'b:9092'")
    assert check(SCRIPT, moved).exit_code == 2
    assert check(SCRIPT, moved, "--source", "*=moved").exit_code == 2
    assert check(SCRIPT, moved, "--source", "*=moved", "--sink", "*=empty").exit_code == 0
    assert check(SCRIPT, SCRIPT, "--source", "*=moved").exit_code == 0


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (("--source", "ordrs=new"), "the script reads no table `ordrs`"),
        (("--sink", "orders=empty"), "the script writes no table `orders`"),
        (("--source", "orders=old"), "the script reads no table `old`"),
        (("--sink", "totals=moved"), "the value is not one of `refresh`, `empty`, `rebuild`"),
    ],
)
def test_a_wrong_answer_is_refused(answer: tuple[str, ...], words: str) -> None:
    result = check(SCRIPT, SCRIPT, *answer)
    assert code_of(result) == "wrong-option-value"
    assert words in str(result.exception)


def test_a_location_in_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = SCRIPT.replace("'topic' = 'orders'", "'topic' = 'orders2'")
    message = (
        "table `orders`: the job has read `a:9092/orders` (kafka), but the table is now at `a:9092/orders2` (kafka)"
    )
    text = check(SCRIPT, moved).stdout
    assert text.startswith("The change is fully compatible.\n")
    assert text.endswith(
        f"\n\nchanged-source: {message}  (new.sql:1:14)\n"
        "  --source orders=moved  the same data was moved: resume at the job's position in it\n"
        "  --source orders=new    other data: read it from its start, and keep the state\n"
    )
    found = json.loads(check(SCRIPT, moved, "--format", "json").stdout)
    assert found["verdict"] == "fully compatible"
    assert found["findings"] == [
        {
            "code": "changed-source",
            "table": "orders",
            "message": message,
            "file": "new.sql",
            "line": 1,
            "column": 14,
            "answers": [
                {
                    "option": "--source orders=moved",
                    "meaning": "the same data was moved: resume at the job's position in it",
                },
                {"option": "--source orders=new", "meaning": "other data: read it from its start, and keep the state"},
            ],
            "answer": None,
        }
    ]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    github = check(SCRIPT, moved, "--format", "github").stdout.splitlines()
    assert github[0] == "::notice title=everfold::the change is fully compatible"
    assert github[1].startswith(f"::error file=new.sql,line=1,col=14,title=changed-source::{message}%0Achoose one:%0A")
    assert "--source orders=moved or --source orders=new" in Path("summary.md").read_text()
    answered = check(SCRIPT, moved, "--format", "json", "--source", "orders=new")
    assert answered.exit_code == 0
    assert json.loads(answered.stdout)["findings"][0]["answer"] == "--source orders=new"


def test_relative_paths_of_both_scripts_start_in_one_folder(tmp_path: Path) -> None:
    """The old script may be a copy somewhere else, as `git show` makes it."""
    script = ORDERS.format(FILES.format("in")) + TOTALS.format("'connector' = 'print'") + SUM
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "new.sql").write_text(script)
    (tmp_path / "old.sql").write_text(script)
    result = CliRunner().invoke(everfold, ["check", "old.sql", "jobs/new.sql"])
    assert result.exit_code == 0, result.output


def test_locations_with_variables_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = TOTALS.format("'connector' = 'print'") + SUM
    script = ORDERS.format(FILES.format("${env:EVERFOLD_TEST_FOLDER}/${day}")) + rest
    monkeypatch.setenv("EVERFOLD_TEST_FOLDER", "very-secret-folder")
    assert check(script, script, "--var", "day=monday").exit_code == 0
    assert (
        check(ORDERS.format(FILES.format("very-secret-folder/monday")) + rest, script, "--var", "day=monday").exit_code
        == 0
    )
    other = check(ORDERS.format(FILES.format("in")) + rest, script, "--var", "day=monday")
    assert other.exit_code == 2
    assert "/${env:EVERFOLD_TEST_FOLDER}/monday` (filesystem)" in other.stdout
    assert "very-secret-folder" not in other.stdout


# --- jobs -----------------------------------------------------------------------------------------


def start(folder: str, script: str, number: int = 0) -> None:
    """Start the job of a statement of a script, in a directory."""
    submits = [action for action in Session().run(script) if isinstance(action, Submit)]
    start_job(Path(folder), submits[number].roots, sql=submits[number].text)


def test_each_statement_is_judged_with_its_job(folder: Path) -> None:
    """`everfold run` resumes the first job in the directory, and the others below it."""
    largest = (
        "CREATE TABLE largest (customer STRING, amount INT) WITH ('connector' = 'print');\n"
        "INSERT INTO largest SELECT customer, MAX(amount) AS amount FROM orders GROUP BY customer;\n"
    )
    start("job", SCRIPT + largest)
    Path("new.sql").write_text(SCRIPT + largest.replace("MAX", "MIN"))
    command = ["check", "new.sql", "--state", "job", "--format", "json"]
    alone = json.loads(CliRunner().invoke(everfold, command).stdout)
    assert [column["name"] for column in alone["columns"]] == ["customer", "total"]
    start("job/jobs/largest", SCRIPT + largest, 1)
    both = CliRunner().invoke(everfold, command)
    found = json.loads(both.stdout)
    assert (both.exit_code, found["verdict"]) == (5, "incompatible")
    assert [(column.get("sink"), column["status"]) for column in found["columns"]] == [
        ("totals", "kept"), ("totals", "kept"), ("largest", "not reusable"), ("largest", "not reusable"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ("'table.local-time-zone' = 'Asia/Tokyo'", "changed-zone", "job` was computed in the time zone UTC"),
        ("'execution.runtime-mode' = 'batch'", "streaming-job", "job` is a streaming job"),
    ],
)
def test_the_job_refuses_another_mode_or_time_zone(setting: str, code: str, words: str) -> None:
    start("job", SCRIPT)
    Path("new.sql").write_text(f"SET {setting};\n{SCRIPT}")
    result = CliRunner().invoke(everfold, ["check", "new.sql", "--state", "job"])
    assert isinstance(result.exception, EverfoldError)
    assert (result.exception.code, result.exception.exit_code) == (code, 2)
    assert words in str(result.exception)


def test_the_dashboard_reads_no_variable_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERFOLD_TEST_CANARY", "s3cr3t")
    start("job", SCRIPT)
    new = Script(
        text=SCRIPT.replace("'orders'", "'${env:EVERFOLD_TEST_CANARY}'"), source="new", folder=Path(), name="new"
    )
    change = judge_change(local(Path("job")), new, RunOptions(environment={}), lenient=True)
    assert "s3cr3t" not in str(change)
    assert change.notes == ()


def test_a_script_without_tables_is_judged_with_its_job(folder: Path) -> None:
    start("job", SCRIPT)
    for text, code in ((SUM, 0), (SUM.replace("GROUP BY customer", "GROUP BY customer, item"), 5)):
        Path("new.sql").write_text(text)
        result = CliRunner().invoke(everfold, ["check", "new.sql", "--state", "job"])
        assert result.exit_code == code, result.output
