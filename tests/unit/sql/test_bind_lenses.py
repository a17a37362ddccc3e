"""Binding Lenses SQL: which topics are written, their keys and storage formats, and the nodes of
plans.
"""

from __future__ import annotations

import pytest

from everfold.connectors.kafka.topic_table import convert_table
from everfold.connectors.registry import apply_connector
from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.emitted_changes import changelog_of
from everfold.plan.keys import unique_key
from everfold.plan.nodes import (
    ChangelogNormalize,
    Collect,
    GroupAggregate,
    Scan,
    Sink,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
)
from everfold.plan.walk import tables_of, walk_plan
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Submit

TOPICS = """
SET defaults.topic.autocreate = true;
CREATE TABLE input-topic(_key STRING, field1 INT, field2 STRING, flag BOOLEAN, code CHAR(3)) FORMAT (STRING, AVRO);
"""


def session(*scripts: str) -> tuple[Session, list[Sink]]:
    made = Session(options={"everfold.dialect": "lenses"})
    sinks: list[Sink] = []
    for script in scripts:
        for action in made.run(script):
            if isinstance(action, Submit):
                sinks += [root for root in action.roots if isinstance(root, Sink)]
    return made, sinks


def sink(query: str) -> Sink:
    _, (found,) = session(TOPICS, f"INSERT INTO target {query}")
    return found


@pytest.mark.parametrize(
    ("keys", "of", "stored"),
    [
        ("field1", "INT", "int"),
        ("field2", "STRING", "string"),
        ("UPPER(code)", "STRING", "string"),
        ("CASE WHEN field1 > 3 THEN 'hi' ELSE 'lo' END", "STRING", "string"),
        ("'all'", "STRING", "string"),
        ("flag AS flag", "ROW<`flag` BOOLEAN>", "avro"),
        ("field1 AS keep_me", "ROW<`keep_me` INT>", "avro"),
        ("field1, field2", "ROW<`field1` INT, `field2` STRING>", "avro"),
        ("CAST(field1 AS BIGINT)", "BIGINT", "long"),
    ],
)
def test_a_key_has_a_type_and_a_storage_format(keys: str, of: str, stored: str) -> None:
    found = sink(f"SELECT STREAM COUNT(*) AS records FROM input-topic GROUP BY {keys}")
    options = dict(found.table.options)
    assert found.table.schema[0].type.sql == of
    assert (options["key.format"], options["value.format"]) == (stored, "avro")
    assert found.table.primary_key == ("_key",)
    assert unique_key(found.input) == (0,)


def test_a_window_is_part_of_the_key() -> None:
    found = sink("SELECT STREAM COUNT(*) AS n FROM input-topic WINDOW BY SESSION 5m GROUP BY field2")
    assert found.table.schema[0].type.sql == (
        "ROW<`value` STRING, `window` ROW<`start` TIMESTAMP(3) NOT NULL, `end` TIMESTAMP(3) NOT NULL> NOT NULL>"
    )
    assert dict(found.table.options)["key.format"] == "avro"
    assert unique_key(found.input) == (0,)


def test_properties_of_the_topic_become_options() -> None:
    _, (found,) = session(
        TOPICS,
        "SET defaults.topic.partitions = 3; SET topic.target.partitions = 5; SET topic.target.cleanup.policy = compact;"
        "SET topic.other.retention.ms = 1;",
        "INSERT INTO target COUNT(*) AS n FROM input-topic GROUP BY field1",
    )
    options = {key: value for key, value in found.table.options if key.startswith("create")}
    assert options == {"create": "true", "create.partitions": "5", "create.cleanup.policy": "compact"}


def test_a_topic_has_the_configured_brokers() -> None:
    _, (found,) = session(
        "SET defaults.topic.properties.bootstrap.servers = 'host:9092'; SET topic.target.properties.acks = all;",
        "SET defaults.topic.scan.startup.mode = latest-offset; SET topic.input-topic.scan.startup.mode = earliest-offset;",
        TOPICS,
        "INSERT INTO target SELECT TABLE COUNT(*) AS n FROM input-topic GROUP BY field1",
    )
    assert found.table.connector == "topic"
    assert dict(found.table.options)["properties.acks"] == "all"
    made = convert_table(found.table)
    assert (made.connector.name, made.table.primary_key) == ("upsert-kafka", ("_key",))
    (read,) = tables_of(walk_plan(found.input))
    made = convert_table(read)
    assert made.connector.name == "upsert-kafka"
    assert made.table.schema.names[: len(made.table.primary_key)] == made.table.primary_key
    assert {name for name in dict(made.table.options) if name.startswith("scan")} == set()


def test_an_insert_reads_the_topic_of_an_earlier_insert() -> None:
    made, (first, second) = session(
        TOPICS,
        """INSERT INTO by-field SELECT STREAM SUM(field1) AS total FROM input-topic GROUP BY field2 AS f;
        INSERT INTO totals SELECT TABLE COUNT(*) AS n FROM by-field WHERE total > 3 GROUP BY _key.f;""",
    )
    assert first.table.name == "by-field"
    assert isinstance(made.catalog.find(("by-field",)), CatalogTable)
    nodes = list(walk_plan(second.input))
    assert any(isinstance(each, ChangelogNormalize) for each in nodes)
    assert [each.table.name for each in nodes if isinstance(each, Scan)] == ["by-field"]


