"""A session: statements one by one, options, SHOW and DESCRIBE."""

from __future__ import annotations

import json

import pytest

from everfold.errors import EverfoldError, SqlError, UsageError
from everfold.plan.nodes import Collect, Sink
from everfold.secrets import is_secret
from everfold.sql.planner import Action, Done, Session, Show, Submit
from everfold.sql.settings import Settings, parse_duration, parse_zone

BID = """CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND)"""


def run_last(session: Session, sql: str) -> Action:
    *_, action = session.run(sql)
    return action


def expect_error_code(session: Session, sql: str) -> str:
    with pytest.raises(EverfoldError) as caught:
        list(session.run(sql))
    return caught.value.code


def test_describe_prints_the_table_of_the_seed() -> None:
    session = Session()
    list(session.run(BID))
    assert run_last(session, "DESCRIBE Bid") == Show(
        columns=("name", "type", "null", "key", "extras", "watermark"),
        rows=(
            ("bidtime", "TIMESTAMP(3) *ROWTIME*", "true", "", "", "`bidtime` - INTERVAL '1' SECOND"),
            ("price", "DECIMAL(10, 2)", "true", "", "", ""),
            ("item", "STRING", "true", "", "", ""),
            ("supplier_id", "STRING", "true", "", "", ""),
        ),
    )


def test_describe_shows_keys_expressions_metadata_and_comments() -> None:
    session = Session()
    list(
        session.run(
            """CREATE TABLE t (id INT, n AS id + 1, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, c STRING COMMENT 'hi',
               PRIMARY KEY (id) NOT ENFORCED); CREATE VIEW v AS SELECT id, c FROM t"""
        )
    )
    shown = run_last(session, "DESC t")
    assert isinstance(shown, Show)
    assert shown.columns[-1] == "comment"
    assert shown.rows == (
        ("id", "INT", "false", "PRI(id)", "", "", ""),
        ("n", "INT", "false", "", "AS `id` + 1", "", ""),
        ("at", "TIMESTAMP_LTZ(3)", "true", "", "METADATA FROM 'timestamp' VIRTUAL", "", ""),
        ("c", "STRING", "true", "", "", "", "hi"),
    )
    view = run_last(session, "DESCRIBE v")
    assert isinstance(view, Show)
    assert view.rows == (("id", "INT", "false", "", "", ""), ("c", "STRING", "true", "", "", ""))


def test_show_create_hides_secrets() -> None:
    session = Session(environment={"PW": "geheim"})
    list(
        session.run(
            """CREATE TEMPORARY TABLE t (id INT, s STRING, b BYTES, at TIMESTAMP_LTZ(3), PRIMARY KEY (id) NOT ENFORCED)
               COMMENT 'it''s' PARTITIONED BY (s)
               WITH ('connector' = 'kafka', 'properties.ssl.key.password' = '${env:PW}');
               CREATE VIEW v (x) AS SELECT id FROM t"""
        )
    )
    shown = run_last(session, "SHOW CREATE TABLE t")
    assert isinstance(shown, Show)
    ((text,),) = shown.rows
    assert (
        text
        == """CREATE TEMPORARY TABLE `default_catalog`.`default_database`.`t` (
  `id` INT NOT NULL,
  `s` VARCHAR(2147483647),
  `b` VARBINARY(2147483647),
  `at` TIMESTAMP(3) WITH LOCAL TIME ZONE,
  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED
)
COMMENT 'it''s'
PARTITIONED BY (`s`)
WITH (
  'connector' = 'kafka',
  'properties.ssl.key.password' = '******'
)"""
    )
    view = run_last(session, "SHOW CREATE VIEW v")
    assert isinstance(view, Show)
    assert view.rows == (("CREATE VIEW `default_catalog`.`default_database`.`v` (\n  `x`\n)\nAS SELECT id FROM t",),)
    assert expect_error_code(session, "SHOW CREATE VIEW t") == "not-a-view"
    assert expect_error_code(session, "SHOW CREATE TABLE v") == "not-a-table"
    assert "geheim" not in repr(session.catalog.get(("t",)))


def test_temporary_tables_hide_permanent_ones() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT); CREATE TEMPORARY TABLE t (b INT); CREATE VIEW v AS SELECT 1 AS x"))
    assert run_last(session, "SHOW TABLES") == Show(columns=("table name",), rows=(("t",), ("v",)))
    assert run_last(session, "SHOW VIEWS") == Show(columns=("view name",), rows=(("v",),))
    shown = run_last(session, "SELECT * FROM t")
    assert isinstance(shown, Submit)
    assert shown.names == ("b",)
    assert expect_error_code(session, "DROP TABLE t") == "temporary-hides"
    list(session.run("DROP TEMPORARY TABLE t"))
    shown = run_last(session, "SELECT * FROM t")
    assert isinstance(shown, Submit)
    assert shown.names == ("a",)


