"""A canary in every position where a secret may stand: no output contains it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from unit.job_dirs import start_job

from everfold.cli.main import everfold
from everfold.errors import Diagnostic, EverfoldError, Span, SqlError
from everfold.jobs.change import OnChange
from everfold.secrets import (
    HIDDEN,
    NAME_PATTERN,
    TEXT_PATTERN,
    is_secret,
    redact_command_line,
    redact_log,
    redact_script,
    redact_value,
)
from everfold.sql.planner import Session, Show, Submit
from everfold.sql.script import parse_script

CANARY = "cAnary7301"
TABLE = "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 'x', {});"

SPELLINGS = [
    # quoted, and quoted wrongly
    "'properties.sasl.password' = 'cAnary7301'",
    "'properties.sasl.password' = 'it''s cAnary7301'",
    "'properties.sasl.password' = \"cAnary7301\"",
    "'properties.sasl.password' = `cAnary7301`",
    "'properties.sasl.password' = cAnary7301",
    "'properties.sasl.password' = x-cAnary7301,cAnary7301)y",
    "'properties.sasl.password' = 'cAnary7301",
    "'properties.sasl.password' = cAnary7301'",
    "'properties.sasl.password' = 'x'cAnary7301'",
    "'properties.sasl.password = 'cAnary7301'",
    "properties.sasl.password' = 'cAnary7301'",
    "\"properties.sasl.password\" = 'cAnary7301'",
    '"properties.sasl.password" = "cAnary7301"',
    "`properties.sasl.password` = 'cAnary7301'",
    "properties.sasl.password = cAnary7301",
    "password = cAnary7301",
    "PASSWORD=cAnary7301",
    "password 'cAnary7301'",
    "'password' = U&'cAnary7301'",
    "'password' = E'cAnary7301'",
    "'password' = 'x' 'cAnary7301'",
    "'password' = 'x' || 'cAnary7301'",
    "'password' = 7301cAnary7301",
    "'password' = $$cAnary7301$$",
    "'password' = cAnary7301;cAnary7301",
    # another sign, or none, where `=` should be
    "'password' : 'cAnary7301'",
    "'password' => 'cAnary7301'",
    "'password' == 'cAnary7301'",
    "'password' , 'cAnary7301'",
    "'password' 'cAnary7301'",
    "'password' cAnary7301",
    # comments
    "'password' /* which? */ = /* this */ 'cAnary7301'",
    "'a' = 'b' -- 'password' = 'cAnary7301'",
    "'a' = 'b' -- password = cAnary7301",
    "'a' = 'b' /* password: cAnary7301 */",
    "/* password=cAnary7301 */ a",
    "'a' = 'b' // secret=cAnary7301",
    # over several lines
    "'password'\n =\n 'cAnary7301'",
    "'password' = 'first\ncAnary7301'",
    # other names
    "'properties.ssl.keystore.key' = '-----BEGIN PRIVATE KEY----- cAnary7301 -----END PRIVATE KEY-----'",
    "'x' = '-----BEGIN RSA PRIVATE KEY-----\ncAnary7301\n-----END RSA PRIVATE KEY-----'",
    "'properties.ssl.key.pem' = 'cAnary7301'",
    "'properties.sasl.oauthbearer.client.credentials.client.secret' = 'cAnary7301'",
    "'avro-confluent.basic-auth.user-info' = 'u:cAnary7301'",
    "'properties.basic.auth.user.info' = 'u:cAnary7301'",
    "'properties.sasl.jaas.config' = 'x required username=\"u\" password=\"cAnary7301\";'",
    "'properties.other' = 'x required username=\"u\" password=\"cAnary7301\";'",
    "'fs.s3a.access.key' = 'cAnary7301'",
    "'fs.azure.account.key.x' = 'cAnary7301'",
    # URLs
    "'url' = 'jdbc:postgresql://u:cAnary7301@host/db'",
    "'url' = 'jdbc:postgresql://host/db?user=u&password=cAnary7301'",
    "'url' = 'postgresql://host/db?password=cAnary7301&sslmode=require'",
    "'avro-confluent.url' = 'https://user:cAnary7301@host/'",
    "'avro-confluent.url' = 'https://cAnary7301@host/'",
    "'path' = 's3a://cAnary7301:cAnary7301@bucket/x'",
    "'path' = s3a://cAnary7301:cAnary7301@bucket/x",
    # filled in
    "'password' = '${env:CANARY}'",
    "'url' = 'jdbc:postgresql://u:${CANARY}@host/db'",
    "'properties.ssl.keystore.key' = '${CANARY}'",
]

AROUND = [
    TABLE,
    "CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', 'table-name' = 'x',\n {}\n);",
    "CREATE TABLE t (a INT) WIHT ({});",
    "CREATE TABLE t (a INT, oops) WITH ({}); SELECT * FROM t",
    "CREATE TABLE t (a INT) WITH ({}) SELECT",
    "CREATE TABLE t (a INT); SELECT * FROM t /*+ OPTIONS({}) */",
    "CREATE TABLE t (a INT); SELECT nope FROM t /*+ OPTIONS({}) */;",
    "SET {};",
    "SET 'everfold.dialect' = 'lenses'; SET {};",
    "SELECT nope -- {}\n;",
    "SELECT nope /* {} */;",
    "{}",
]


def _collect_output(sql: str) -> str:
    """Return everything that a user can see of a script, which may be wrong.

    This includes the results of statements, the error in every form, and the redacted script.
    """
    session = Session(variables={"CANARY": CANARY}, environment={"CANARY": CANARY})
    output: list[str] = []
    try:
        for action in session.run(sql):
            output.append(repr(action) if isinstance(action, Show) else repr(type(action)))
        for kind in ("SHOW CREATE TABLE t", "DESCRIBE t", "SET", "EXPLAIN SELECT * FROM t"):
            output += [repr(action) for action in session.run(kind)]
    except EverfoldError as error:
        output += [str(error), repr(error), repr(error.args), repr(error.diagnostics)]
        output += [json.dumps(each.to_json()) + each.message + str(each.help) for each in error.diagnostics]
    output.append(redact_script(sql))
    return "\n".join(output)


@pytest.mark.parametrize("around", AROUND)
def test_no_spelling_of_a_secret_is_printed(around: str) -> None:
    seen = [spelling for spelling in SPELLINGS if CANARY in _collect_output(around.format(spelling))]
    assert seen == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "FILE", "--var", f"CANARY={CANARY}"],
        ["check", "FILE"],
        ["check", "FILE", "--format", "json"],
        ["check", "FILE", "--format", "github"],
        ["run", "FILE", "--engine", "memory", "--var", f"CANARY={CANARY}"],
        ["translate", "--from", "flink", "--to", "lenses", "FILE"],
        ["translate", "--from", "lenses", "--to", "flink", "FILE"],
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
def test_no_command_prints_a_secret(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    seen = []
    for at, spelling in enumerate(SPELLINGS):
        file = tmp_path / f"q{at}.sql"
        file.write_text(f"{AROUND[at % len(AROUND)].format(spelling)}\nSELECT a, COUNT(*) FROM t GROUP BY a;")
        result = CliRunner().invoke(everfold, [str(file) if each == "FILE" else each for each in arguments])
        if CANARY in result.output + str(result.exception) + repr(result.exception):
            seen.append(spelling)
    assert seen == []
    assert not any(CANARY in file.read_text() for file in tmp_path.glob("cache/**/*") if file.is_file())


JOB = """
-- {spelling}
SET 'defaults.topic.properties.sasl.password' = 'cAnary7301';
CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json',
'properties.bootstrap.servers' = 'h:1', {spelling});
CREATE TABLE o (a INT, n BIGINT{column}, PRIMARY KEY (a) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'o', 'username' = 'u', 'password' = '${{CANARY}}');
INSERT INTO o SELECT a, COUNT(*) /* {spelling} */ {more} FROM t -- {spelling}
GROUP BY a /* password = cAnary7301 */;
"""
USABLE = [
    each for each in SPELLINGS if each.startswith("'") and each.endswith("'") and " = '" in each and "\n" not in each
]
"""Spellings that parse as options and fit into a comment of one line: a job can start with them."""


def test_the_files_of_a_job_contain_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the manifest of a job with two versions, and everything that commands print about it.

    `tests/spark/test_canary.py` runs such a job.
    """
    monkeypatch.setenv("CANARY", CANARY)
    seen: list[str] = []
    started = 0
    for at, spelling in enumerate(USABLE):
        folder, scripts = tmp_path / f"job{at}", []
        try:
            for number, (column, more) in enumerate([("", ""), (", s INT", ", SUM(a)")]):
                sql = JOB.format(spelling=spelling, column=column, more=more)
                (*_, submit) = Session(variables={"CANARY": CANARY}, environment={"CANARY": CANARY}).run(sql)
                assert isinstance(submit, Submit)
                start_job(folder, submit.roots, sql=submit.text, how=OnChange.ACCEPT)
                scripts.append(tmp_path / f"{at}-{number}.sql")
                scripts[-1].write_text(sql)
        except SqlError:
            continue
        started += 1
        state = ["--state", str(folder)]
        for command in (
            ["history", str(folder)],
            ["history", str(folder), "--format", "json"],
            ["diff", str(folder), "0", "1"],
            *(["check", str(scripts[0]), *state, "--format", form] for form in ("text", "json", "github")),
            ["check", *map(str, scripts)],
            ["explain", str(scripts[1]), "--var", f"CANARY={CANARY}"],
        ):
            result = CliRunner().invoke(everfold, command)
            assert result.output or isinstance(result.exception, EverfoldError), command
            seen += [f"{command[0]}: {spelling}" for text in (result.output, str(result.exception)) if CANARY in text]
        seen += [f"{file}: {spelling}" for file in folder.rglob("*") if file.is_file() and CANARY in file.read_text()]
    assert seen == []
    assert started > len(USABLE) // 2


