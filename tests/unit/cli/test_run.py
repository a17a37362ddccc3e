"""`everfold run` and `explain` with the in-process engine, as a user starts them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everfold.cli.main import everfold
from everfold.errors import EverfoldError

BIDS = """\
{"bidtime": "2020-04-15 08:05:00", "price": 4.00, "supplier_id": "supplier1"}
{"bidtime": "2020-04-15 08:07:00", "price": 2.00, "supplier_id": "supplier1"}
{"bidtime": "2020-04-15 08:09:00", "price": 5.00, "supplier_id": null}
{"bidtime": "2020-04-15 08:11:00", "price": 3.00, "supplier_id": "supplier2"}
"""
TABLE = """\
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${folder}', 'format' = 'json');
"""
QUERY = """\
SELECT window_start, SUM(price) AS total_price
FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)
GROUP BY window_start, window_end;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Create a script next to a directory of bids."""
    (tmp_path / "bids").mkdir()
    (tmp_path / "bids" / "part.json").write_text(BIDS)
    made = tmp_path / "totals.sql"
    made.write_text(TABLE + QUERY)
    return made


def run(*arguments: str, command: str = "run", stdin: str | None = None) -> Result:
    engine = ["--engine", "memory"] if command == "run" else []
    return CliRunner().invoke(everfold, [command, *arguments, "--var", "folder=bids", *engine], input=stdin)


def error_of(result: Result) -> EverfoldError:
    assert isinstance(result.exception, EverfoldError), result.output
    return result.exception


def test_a_query_is_printed_as_a_table(script: Path) -> None:
    result = run(str(script))
    assert result.exception is None
    assert result.stdout == (
        "+-------------------------+-------------+\n"
        "|            window_start | total_price |\n"
        "+-------------------------+-------------+\n"
        "| 2020-04-15 08:00:00.000 |       11.00 |\n"
        "| 2020-04-15 08:10:00.000 |        3.00 |\n"
        "+-------------------------+-------------+\n"
        "2 rows in set\n"
    )


@pytest.mark.parametrize("batch", [[], ["--batch"]])
def test_json_output_has_one_object_per_row(script: Path, batch: list[str]) -> None:
    result = run(str(script), "--format", "json", *batch)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"window_start": "2020-04-15 08:00:00.000", "total_price": 11.0},
        {"window_start": "2020-04-15 08:10:00.000", "total_price": 3.0},
    ]


def test_a_script_is_read_from_standard_input_or_an_option() -> None:
    expected = "+---+\n| a |\n+---+\n| 1 |\n+---+\n1 row in set\n"
    assert run("-", stdin="SELECT 1 AS a;").stdout == expected
    assert run("-e", "SELECT 1 AS a").stdout == expected


def test_options_come_from_the_command_line(script: Path) -> None:
    result = run(
        "-e",
        "SET",
        "--conf",
        "table.local-time-zone=Asia/Shanghai",
        "--conf",
        "spark.ui.enabled=true",
        "--format",
        "json",
    )
    assert {"key": "table.local-time-zone", "value": "Asia/Shanghai"} in [
        json.loads(line) for line in result.stdout.splitlines()
    ]
    assert "spark.ui" not in result.stdout
    error = error_of(run(str(script), "--conf", "table.local-timezone=UTC"))
    assert (error.code, error.exit_code) == ("unknown-option", 2)


def test_rows_go_into_a_table(script: Path) -> None:
    sql = TABLE + "CREATE TABLE out (t DECIMAL(38, 2)) WITH ('connector' = 'print', 'print-identifier' = 'total');\n"
    script.write_text(sql + "INSERT INTO out SELECT total_price FROM (" + QUERY.rstrip(";\n") + ")")
    result = run(str(script))
    assert result.exception is None
    assert "total" in result.stdout + result.stderr
    assert "out: finished; 4 rows in, 2 rows out" in result.stderr


@pytest.mark.parametrize("mode", [[], ["--batch"]])
def test_a_folder_without_files_has_no_rows(script: Path, mode: list[str]) -> None:
    (script.parent / "bids" / "part.json").unlink()
    result = run(str(script), "--format", "json", *mode)
    assert (result.exit_code, result.stdout) == (0, "")
    script.write_text(f"{TABLE}SELECT v, price FROM (VALUES ('x')) AS s(v) LEFT JOIN Bid ON v = supplier_id;")
    result = run(str(script), "--format", "json", *mode)
    assert json.loads(result.stdout) == {"v": "x", "price": None}


@pytest.mark.parametrize(
    ("sql", "code", "exit_code"),
    [
        ("SELECT nothing FROM Bid", "unknown-column", 2),
        ("SELECT price FROM Bids", "unknown-table", 2),
        ("SELECT price FROM", "syntax", 2),
        ("SELECT price FROM Bid ORDER BY price", "streaming-order-by", 2),
        ("SELECT CAST(supplier_id AS INT) FROM Bid", "cast-failed", 1),
    ],
)
def test_errors_have_a_code_and_an_exit_code(script: Path, sql: str, code: str, exit_code: int) -> None:
    script.write_text(TABLE + sql)
    error = error_of(run(str(script)))
    assert (error.code, error.exit_code) == (code, exit_code)


def test_what_the_memory_engine_lacks_is_refused(script: Path) -> None:
    assert error_of(run(str(script), "--suspend")).code == "not-in-memory"
    script.write_text(TABLE.replace("'format'", "'source.monitor-interval' = '1 s', 'format'") + QUERY)
    assert error_of(run(str(script))).code == "not-in-memory"


def test_a_script_chooses_its_engine() -> None:
    sql = "SET 'everfold.engine' = 'memory'; SELECT 1 AS one;"
    result = CliRunner().invoke(everfold, ["run", "-e", sql, "--format", "json"])
    assert (result.exception, result.stdout) == (None, '{"one": 1}\n')


def test_explain_shows_the_plan_and_runs_nothing(script: Path) -> None:
    result = run(str(script), command="explain")
    assert "WindowAggregate(TUMBLE(size=10 min)" in result.stdout
    assert "state:" in result.stdout
    (script.parent / "bids" / "part.json").unlink()
    assert run(str(script), command="explain").exception is None
    nodes = json.loads(run(str(script), "--format", "json", command="explain").stdout)["nodes"]
    assert (nodes[0]["type"], nodes[-1]["pact"]) == ("Scan", "Data Sink")


def test_explain_refuses_a_wrong_table(script: Path) -> None:
    script.write_text((TABLE + QUERY).replace("'format'", "'formt'"))
    assert error_of(run(str(script), command="explain")).code == "unknown-option"


def test_the_memory_engine_serves_no_metrics() -> None:
    error = error_of(run("-e", "SELECT 1", "--metrics-port", "0"))
    assert error.code == "not-in-memory"


def test_metrics_on_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(everfold, ["run", "-e", "SELECT 1", "--metrics-port", str(port)])
    error = error_of(result)
    assert error.code == "port-not-available"
    assert error.diagnostics[0].message == (
        f"the metrics cannot be served on 127.0.0.1, port {port}: Address already in use"
    )


def test_skipped_rows_are_counted(script: Path) -> None:
    bids = script.parent / "bids" / "part.json"
    bids.write_text(BIDS + '{"bidtime"\n{"bidtime": null}\n[\n')
    options = "'format' = 'json', 'json.ignore-parse-errors' = 'true'"
    text = script.read_text().replace("'format' = 'json'", options)
    script.write_text("SET 'everfold.null-rowtime' = 'drop';\n" + text)
    result = run(str(script))
    assert result.exception is None
    assert result.stderr.splitlines() == [
        "2 rows dropped: not readable in full",
        '  the first: `bids/part.json` line 5: {"bidtime"',
        "1 row dropped: no time, the time attribute is NULL",
    ]
    in_batch = run(str(script), "--batch")
    assert "2 rows dropped: not readable in full" in in_batch.stderr
