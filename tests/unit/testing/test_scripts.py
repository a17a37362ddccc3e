"""Cases whose statements are those of a script: its tables are stand-ins, fed from the rows of the case."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from everfold.errors import UsageError
from everfold.testing.casefile import load
from everfold.testing.engines import MemoryEngine
from everfold.testing.runner import run_file

TABLES = """\
CREATE TABLE orders (customer STRING, amount INT) WITH (
  'connector' = 'kafka', 'topic' = '${env:TOPIC}', 'properties.bootstrap.servers' = '${brokers}', 'format' = 'json');
CREATE TABLE spending (customer STRING, total INT, PRIMARY KEY (customer) NOT ENFORCED) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'spending');
"""
SUM = "INSERT INTO spending SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer;\n"
SPENDING = """
script: jobs/spending.sql
rows:
  orders: |
    customer | amount
    ann      | 5
    ann      | 4
    bob      | 7
cases:
  - name: total of each customer
    expect: |
      customer | total
      ann      | 9
      bob      | 7
"""


def write(folder: Path, case: str, **scripts: str) -> Path:
    """Write a case file next to the folder of scripts."""
    (folder / "jobs").mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / "jobs" / f"{name}.sql").write_text(text)
    file = folder / "some.case.yaml"
    file.write_text(dedent(case))
    return file


def messages(file: Path) -> list[str]:
    """Return what is wrong with each case in each of its modes."""
    return [outcome.message for outcome in run_file(load(file), [MemoryEngine()])]


def test_the_query_of_the_script_is_compared(tmp_path: Path) -> None:
    file = write(tmp_path, SPENDING, spending=TABLES + SUM)
    assert messages(file) == [""]
    write(tmp_path, SPENDING, spending=TABLES + SUM.replace("SUM(", "MAX("))
    [message] = messages(file)
    assert "- ann      | 9" in message


def test_a_case_and_a_step_can_have_their_own_scripts(tmp_path: Path) -> None:
    """Two versions of a script are tested with a restart between them."""
    case = """
    cases:
      - name: one more aggregate
        steps:
          - script: jobs/old.sql
            rows:
              orders: |
                customer | amount
                ann      | 5
          - script: jobs/new.sql
            on_change: accept
            rows:
              orders: |
                customer | amount
                ann      | 1
            changelog: |
              op | customer | total | n
              -U | ann      | 5     | NULL
              +U | ann      | 6     | 1
      - name: a query of the case
        tables: CREATE TABLE t (a INT);
        sql: SELECT a FROM t
        expect: |
          a
    """
    new = (TABLES + SUM).replace("total INT", "total INT, n BIGINT").replace("AS total", "AS total, COUNT(*) AS n")
    assert messages(write(tmp_path, case, old=TABLES + SUM, new=new)) == ["", ""]


def test_the_result_is_chosen_among_several_inserts(tmp_path: Path) -> None:
    largest = """
    CREATE TABLE largest (customer STRING, amount INT) WITH ('connector' = 'print');
    EXECUTE STATEMENT SET BEGIN
      INSERT INTO spending SELECT customer, SUM(amount) FROM orders GROUP BY customer;
      INSERT INTO largest SELECT customer, amount FROM orders WHERE amount > 4;
    END;
    """
    case = SPENDING.replace("    expect", "    result: spending\n    expect")
    case += (
        "  - name: large\n    result: largest\n    expect: |\n      customer | amount\n      ann | 5\n      bob | 7\n"
    )
    file = write(tmp_path, case, spending=TABLES + largest)
    assert messages(file) == ["", ""]
    write(tmp_path, SPENDING)
    [message] = messages(file)
    assert "`script` must have exactly one query, but has 2" in message
    assert "result: largest" in message
    write(tmp_path, case.replace("result: largest", "result: lagest"))
    assert "`result` is `lagest`, but no statements insert into it" in messages(file)[1]


def test_a_table_of_the_case_takes_the_place_of_that_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("ann,Ann\nbob,Bob\n")
    names = "CREATE TABLE names (customer STRING, name STRING) WITH ({});\n"
    jdbc = "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'names'"
    files = "'connector' = 'filesystem', 'path' = 'names.csv', 'format' = 'csv'"
    query = "SELECT o.amount, n.name FROM orders AS o JOIN names AS n ON o.customer = n.customer;"
    case = f"""
    tables: |
      {names.format(files)}
    script: jobs/named.sql
    rows:
      orders: |
        customer | amount
        ann      | 5
    cases:
      - name: names from a file
        modes: [stream, batch]
        expect: |
          amount | name
          5      | Ann
    """
    assert messages(write(tmp_path, case, named=TABLES + names.format(jdbc) + query)) == ["", ""]


def test_what_a_connector_declares_about_the_rows_counts(tmp_path: Path) -> None:
    changes = TABLES.replace("'format' = 'json'", "'format' = 'debezium-json'")
    rows = SPENDING.replace("customer | amount", "op | customer | amount").replace("\n    ann ", "\n    +I | ann ")
    rows = rows.replace("\n    bob ", "\n    -D | ann ").replace("| 7\n", "| 4\n", 1).replace("| 9", "| 5")
    rows = rows.replace("      bob      | 7\n", "")
    assert messages(write(tmp_path, rows, spending=changes + SUM)) == [""]
    [message] = messages(write(tmp_path, rows, spending=TABLES + SUM))
    assert "table `orders` (connector `kafka`) emits no `-D` rows" in message
    joined = (
        "INSERT INTO spending SELECT o.customer, o.amount FROM orders AS o JOIN names ON o.customer = names.customer;"
    )
    unbounded = (
        "CREATE TABLE names (customer STRING) WITH ('connector' = 'kafka', 'topic' = 'n', 'format' = 'json',"
        " 'properties.bootstrap.servers' = 'b:9092', 'scan.startup.mode' = 'earliest-offset');\n"
    )
    [message] = messages(write(tmp_path, SPENDING, spending=TABLES + unbounded + joined))
    assert "error[streaming-join]" in message


def test_options_of_the_case_take_precedence_over_those_of_the_script(tmp_path: Path) -> None:
    query = (
        "SET 'table.local-time-zone' = 'Asia/Tokyo';\nSELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING) AS t FROM orders;"
    )
    case = """
    script: jobs/zone.sql
    rows: {orders: "customer | amount\\nann | 5\\n"}
    cases:
      - {name: of the script, expect: "t\\n1970-01-01 09:00:00.000\\n"}
      - {name: of the case, options: {table.local-time-zone: Europe/Berlin}, expect: "t\\n1970-01-01 01:00:00.000\\n"}
      - {name: reset, options: {table.local-time-zone: Europe/Berlin}, script: jobs/reset.sql, expect: "t\\n1970-01-01 01:00:00.000\\n"}
    """
    reset = TABLES + "RESET;\n" + query.partition("\n")[2]
    assert messages(write(tmp_path, case, zone=TABLES + query, reset=reset)) == ["", "", ""]


def test_a_script_in_another_mode_is_refused(tmp_path: Path) -> None:
    script = "SET 'execution.runtime-mode' = 'batch';\n" + TABLES + SUM
    file = write(tmp_path, SPENDING, spending=script)
    [message] = messages(file)
    assert "the script sets 'execution.runtime-mode' = 'batch', but the case runs in mode streaming" in message
    assert "set modes: [batch]" in message
    assert messages(write(tmp_path, SPENDING.replace("cases:", "modes: [batch]\ncases:"))) == [""]


def test_functions_are_those_next_to_the_script(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        SPENDING,
        spending="CREATE FUNCTION once AS 'shop.once' LANGUAGE PYTHON;\n"
        + TABLES
        + SUM.replace("amount", "once(amount)"),
    )
    source = (
        'from everfold.udf import udf\n\n@udf(input_types=["INT"], result_type="INT")\ndef once(x):\n    return x\n'
    )
    (tmp_path / "jobs" / "shop.py").write_text(source)
    assert messages(file) == [""]


def test_lenses_sql_is_tested_too(tmp_path: Path) -> None:
    script = """
    SET defaults.topic.properties.bootstrap.servers = 'b:9092';
    SET defaults.topic.autocreate = true;
    CREATE TABLE orders(_key STRING, amount INT) FORMAT (STRING, JSON);
    INSERT INTO totals SELECT TABLE SUM(amount) AS total FROM orders GROUP BY orders._key AS customer;
    """
    case = """
    options: {everfold.dialect: lenses}
    cases:
      - name: totals
        script: jobs/totals.sql
        rows:
          orders: |
            _key | amount
            ann  | 5
        expect: |
          _key                | total
          {"customer": "ann"} | 5
    """
    [message] = messages(write(tmp_path, case, totals=script))
    assert message == ""


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (SPENDING.replace("jobs/spending", "jobs/nowhere"), "nowhere.sql` cannot be read: No such file or directory"),
        (SPENDING.replace("script: jobs/spending.sql\n", ""), "`sql` is missing"),
        (
            SPENDING.replace("    expect", "    script: jobs/spending.sql\n    sql: SELECT 1\n    expect"),
            "either `sql` or `script`",
        ),
    ],
)
def test_an_error_in_the_file_shows_its_line(case: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bad-case-file") as caught:
        load(write(tmp_path, case, spending=TABLES + SUM))
    assert words in str(caught.value)


def test_an_error_in_the_script_shows_its_position(tmp_path: Path) -> None:
    file = write(tmp_path, SPENDING, spending=TABLES + SUM.replace("amount", "amont"))
    [message] = messages(file)
    assert "error[unknown-column]" in message
    assert f"{tmp_path / 'jobs' / 'spending.sql'}:5:" in message
    file = write(tmp_path, SPENDING.replace("orders: |", "ordres: |"), spending=TABLES + SUM)
    assert "`rows` has a table `ordres`, but no CREATE TABLE defines it" in messages(file)[0]