@pytest.mark.parametrize(
    "text",
    [
        "kafka.ssl.keystore.key=cAnary7301, kafka.sasl.jaas.config=cAnary7301, x -> y",
        "[kafka.basic.auth.user.info = 'cAnary7301 and more', topic = x]",
        'Map("sasl.password" -> x, "credential": "cAnary7301")',
        "jdbc:postgresql://u:cAnary7301@h/d?password=cAnary7301&x=y",
        "pem: -----BEGIN RSA PRIVATE KEY-----\ncAnary7301\n-----END RSA PRIVATE KEY----- and -----BEGIN PRIVATE KEY-----cAnary7301",
    ],
)
def test_secrets_are_redacted_in_logs_of_spark(text: str) -> None:
    """`tests/spark/test_canary.py` checks that the patterns mean the same in Java."""
    shown = re.sub(TEXT_PATTERN, "***", text)
    assert CANARY not in shown
    assert (
        re.sub(TEXT_PATTERN, "***", "Project [token#1, x#2 AS password#3], (secret#4 > 5)")
        == "Project [token#1, x#2 AS password#3], (secret#4 > 5)"
    )
    assert [
        name
        for name in ("spark.hadoop.fs.azure.account.key.x", "kafka.ssl.keystore.key")
        if not re.search(NAME_PATTERN, name)
    ] == []
    assert re.search(NAME_PATTERN, "spark.sql.shuffle.partitions") is None


