"""What the shell completes."""

from __future__ import annotations

import pytest
from shell_screen import open_session

from everfold.completion.engine import Candidate
from everfold.shell.commands import list_commands
from everfold.shell.completion import Completer

TABLES = """
CREATE TABLE orders (id BIGINT, price INT, `group` STRING, ts TIMESTAMP(3)) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE items (item STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE VIEW cheap AS SELECT id FROM orders WHERE price < 5;
"""


@pytest.fixture(scope="module")
def completer(tmp_path_factory: pytest.TempPathFactory) -> Completer:
    folder = tmp_path_factory.mktemp("shell")
    (folder / "tables.sql").write_text("")
    session, screen = open_session(folder)
    assert session.run(TABLES), screen.errors
    return Completer(session, list_commands)


def complete(completer: Completer, text: str) -> list[str]:
    """Return the completions at the `|` of a text."""
    before, _, after = text.partition("|")
    return [each.text for each in completer.complete(before, after)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SEL|", ["SELECT"]),
        ("sho|", ["SHOW TABLES", "SHOW VIEWS", "SHOW FUNCTIONS", "SHOW JOBS"]),
        ("SELECT 1; desc|", ["DESCRIBE", "DESCRIBE JOB"]),
        ("SHOW c|", ["CATALOGS", "COLUMNS FROM", "CREATE TABLE"]),
        ("SELECT * FROM |", ["orders", "items", "cheap", "TUMBLE("]),
        ("SELECT * FROM ord|", ["orders"]),
        ("SELECT * FROM orders JOIN i|", ["items"]),
        ("DESCRIBE ch|", ["cheap"]),
        ("SELECT pr| FROM orders", ["price"]),
        ("SELECT gr| FROM orders", ["GROUP"]),
        ("SELECT o.p| FROM orders AS o", ["price"]),
        ("SELECT o.| FROM orders o", ["id", "price", "`group`", "ts"]),
        ("SELECT COUN|", ["COUNT("]),
        ("SELECT json_v|", ["JSON_VALUE("]),
        ("SELECT id FROM orders WHE|", ["WHERE"]),
        ("SELECT CAST(id AS STR|", ["STRING"]),
        ("USE def|", ["default_catalog", "default_database"]),
        ("SET 'everfold.eng|", ["everfold.engine"]),
        ("SET 'everfold.engine' = '|", ["spark", "memory"]),
        ("SET 'table.exec.mini-batch.enabled' = '|", ["true", "false"]),
        ("CREATE TABLE t (a INT) WITH ('|", ["connector"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = '|", ["filesystem", "kafka", "jdbc"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'scan.st|", ["scan.startup.mode"]),
        (
            "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'scan.startup.mode' = '|",
            ["earliest-offset", "latest-offset"],
        ),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'format' = '|", ["json", "csv", "parquet"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'csv.f|", ["csv.field-delimiter"]),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'print', 'standard-error' = '|", ["true", "false"]),
        ("SELECT * FROM orders /*+ OPTIONS('|", ["connector"]),
        ("\\e|", ["\\engine"]),
        ("\\d it|", ["items"]),
        ("\\engine |", ["auto", "memory", "spark"]),
        ("\\i ta|", ["tables.sql"]),
        ("\\x o|", ["on", "off"]),
    ],
)
def test_completions_contain(completer: Completer, text: str, wanted: list[str]) -> None:
    found = complete(completer, text)
    assert [each for each in wanted if each not in found] == []


@pytest.mark.parametrize(
    ("text", "unwanted"),
    [
        ("SELECT * FROM |", "SELECT"),
        ("SELECT | FROM orders", "item"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka', '|", "connector"),
        ("SELECT 'SEL|", "SELECT"),
        ("SELECT -- SEL|", "SELECT"),
    ],
)
def test_completions_do_not_contain(completer: Completer, text: str, unwanted: str) -> None:
    assert unwanted not in complete(completer, text)


def test_columns_come_first_and_say_their_type(completer: Completer) -> None:
    first = completer.complete("SELECT p", " FROM orders")[0]
    assert first == Candidate("price", 1, "column", "orders INT")


def test_every_option_of_a_session_is_completed(completer: Completer) -> None:
    from everfold.sql.settings import OPTIONS

    assert set(complete(completer, "SET '|")) == set(OPTIONS)


def test_a_candidate_replaces_what_is_typed(completer: Completer) -> None:
    (found,) = completer.complete("SET 'everfold.en")
    assert (found.text, found.length) == ("everfold.engine", len("everfold.en"))