def test_drop_checks_the_kind_and_existence() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT); CREATE TABLE IF NOT EXISTS t (b INT); CREATE VIEW v AS SELECT a FROM t"))
    assert expect_error_code(session, "DROP VIEW t") == "not-a-view"
    assert expect_error_code(session, "DROP TABLE v") == "not-a-table"
    assert expect_error_code(session, "DROP TABLE tt") == "unknown-table"
    assert isinstance(run_last(session, "DROP TABLE IF EXISTS tt"), Done)
    assert isinstance(run_last(session, "DROP VIEW v; DROP TABLE t"), Done)
    assert run_last(session, "SHOW TABLES") == Show(columns=("table name",), rows=())


def test_a_view_of_itself_is_refused() -> None:
    session = Session()
    list(
        session.run(
            "CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t; CREATE TEMPORARY VIEW t AS SELECT a FROM v"
        )
    )
    assert expect_error_code(session, "SELECT a FROM t") == "recursive-view"


def test_queries_and_statement_sets_are_submitted() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT, b INT); CREATE TABLE s (x INT); CREATE TABLE u (x INT)"))
    action = run_last(session, "SELECT b FROM t")
    assert isinstance(action, Submit)
    assert isinstance(action.roots[0], Collect)
    assert (action.names, action.text) == (("b",), "SELECT b FROM t")
    assert [[column.name for column in table.columns] for table in action.sources] == [["b"]]
    action = run_last(
        session, "EXECUTE STATEMENT SET BEGIN INSERT INTO s SELECT a FROM t; INSERT INTO u SELECT b FROM t; END"
    )
    assert isinstance(action, Submit)
    assert [type(root) for root in action.roots] == [Sink, Sink]
    assert action.names == ("s", "u")
    assert [[column.name for column in table.columns] for table in action.sources] == [["a", "b"]]


def test_explain_shows_the_plan() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT, b INT)"))
    for sql in (
        "EXPLAIN SELECT a FROM t",
        "EXPLAIN PLAN FOR SELECT a FROM t",
        "EXPLAIN CHANGELOG_MODE SELECT a FROM t",
    ):
        shown = run_last(session, sql)
        assert isinstance(shown, Show)
        assert shown.rows == (("Collect(columns=[a]) [I]\n└─ Scan(table=[t], columns=[a]) [I]",),)


def test_explain_shows_the_plan_as_json() -> None:
    """The keys are those of Flink 2.3, without its parallelism and ship strategy."""
    session = Session()
    list(session.run("CREATE TABLE t (a INT, b INT); CREATE TABLE u (a INT, n BIGINT)"))
    insert = "INSERT INTO u SELECT a, COUNT(*) FROM t GROUP BY a"
    shown = run_last(session, f"EXPLAIN CHANGELOG_MODE, JSON_EXECUTION_PLAN {insert}")
    assert isinstance(shown, Show)
    text, _, plan = shown.rows[0][0].partition("\n\n== Physical Execution Plan ==\n")
    assert run_last(session, f"EXPLAIN {insert}") == Show(columns=("result",), rows=((text,),))
    scan, aggregate, *_, sink = json.loads(plan)["nodes"]
    assert scan == {
        "id": 1,
        "type": "Scan",
        "pact": "Data Source",
        "contents": "Scan(table=[t], columns=[a])",
        "changelog_mode": ["I"],
    }
    assert aggregate == {
        "id": 2,
        "type": "GroupAggregate",
        "pact": "Operator",
        "contents": "GroupAggregate(keys=[a], calls=[COUNT(*)])",
        "state": "accumulators and key, forever",
        "changelog_mode": ["I", "UB", "UA"],
        "predecessors": [{"id": 1}],
    }
    assert (sink["pact"], sink["contents"]) == ("Data Sink", "Sink(table=[u], columns=[a, n])")
    assert sink["predecessors"] == [{"id": sink["id"] - 1}]


def test_explain_of_a_batch_has_no_changes_as_json() -> None:
    session = Session(options={"execution.runtime-mode": "batch"})
    shown = run_last(session, "EXPLAIN JSON_EXECUTION_PLAN VALUES (1)")
    assert isinstance(shown, Show)
    nodes = json.loads(shown.rows[0][0].partition("==\n")[2])["nodes"]
    assert [list(each) for each in nodes] == [
        ["id", "type", "pact", "contents"],
        ["id", "type", "pact", "contents", "predecessors"],
    ]


