"""Commands accept or refuse a script in Lenses SQL alike, with the same error."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from everfold.cli.main import everfold
from everfold.errors import EverfoldError

TYPES = (
    "CHAR(2)", "VARCHAR(5)", "STRING", "BOOLEAN", "DECIMAL(5, 2)", "TINYINT", "SMALLINT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIME", "TIMESTAMP(3)",
    "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "BINARY(2)", "VARBINARY(3)", "BYTES", "ARRAY<INT>", "MAP<STRING, INT>", "MAP<INT, INT>", "ROW<x INT, y CHAR(1)>",
    "ROW<x MAP<INT, INT>>", "ROW<`not a name` INT>",
)  # fmt: skip
TEXTS = ("'all'", "CASE WHEN g > 1 THEN 'hi' ELSE 'lo' END", "CASE WHEN g > 1 THEN 'high' ELSE 'lo' END", "UPPER(CAST(g AS CHAR(3)))", "CAST(g AS VARCHAR(4))")  # fmt: skip
OTHERS = ("g > 1", "g + 1", "CAST(g AS BIGINT)", "CAST(g AS FLOAT)", "g / 2.0", "CURRENT_DATE", "INTERVAL '1' DAY", "ARRAY[g]", "MAP[g, g]")  # fmt: skip
ONLY_IN_TRANSLATION = ("not-in-flink", "not-one-plan")


@st.composite
def scripts(draw: st.DrawFn) -> tuple[str, str]:
    """Make declarations of topics, and an INSERT."""
    of_x, of_key = draw(st.sampled_from(TYPES)), draw(st.sampled_from(["STRING", "CHAR(3)", "INT", "LONG", "BYTES"]))
    key_format = {"CHAR(3)": "STRING"}.get(of_key, of_key)
    value_format = draw(st.sampled_from(["JSON", "AVRO"]))
    declared = f"CREATE TABLE source-topic(_key {of_key}, x {of_x}, g INT) FORMAT ({key_format}, {value_format});"
    x = draw(st.sampled_from(["x", "x", "x", *TEXTS, *OTHERS]))
    kind = draw(st.sampled_from(["SELECT STREAM", "SELECT", "", "SELECT TABLE"]))
    form = draw(st.sampled_from(["keys", "named keys", "values", "records", "several"]))
    keys = ["_key", "_key.k"] if form == "records" else []
    to = draw(st.sampled_from(["v", "_value", "_value", "a.b", "`a b`", "_value.c", *keys]))
    match form:
        case "keys":
            window = draw(st.sampled_from(["", "", "WINDOW BY TUMBLE 1h"])) if "TABLE" not in kind else ""
            query = f"{kind} COUNT(*) AS n FROM source-topic {window} GROUP BY {x}"
        case "named keys":
            query = f"{kind} COUNT(*) AS stats.n, FROM source-topic GROUP BY {x} AS k"
        case "values":
            call = draw(st.sampled_from([f"LAST({x})", f"MAXK({x}, 2)", "COUNT(*)", "SUM(g)", "AVG(g / 2.0)"]))
            query = f"{kind} {call} AS {to} FROM source-topic GROUP BY g"
        case "records":
            query = f"{kind} {x} AS {to} FROM source-topic WHERE g > 0"
        case _:
            query = f"{kind} SUM(g) AS total, COUNT(*) AS {to} FROM source-topic GROUP BY x, g HAVING total > 1"
    of_target = draw(st.sampled_from([""] * 9 + ["STRING", "LONG", "DOUBLE", "VARCHAR(2)", "ROW<k INT>"]))
    if of_target:
        stored = {"VARCHAR(2)": "STRING", "ROW<k INT>": "JSON"}.get(of_target, of_target)
        fields = "_value LONG" if to == "_value" else "n LONG, v STRING, total INT, a ROW<b LONG>, stats ROW<n LONG>"
        declared += f" CREATE TABLE target-topic(_key {of_target}, {fields}) FORMAT ({stored}, {'LONG' if to == '_value' else 'JSON'});"
    return declared, f"INSERT INTO target-topic {query}"


def error_of(output: str) -> str | None:
    """Return the code of the first error in the output of a command, None without an error."""
    found = re.search(r"error\[([a-z-]+)\]", output)
    return None if found is None else found[1]


def check_commands(declared: str, insert: str, folder: Path) -> None:
    options = "SET defaults.topic.autocreate = true;\nSET everfold.lenses.exact-tables = true;\n"
    options += "SET defaults.topic.properties.bootstrap.servers = 'localhost:1';\n"
    (folder / "script.sql").write_text(f"{options}{declared}\n{insert};\n")
    (folder / "one.case.yaml").write_text(
        "modes: [stream]\noptions:\n  everfold.dialect: lenses\n  defaults.topic.autocreate: true\n  everfold.lenses.exact-tables: true\n"
        f"tables: |\n  {declared}\ncases:\n  - name: one\n    sql: |\n      {insert}\n    error: none\n"
    )
    arguments = {
        "explain": ["explain", "--dialect", "lenses", "script.sql"],
        "check": ["check", "--dialect", "lenses", "script.sql", "script.sql"],
        "test": ["test", "one.case.yaml"],
        "translate": ["translate", "--from", "lenses", "--to", "flink", "script.sql"],
    }
    found: dict[str, str | None] = {}
    with contextlib.chdir(folder):
        for name, command in arguments.items():
            done = CliRunner(env={**os.environ, "NO_COLOR": "1"}).invoke(everfold, command)
            assert done.exception is None or isinstance(done.exception, SystemExit | EverfoldError), (name, done)
            found[name] = error_of(f"{done.output}\n{done.exception}")
    expected = found["explain"]
    event(str(expected))
    if expected is None and found["translate"] in ONLY_IN_TRANSLATION:
        del found["translate"]
    assert set(found.values()) == {expected}, found


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_commands_accept_and_refuse_alike(tmp_path_factory: pytest.TempPathFactory, script: tuple[str, str]) -> None:
    check_commands(*script, tmp_path_factory.mktemp("script"))


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_commands_accept_and_refuse_many_scripts_alike(
    tmp_path_factory: pytest.TempPathFactory, script: tuple[str, str]
) -> None:
    check_commands(*script, tmp_path_factory.mktemp("script"))
