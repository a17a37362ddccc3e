"""Translating scripts to the other dialect: each translation is proven to have the same plan, or
refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everfold.connectors.registry import apply_connector
from everfold.errors import EverfoldError, UnsupportedFeature
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit
from everfold.sql.translation import prove, to_flink, to_lenses
from everfold.testing.casefile import Case, find_case_files, load

CASES = Path(__file__).parents[2] / "cases" / "lenses"
ALL = [case for path in find_case_files([CASES]) for case in load(path).cases if path.stem != "dialects.case"]
BROKERS = {"defaults.topic.properties.bootstrap.servers": "localhost:9092"}
SESSIONS = "CREATE TABLE gaming-sessions(_key STRING, points INT, country STRING) FORMAT (STRING, JSON);"
TOPICS = """
CREATE TABLE `gaming-sessions` (`_key` STRING, points INT, country STRING)
WITH ('connector' = 'topic', 'key.format' = 'string', 'value.format' = 'json', 'properties.bootstrap.servers' = 'localhost:9092');
CREATE TABLE target (`_key` STRING, total INT, top INT, PRIMARY KEY (`_key`) NOT ENFORCED)
WITH ('connector' = 'topic', 'key.format' = 'string', 'value.format' = 'json', 'properties.bootstrap.servers' = 'localhost:9092');
CREATE TABLE sums (country STRING, total INT, PRIMARY KEY (country) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://localhost/db', 'table-name' = 'sums');
CREATE TABLE timed (country STRING, points INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'timed', 'format' = 'json');
CREATE TABLE hours (country STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, PRIMARY KEY (country, window_start, window_end) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://localhost/db', 'table-name' = 'hours');
"""


def session(dialect: str, **options: str) -> Session:
    return Session({"everfold.dialect": dialect, **BROKERS, **options}, connected=apply_connector)


def roots(text: str) -> list[Root]:
    return [root for each in session("flink").run(text) if isinstance(each, Submit) for root in each.roots]


def script(case: Case) -> str:
    step = case.steps[0]
    options = [f"SET '{key}' = '{value}'" for key, value in step.options.items()]
    # A case's table replaces the suite's table with the same name.
    declarations = (each.strip() for block in step.tables for each in block.text.split(";"))
    tables = {each.partition("(")[0]: each for each in declarations if each}
    return ";\n".join([*options, *tables.values(), step.sql.text])


def test_every_case_is_translated_and_back_or_refused() -> None:
    """Every case of Lenses SQL is proven, or refused because Flink SQL cannot express it.

    Proven cases are translated back, too.
    """
    proven: list[str] = []
    refused_codes: list[str] = []
    for case in ALL:
        if any(step.error for step in case.steps):
            continue
        try:
            text, submits = to_flink(script(case), case.name, session("lenses"))
        except UnsupportedFeature as refused:
            refused_codes.append(refused.code)
            continue
        prove([root for each in submits for root in each.roots], roots(text))
        proven.append(case.name)
        text, submits = to_lenses(text, case.name, session("flink"))
        prove([root for each in submits for root in each.roots], roots(text))
    assert set(refused_codes) == {"not-in-flink"}
    assert len(proven) >= 60


def translate_to_flink(sql: str) -> str:
    text, submits = to_flink(SESSIONS + sql, "script.sql", session("lenses", **{"defaults.topic.autocreate": "true"}))
    prove([root for each in submits for root in each.roots], roots(text))
    return text


def test_functions_and_names_are_translated() -> None:
    text = translate_to_flink(
        "INSERT INTO t SELECT STREAM FIRST(points) AS f, MAXK(points, 1) AS top, SUM(MAX(points, 4)) AS m FROM gaming-sessions AS g "
        "WHERE g._key <> 'x' AND _meta.partition = 0 GROUP BY g._value.country HAVING top > 3"
    )
    for words in (
        "FIRST_VALUE(`points`) AS `f`", "MAX(`points`) AS `top`", "SUM(GREATEST(`points`, 4)) AS `m`", "`_key` <> 'x' AND `_meta.partition` = 0",
        "GROUP BY `country`\nHAVING MAX(`points`) > 3",
    ):  # fmt: skip
        assert words in text


def test_a_topic_read_in_two_ways_becomes_two_tables() -> None:
    text = translate_to_flink(
        "INSERT INTO a SELECT STREAM COUNT(*) AS n FROM gaming-sessions GROUP BY country;"
        "INSERT INTO b SELECT TABLE COUNT(*) AS n FROM gaming-sessions GROUP BY country;"
    )
    assert "CREATE TABLE `gaming-sessions-2`" in text
    assert "'topic' = 'gaming-sessions'" in text


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT STREAM MAXK(points, 2) AS top FROM gaming-sessions GROUP BY country",
        "SELECT STREAM COLLECT(points) AS all_of_them FROM gaming-sessions GROUP BY country",
        "SELECT STREAM TOPK(points) AS often FROM gaming-sessions GROUP BY country",
        "SELECT STREAM LAST(_value) AS latest FROM gaming-sessions GROUP BY country",
    ],
)
def test_what_flink_cannot_express_is_refused(sql: str) -> None:
    with pytest.raises(EverfoldError) as refused:
        translate_to_flink("INSERT INTO t " + sql)
    assert refused.value.code == "not-in-flink"


HOURS = (
    "INSERT INTO hours SELECT country, TUMBLE_START(ts, INTERVAL '90' MINUTE), TUMBLE_END(ts, INTERVAL '90' MINUTE), COUNT(*) FROM timed "
    "GROUP BY country, TUMBLE(ts, INTERVAL '90' MINUTE)"
)
EACH_CHANGE = "SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '0 ms'; SET 'table.local-time-zone' = 'UTC';"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "INSERT INTO target SELECT country, SUM(points), MAX(points) FROM `gaming-sessions` WHERE `_key` <> 'x' GROUP BY country",
            "SELECT STREAM SUM(`points`) AS `total`, MAXK(`points`) AS `top`\nFROM `gaming-sessions`\nWHERE `gaming-sessions`.`_key` <> 'x'\nGROUP BY `country`",
        ),
        (
            "INSERT INTO sums SELECT s.country, SUM(s.points) FROM `gaming-sessions` AS s GROUP BY s.country HAVING SUM(s.points) > 3",
            "SELECT STREAM `s`.`country` AS `country`, SUM(`s`.`points`) AS `total`\nFROM `gaming-sessions` AS `s`\nGROUP BY `s`.`country`\nHAVING `total` > 3",
        ),
        (
            "CREATE VIEW good (c, p) AS SELECT country, points FROM `gaming-sessions` WHERE points > 3; INSERT INTO sums SELECT c, SUM(p) FROM good GROUP BY c",
            "WITH `good` AS (\nSELECT STREAM `country` AS `c`, `points` AS `p`\nFROM `gaming-sessions`\nWHERE `points` > 3\n)",
        ),
        (
            EACH_CHANGE + HOURS,
            "SELECT STREAM `country` AS `country`, COUNT(*) AS `n`\nFROM `timed`\nWINDOW BY TUMBLE 90m\nGROUP BY `country`",
        ),
    ],
)
def test_flink_sql_is_translated_to_lenses_sql(sql: str, expected: str) -> None:
    text, submits = to_lenses(TOPICS + sql, "script.sql", session("flink"))
    assert expected in text
    prove([root for each in submits for root in each.roots], roots(text))


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO sums SELECT country, SUM(DISTINCT points) FROM `gaming-sessions` GROUP BY country",
        "INSERT INTO sums SELECT country, SUM(points) FROM `gaming-sessions` GROUP BY country HAVING MAX(points) > 3",
        "INSERT INTO sums SELECT country, SUM(points) FROM (SELECT * FROM `gaming-sessions`) GROUP BY country",
        "SELECT country, SUM(points) FROM `gaming-sessions` GROUP BY country",
        "INSERT INTO target SELECT UPPER(country), SUM(points), 1 FROM `gaming-sessions` GROUP BY country",
        HOURS,
    ],
)
def test_what_lenses_cannot_express_is_refused(sql: str) -> None:
    with pytest.raises(EverfoldError) as refused:
        to_lenses(TOPICS + sql, "script.sql", session("flink"))
    assert refused.value.code == "not-in-lenses"


def test_a_different_plan_is_not_a_translation() -> None:
    one, other = (
        roots(f"{TOPICS} INSERT INTO sums SELECT country, {call} FROM `gaming-sessions` GROUP BY country")
        for call in ("SUM(points)", "MAX(points)")
    )
    prove(one, one)
    with pytest.raises(UnsupportedFeature, match="a different plan"):
        prove(one, other)


SWITCHING = f"""
SET 'everfold.dialect' = 'lenses';
{SESSIONS}
SET defaults.topic.autocreate = true;
INSERT INTO totals SELECT STREAM SUM(points) AS total FROM gaming-sessions GROUP BY country;
SET 'everfold.dialect' = 'flink';
CREATE TABLE highest (points INT) WITH ('connector' = 'print');
INSERT INTO highest SELECT MAX(points) FROM `gaming-sessions`;
"""


def test_a_script_that_changes_its_dialect_is_translated_as_a_whole() -> None:
    text, submits = to_flink(SWITCHING, "script.sql", session("flink"))
    assert "everfold.dialect" not in text
    assert "INSERT INTO highest SELECT MAX(points) FROM `gaming-sessions`" in text
    assert text.count("CREATE TABLE `gaming-sessions`") == 1
    prove([root for each in submits for root in each.roots], roots(text))


def test_statements_in_the_new_dialect_are_unchanged() -> None:
    switching = SWITCHING.replace("highest SELECT MAX(points)", "highest SELECT points")
    text, submits = to_lenses(switching, "script.sql", session("flink"))
    assert "INSERT INTO totals SELECT STREAM SUM(points) AS total FROM gaming-sessions GROUP BY country;" in text
    assert "INSERT INTO `highest`\nSELECT STREAM `points` AS `points`\nFROM `gaming-sessions`;" in text
    prove([root for each in submits for root in each.roots], roots(text))


def test_a_translation_to_lenses_is_translated_back_into_flink() -> None:
    flink = TOPICS + "INSERT INTO sums SELECT country, SUM(points) FROM `gaming-sessions` GROUP BY country"
    mixed, _ = to_lenses(flink, "script.sql", session("flink"))
    back, submits = to_flink(mixed, "script.sql", session("flink"))
    assert back.count("CREATE TABLE `gaming-sessions`") == 1
    prove([root for each in submits for root in each.roots], roots(flink))
    prove(roots(flink), roots(back))