def test_a_stream_reads_inserts_and_a_table_reads_upserts() -> None:
    stream = sink("SELECT STREAM COUNT(*) AS n FROM input-topic GROUP BY field1")
    table = sink("SELECT TABLE COUNT(*) AS n FROM input-topic GROUP BY field1")
    (of_stream,) = (each for each in walk_plan(stream.input) if isinstance(each, GroupAggregate))
    (of_table,) = (each for each in walk_plan(table.input) if isinstance(each, GroupAggregate))
    assert changelog_of(of_stream.input) is ChangelogMode.INSERT_ONLY
    assert isinstance(of_table.input, ChangelogNormalize)
    assert changelog_of(of_table.input.input) is ChangelogMode.UPSERT


def test_windows_emit_each_change_and_wait_for_late_records() -> None:
    found = sink("SELECT STREAM COUNT(*) AS n FROM input-topic WINDOW BY TUMBLE 1h GRACE BY 10m GROUP BY field1")
    (emit,) = (each for each in walk_plan(found.input) if isinstance(each, WindowEmit))
    assert (emit.early_ms, emit.late_ms, emit.window.lateness_ms) == (0, 0, 600_000)
    assert any(isinstance(each, WatermarkAssigner) for each in walk_plan(found.input))


def test_a_window_in_batch_emits_its_result_once() -> None:
    made = Session(options={"everfold.dialect": "lenses", "execution.runtime-mode": "batch"})
    *_, action = made.run(
        TOPICS + "INSERT INTO t SELECT STREAM COUNT(*) AS n FROM input-topic WINDOW BY TUMBLE 1h GROUP BY field1"
    )
    assert isinstance(action, Submit)
    assert any(isinstance(each, WindowAggregate) for each in walk_plan(action.roots[0].input))


def test_rows_without_an_order_are_no_table_in_batch() -> None:
    made = Session(options={"everfold.dialect": "lenses", "execution.runtime-mode": "batch"})
    script = """
        SET everfold.dialect = flink;
        CREATE TEMPORARY VIEW pairs AS SELECT a._key, a.field1 FROM `input-topic` AS a JOIN `input-topic` AS b ON a.field1 = b.field1;
        SET 'everfold.dialect' = 'lenses';
        WITH named AS (SELECT STREAM * FROM pairs);
        INSERT INTO t SELECT TABLE COUNT(*) AS n FROM named GROUP BY field1;
    """
    with pytest.raises(UnsupportedFeature, match="it is not known which row of a key is the last one") as caught:
        list(made.run(TOPICS + script))
    assert caught.value.code == "table-in-batch"


def test_flink_sql_reads_names_defined_in_lenses_sql() -> None:
    made, _ = session(TOPICS, "WITH counted AS (SELECT STREAM COUNT(*) AS n FROM input-topic GROUP BY field1);")
    actions = list(made.run("SET everfold.dialect = flink; SELECT _key, n + 1 AS more FROM counted;"))
    (submit,) = (each for each in actions if isinstance(each, Submit))
    (root,) = submit.roots
    assert isinstance(root, Collect)
    assert root.schema.names == ("_key", "more")


def test_a_topic_is_in_the_catalog() -> None:
    made, _ = session(TOPICS)
    assert "input-topic" in [entry.name for entry in made.catalog.entries()]


@pytest.mark.parametrize(
    ("text", "line", "marked"),
    [
        ("SELECT STREAM\n COUNT(*) AS _key.a\nFROM input-topic GROUP BY field1", 2, "_key.a"),
        ("SELECT STREAM COUNT(_key) AS n\nFROM input-topic GROUP BY field1", 1, "_key"),
        ("SELECT TABLE COUNT(*) AS n FROM input-topic\nWINDOW BY TUMBLE 1h GROUP BY field1", 2, "WINDOW BY TUMBLE 1h"),
        ("SELECT TABLE TOPK(field1) AS n FROM input-topic GROUP BY field1", 1, "TOPK(field1)"),
        ("SELECT STREAM COUNT(*) AS n FROM input-topic GROUP BY field1\nHAVING field1 > 2", 2, "field1"),
        ("INSERT INTO t SELECT STREAM COUNT(*) AS n\nFROM input-topic GROUP BY flag", 2, "flag"),
        (
            "INSERT INTO t SELECT STREAM\nLAST(flag) AS _value FROM input-topic GROUP BY field1",
            2,
            "LAST(flag) AS _value",
        ),
    ],
)
def test_an_error_has_a_position_and_a_suggestion(text: str, line: int, marked: str) -> None:
    with pytest.raises(SqlError) as caught:
        session(TOPICS, text)
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert found.help
    assert found.span.line == line
    assert found.span.text[found.span.start : found.span.end] == marked


@pytest.mark.parametrize("form", ["debezium-json", "canal-json"])
def test_changes_are_read_as_a_table_only(form: str) -> None:
    table = (
        "CREATE TABLE t (_key STRING, n INT) WITH ('connector' = 'filesystem', 'path' = 't', 'format' = '{}');"
        "SET 'everfold.dialect' = 'lenses';"
    ).replace("{}", form)
    session_with_connectors = Session(connected=apply_connector)
    with pytest.raises(SqlError, match="table-as-stream"):
        list(session_with_connectors.run(f"{table} SELECT STREAM COUNT(*) AS c FROM t GROUP BY _key"))
    for kind in ("TABLE", ""):
        *_, submit = Session(connected=apply_connector).run(f"{table} SELECT {kind} COUNT(*) AS c FROM t GROUP BY _key")
        assert isinstance(submit, Submit)
        assert any(isinstance(node, ChangelogNormalize) for node in walk_plan(submit.roots[0].input))