def test_show_create_keeps_values_that_are_not_secret() -> None:
    session = Session(environment={"PW": CANARY})
    list(session.run(TABLE.format("'url' = 'jdbc:postgresql://u:${env:PW}@host:5432/db?sslmode=require&password=x'")))
    (shown,) = session.run("SHOW CREATE TABLE t")
    assert isinstance(shown, Show)
    assert "'url' = 'jdbc:postgresql://******@host:5432/db?sslmode=require&password=******'" in shown.rows[0][0]
    assert "'topic' = 'x'" in shown.rows[0][0]


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("properties.ssl.keystore.key", True),
        ("properties.ssl.keystore.location", False),
        ("properties.ssl.truststore.certificates", False),
        ("properties.sasl.oauthbearer.client.credentials.client.secret", True),
        ("key.format", False),
        ("key.fields-prefix", False),
        ("url", False),
        ("username", False),
        ("json.map-null-key.mode", False),
        ("apiKey", True),
    ],
)
def test_secret_options_are_recognized_by_name(key: str, secret: bool) -> None:
    assert is_secret(key) is secret


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("topic", "orders", "orders"),
        ("password", "x", HIDDEN),
        (
            "path",
            "abfss://container@account.dfs.core.windows.net/x",
            "abfss://container@account.dfs.core.windows.net/x",
        ),
        ("url", "https://u:p@h/x?a=b@c", "https://******@c"),
        ("url", "jdbc:sqlserver://h;password=p w;x=y", "jdbc:sqlserver://h;password=******"),
    ],
)
def test_values_are_redacted(key: str, value: str, shown: str) -> None:
    assert redact_value(key, value) == shown


def test_redaction_keeps_what_is_not_secret() -> None:
    query = "SELECT token, password AS p FROM t WHERE t.token = u.token AND secret IS NULL AND a IN ('x', 'y')"
    assert redact_script(query) == query.replace("u.token", "*******")
    script = TABLE.format("'password' = 'geheim', 'format' = 'json'")
    assert redact_script(script) == script.replace("geheim", "******")


def test_logs_are_redacted() -> None:
    assert (
        redact_log("connection failed: host=h password=cAnary7301") == "connection failed: host=h password=**********"
    )
    assert CANARY not in redact_log(f'org.apache.Thing: sasl.jaas.config = x required password="{CANARY}";')
    assert CANARY not in redact_command_line(
        ["run", "--conf=spark.x.password=" + CANARY, "--var=a=" + CANARY, "--var", "b=" + CANARY]
    )


def test_a_diagnostic_is_redacted_in_every_form() -> None:
    text = TABLE.format(f"'password' = '{CANARY}'")
    found = Diagnostic("x", f"the text '{CANARY}' and {CANARY}", Span(0, 5, "<sql>", text), f"not {CANARY}", (CANARY,))
    assert CANARY not in repr(found) + found.render() + json.dumps(found.to_json())


def test_only_an_excerpt_of_a_long_line_is_shown() -> None:
    text = "SELECT " + "a, " * 10_000 + "? FROM t"
    with pytest.raises(EverfoldError) as caught:
        parse_script(text)
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) < 500
    assert lines[3][lines[4].index("^")] == "?"