def test_a_statement_set_has_one_json_plan() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT); CREATE TABLE u (a INT); CREATE TABLE v (a INT)"))
    inserts = "INSERT INTO u SELECT a FROM t; INSERT INTO v SELECT a FROM t;"
    shown = run_last(session, f"EXPLAIN JSON_EXECUTION_PLAN STATEMENT SET BEGIN {inserts} END")
    assert isinstance(shown, Show)
    nodes = json.loads(shown.rows[0][0].partition("==\n")[2])["nodes"]
    assert [each["id"] for each in nodes] == list(range(1, len(nodes) + 1))
    assert [each["contents"] for each in nodes if each["pact"] == "Data Sink"] == [
        "Sink(table=[u], columns=[a])",
        "Sink(table=[v], columns=[a])",
    ]


def test_explain_of_create_table_as_creates_nothing() -> None:
    session = Session()
    list(session.run("CREATE TABLE t (a INT, b INT)"))
    create = "CREATE TABLE u (c INT) WITH ('connector' = 'print') AS SELECT a FROM t"
    plan = "Sink(table=[u], columns=[c, a]) [I]"
    for _ in range(2):
        shown = run_last(session, f"EXPLAIN {create}")
        assert isinstance(shown, Show)
        assert shown.rows[0][0].startswith(plan)
        assert session.explain(create) == shown.rows[0][0]
    assert run_last(session, "SHOW TABLES") == Show(columns=("table name",), rows=(("t",),))
    assert expect_error_code(session, "EXPLAIN CREATE TABLE u AS SELECT x FROM t") == "unknown-column"
    assert expect_error_code(session, "EXPLAIN CREATE TABLE t AS SELECT a FROM t") == "table-exists"
    list(session.run("CREATE TABLE u (a INT)"))
    assert isinstance(run_last(session, "EXPLAIN CREATE TABLE IF NOT EXISTS u AS SELECT a FROM t"), Show)
    assert run_last(session, "SHOW TABLES") == Show(columns=("table name",), rows=(("t",), ("u",)))


@pytest.mark.parametrize("text", ["SHOW TABLES", "SELECT 1; SELECT 2", "CREATE TABLE u (a INT)", ""])
def test_only_one_job_is_explained(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Session().explain(text)
    assert caught.value.code == "not-a-query"


# --- options --------------------------------------------------------------------------------------


def test_options_are_set_and_reset() -> None:
    notes: list[str] = []
    session = Session(
        options={"table.local-time-zone": "Europe/Berlin"}, variables={"mode": "batch"}, notes=notes.append
    )
    assert session.settings.local_time_zone == "Europe/Berlin"
    assert session.settings.streaming
    list(session.run("SET 'execution.runtime-mode' = '${mode}'; SET 'table.exec.source.idle-timeout' = '5 s';"))
    assert session.settings.runtime_mode == "batch"
    assert session.settings.idle_timeout_ms == 5000
    list(session.run("SET 'table.optimizer.agg-phase-strategy' = 'AUTO'; SET 'state.backend.type' = 'rocksdb'"))
    assert notes == [
        "`table.optimizer.agg-phase-strategy` has no effect: everfold plans aggregates differently",
        "`state.backend.type` has no effect: everfold keeps state in the job directory",
    ]
    shown = run_last(session, "SET")
    assert isinstance(shown, Show)
    assert ("execution.runtime-mode", "batch") in shown.rows
    list(session.run("RESET 'execution.runtime-mode'"))
    assert session.settings.streaming
    list(session.run("RESET"))
    assert session.settings == Settings({})


@pytest.mark.parametrize(
    ("sql", "code", "column", "words"),
    [
        ("SET 'table.exec.source.idle-timout' = '5 s'", "unknown-option", 5, "`table.exec.source.idle-timeout`"),
        ("SET 'table.exec.source.idle-timeout' = 'soon'", "wrong-option-value", 40, "`5 s`"),
        ("SET 'execution.runtime-mode' = 'automatic'", "wrong-option-value", 32, "`streaming` or `batch`"),
        ("SET 'table.local-time-zone' = 'Foo/Bar'", "wrong-option-value", 31, "Europe/Berlin"),
        ("SET 'everfold.null-rowtime' = 'maybe'", "wrong-option-value", 31, "`error` or `drop`"),
        ("SET 'parallelism.default' = '0'", "wrong-option-value", 29, "at least 1"),
        ("SET 'table.exec.emit.early-fire.enabled' = 'sometimes'", "wrong-option-value", 44, "`true` or `false`"),
        ("SET 'table.exec.sink.not-null-enforcer' = 'DROP'", "unsupported-option", 43, "fails on a NULL"),
        ("SET 'pipeline.name' = '${nobody}'", "unknown-variable", 23, "nobody"),
        ("RESET 'nope'", "unknown-option", 1, "`nope`"),
    ],
)
def test_wrong_options_are_refused(sql: str, code: str, column: int, words: str) -> None:
    with pytest.raises(SqlError) as caught:
        list(Session().run(sql))
    found = caught.value.diagnostics[0]
    assert found.span is not None
    assert (found.code, found.span.column) == (code, column), str(caught.value)
    assert words in f"{found.message} / {found.help}"


def test_all_wrong_options_of_a_command_are_reported() -> None:
    with pytest.raises(SqlError) as caught:
        Session(options={"nope": "1", "parallelism.default": "many", "pipeline.name": "x"})
    assert [found.code for found in caught.value.diagnostics] == ["unknown-option", "wrong-option-value"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5 s", 5000), ("10 min", 600_000), ("1 d", 86_400_000), ("500 ms", 500), ("500", 500), ("0", 0), ("2h", 7_200_000),
        ("3 minutes", 180_000), ("7 DAYS", 604_800_000), ("PT5S", 5000), ("P1DT2H", 93_600_000), ("PT1.5S", 1500), ("1500 us", 1),
    ],
)  # fmt: skip
def test_durations_are_parsed(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-1 s", "1.5 s", "PT", "P", "P1DT", "5 s 3 ms"])
def test_wrong_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("UTC", "UTC"),
        ("default", "UTC"),
        ("Asia/Shanghai", "Asia/Shanghai"),
        ("GMT+08:00", "Etc/GMT-8"),
        ("GMT-3", "Etc/GMT+3"),
        ("+00:00", "UTC"),
    ],
)
def test_time_zones_are_parsed(text: str, zone: str) -> None:
    assert parse_zone(text) == zone


@pytest.mark.parametrize("text", ["GMT+05:45", "GMT+19:00", "../etc/passwd", "", "Berlin"])
def test_wrong_time_zones_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|offset"):
        parse_zone(text)


@pytest.mark.parametrize("key", ["properties.sasl.jaas.config", "x.Password", "api-key", "oauth.token", "http-headers"])
def test_secret_options_are_recognized(key: str) -> None:
    assert is_secret(key)
    assert not is_secret("topic")


@pytest.mark.parametrize(
    ("sql", "column", "names"),
    [
        ("SHOW CATALOGS", "catalog name", ["default_catalog"]),
        ("SHOW CATALOGS LIKE 'x%'", "catalog name", []),
        ("SHOW CURRENT CATALOG", "current catalog name", ["default_catalog"]),
        ("SHOW DATABASES", "database name", ["default_database"]),
        ("SHOW DATABASES FROM default_catalog NOT LIKE 'default%'", "database name", []),
        ("SHOW DATABASES ILIKE '%DATABASE'", "database name", ["default_database"]),
        ("SHOW CURRENT DATABASE", "current database name", ["default_database"]),
    ],
)
def test_catalogs_and_databases_are_shown_as_in_flink(sql: str, column: str, names: list[str]) -> None:
    assert run_last(Session(), sql) == Show(columns=(column,), rows=tuple((name,) for name in names))


@pytest.mark.parametrize(
    "sql", ["USE CATALOG default_catalog", "USE default_database", "USE default_catalog.default_database"]
)
def test_use_accepts_what_exists(sql: str) -> None:
    assert isinstance(run_last(Session(), sql), Done)


@pytest.mark.parametrize("sql", ["USE CATALOG hive", "USE mydb", "USE hive.default_database", "SHOW DATABASES IN hive"])
def test_use_refuses_what_does_not_exist(sql: str) -> None:
    assert expect_error_code(Session(), sql) == "unknown-database"


@pytest.mark.parametrize("sql", ["SHOW JOBS", "STOP JOB 'a'", "DESCRIBE JOB 'a'"])
def test_statements_about_jobs_are_for_the_shell(sql: str) -> None:
    with pytest.raises(EverfoldError, match="is a statement of the shell") as caught:
        list(Session().run(sql))
    assert caught.value.code == "unsupported-statement"


def test_details_of_explain_without_meaning_give_a_note() -> None:
    notes: list[str] = []
    session = Session(notes=notes.append)
    plain = run_last(session, "EXPLAIN SELECT 1 AS a")
    assert run_last(session, "EXPLAIN ESTIMATED_COST, PLAN_ADVICE SELECT 1 AS a") == plain
    assert notes == [
        "EXPLAIN ESTIMATED_COST adds nothing to the plan: everfold plans without statistics",
        "EXPLAIN PLAN_ADVICE adds nothing to the plan: everfold gives no advice",
    ]
