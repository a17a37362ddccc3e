"""Values of the environment are not shown, wherever they stand, and other words are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from everfold.cli.main import everfold
from everfold.errors import Diagnostic, EverfoldError, Span
from everfold.hidden_values import HiddenValues
from everfold.secrets import redact_log, redact_script, redact_value
from everfold.sql.planner import Session

CANARY = "cAnary7301xyz"
FILES = {"connector": "filesystem", "path": "in", "format": "json"}
KAFKA = {
    "connector": "kafka",
    "topic": "x",
    "properties.bootstrap.servers": "h:1",
    "format": "json",
    "scan.startup.mode": "earliest-offset",
}
JDBC = {"connector": "jdbc", "url": "jdbc:postgresql://h/d", "table-name": "o", "username": "u", "password": "p"}
PLACES = [
    *((FILES, key, "@") for key in ("connector", "path", "format", "source.monitor-interval", "nokey")),
    *((FILES, "path", path) for path in ("s3a://b/@", "@://x", "file:///@", "a/@/b", "https://a/x?sv=1&sig=@&se=2")),
    *((KAFKA, key, "@") for key in ("format", "key.fields", "scan.startup.mode", "scan.startup.specific-offsets")),
    *((KAFKA, key, "@") for key in ("properties.bootstrap.servers", "topic", "scan.max-bytes-per-batch")),
    *((JDBC, key, "@") for key in ("url", "table-name", "driver", "lookup.cache.ttl", "scan.fetch-size")),
    *(
        (JDBC, "url", f"jdbc:postgresql://{rest}")
        for rest in ("@/d", "h:@/d", "h/d?sslmode=@", "h/d?@=1", "u:@@h/d", "h/d?a=b&sig=@")
    ),
    ({"connector": "datagen"}, "fields.a.kind", "@"),
    ({"connector": "datagen"}, "rows-per-second", "@"),
]
SETTINGS = (
    "table.local-time-zone",
    "table.exec.state.ttl",
    "execution.runtime-mode",
    "everfold.engine",
    "everfold.dialect",
    "parallelism.default",
    "pipeline.name",
    "nope",
)
FORMS = ("${env:CANARY}", "a${env:CANARY}b", "10 ${env:CANARY}", "x-${env:CANARY}:1")
COMMANDS = (
    ("explain", "new.sql"),
    ("explain", "new.sql", "--format", "json"),
    ("check", "good.sql", "new.sql"),
    ("check", "new.sql", "good.sql", "--format", "json"),
    ("check", "good.sql", "new.sql", "--format", "github"),
    ("run", "new.sql", "--engine", "memory", "--batch"),
    ("translate", "--from", "flink", "--to", "lenses", "new.sql"),
)


def write_script(options: dict[str, str], before: str = "") -> str:
    declared = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return (
        f"{before}\nCREATE TABLE t (a INT) WITH ({declared});\nSHOW CREATE TABLE t; SET;\n"
        "EXPLAIN SELECT a, COUNT(*) AS n FROM t GROUP BY a;\nSELECT a, COUNT(*) AS n FROM t GROUP BY a;\n"
    )


SCRIPTS = {
    f"{base['connector']} {key} {pattern.replace('@', form)}": write_script({**base, key: pattern.replace("@", form)})
    for (base, key, pattern), form in product(PLACES, FORMS)
} | {f"SET {key} {form}": write_script(FILES, f"SET '{key}' = '{form}';") for key, form in product(SETTINGS, FORMS)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder with a table of files, and the variable that scripts name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    Path("in").mkdir()
    Path("in/1.json").write_text('{"a": 1}\n')
    Path("good.sql").write_text(write_script(FILES))
    return tmp_path


def shows_value(command: Sequence[str], script: str) -> bool:
    """Return whether a command on a script shows the value of the variable."""
    Path("new.sql").write_text(script)
    result = CliRunner().invoke(everfold, command)
    error = result.exception
    assert error is None or isinstance(error, EverfoldError | SystemExit), (command, script, error)
    shown = f"{result.output} {error} {error!r}"
    if isinstance(error, EverfoldError):
        shown += json.dumps([diagnostic.to_json() for diagnostic in error.diagnostics])
    return CANARY.lower() in shown.lower()


def written_files(folder: Path) -> str:
    files = [file for part in ("cache", "summary") for file in [folder / part, *(folder / part).rglob("*")]]
    return "".join(file.read_text() for file in files if file.is_file())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_shows_a_value(command: Sequence[str], folder: Path) -> None:
    """Each place with one command; all of them are tested in `make test-all`."""
    first = COMMANDS.index(command)
    chosen = [place for number, place in enumerate(SCRIPTS) if number % (4 * len(COMMANDS)) == first]
    if command[0] == "run":  # without a network
        chosen = [place for place in SCRIPTS if place.startswith("SET")]
    assert [place for place in chosen if shows_value(command, SCRIPTS[place])] == []
    assert CANARY not in written_files(folder)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_shows_a_value_of_any_option(command: Sequence[str], folder: Path) -> None:
    assert [place for place, script in SCRIPTS.items() if shows_value(command, script)] == []
    assert CANARY not in written_files(folder)


def hide(text: str, environment: dict[str, str], *options: str) -> str:
    """Return a text without the values of variables, which options of a script name."""
    script = " ".join(f"'{option}'" for option in options or [f"${{env:{name}}}" for name in environment])
    return HiddenValues.of([script], environment).hide(text)


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        ("postgres", "there is no `postgres-cdc`", "there is no `postgres-cdc`"),
        ("postgres", "there is no `cdc_postgres`, but `postgres`", "there is no `cdc_postgres`, but `${env:V}`"),
        ("table", "table `t`: the connector `table`", "table `t`: the connector `${env:V}`"),
        ("json", "JSON is not 'json'", "JSON is not '${env:V}'"),
        ("5", "row 5 of 15 is `5`, not `5 s`", "row 5 of 15 is `${env:V}`, not `5 s`"),
        ("9092", "port 9092 of `h:9092`", "port 9092 of `h:${env:V}`"),
        ("s3cr3t!", "it is s3cr3t! and `s3cr3t!`", "it is ${env:V} and `${env:V}`"),
        ("CamelCase", "FATAL: CamelCase and camelcase", "FATAL: ${env:V} and ${env:V}"),
        ("a b  c\nd9", "`a b c d9`", "`${env:V}`"),
        ("it's", "\"it's\" `it's`", '"${env:V}" `${env:V}`'),
        ("x" * 40, f"`{'x' * 30}…`", "`${env:V}…`"),
        ("", "`` is empty", "`` is empty"),
        ("env", "`${env:V}` is `env`", "`${env:V}` is `${env:V}`"),
        (".*", "a.*b `.*`", "a.*b `${env:V}`"),
        ("h1.example:9092,h2.example:9092", "`h2.example` is unknown", "`${env:V}` is unknown"),
    ],
)
def test_a_value_is_hidden_where_it_stands(value: str, text: str, shown: str) -> None:
    assert hide(text, {"V": value}) == shown


def test_a_secret_word_is_hidden_everywhere() -> None:
    assert hide("login with swordfish failed, swordfishes", {"DB_PASSWORD": "swordfish"}) == (
        "login with ${env:DB_PASSWORD} failed, swordfishes"
    )


def test_a_script_with_very_many_values_hides_more() -> None:
    options = [f"a{number}${{env:V}}b" for number in range(5000)]
    values = HiddenValues.of([" ".join(f"'{option}'" for option in options)], {"V": "s3cr3t"})
    assert "s3cr3t" not in values.hide("`a4999s3cr3tb` xs3cr3tx `a1s3cr3tb`")


def test_the_literal_part_of_a_secret_is_hidden() -> None:
    session = Session(environment={"V": "valueOfV1"})
    script = "CREATE TABLE t (a INT) WITH ('password' = 'literal99${env:V}')"
    list(session.run(script))
    shown = Diagnostic("x", "login with literal99valueOfV1 failed", Span(0, 6, "q.sql", script)).message
    assert shown == "login with ****** failed"


def test_the_text_of_the_script_is_shown() -> None:
    environment = {"A": "aaa111", "B": "bbb222"}
    option = "s3a://${env:A}/x-${env:B}/y"
    assert hide("`s3a://aaa111/x-bbb222/y` and `x-bbb222`", environment, option) == f"`{option}` and `x-${{env:B}}`"


def test_show_statements_show_the_script() -> None:
    session = Session(environment={"DIR": "/data/in", "F": "json", "Z": "Asia/Tokyo"})
    list(session.run("SET 'table.local-time-zone' = '${env:Z}'"))
    list(
        session.run(
            "CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '${env:DIR}/x', 'format' = '${env:F}')"
        )
    )
    shown = repr(list(session.run("SHOW CREATE TABLE t; SET")))
    assert "'path' = '${env:DIR}/x'" in shown
    assert "'format' = '${env:F}'" in shown
    assert "('table.local-time-zone', '${env:Z}')" in shown
    assert "Tokyo" not in shown


@pytest.mark.parametrize(
    ("password", "message", "shown"),
    [
        ("postgres", "there is no `postgres-cdc`, did you mean postgres_cdc?", None),
        ("postgres", "no connector is named `postgres`", "no connector is named `******`"),
        ("postgres", "login as postgres failed", "login as ****** failed"),
        ("x9!secret", "it is ax9!secretb", "it is a******b"),
    ],
)
def test_a_literal_secret_is_hidden_as_a_whole(password: str, message: str, shown: str | None) -> None:
    script = f"CREATE TABLE t (a INT)\nWITH ('connector' = 'x',\n'password' = '{password}')"
    assert Diagnostic("x", message, Span(0, 6, "q.sql", script)).message == (shown or message)


def test_words_that_the_excerpt_shows_are_not_hidden() -> None:
    script = "CREATE TABLE t (a INT) WITH ('connector' = 'postgres', 'password' = 'postgres')"
    start = script.index("'postgres'")
    shown = Diagnostic("x", "no connector is named `postgres`", Span(start, start + 10, "q.sql", script)).render()
    assert "no connector is named `postgres`" in shown
    assert "'connector' = 'postgres', 'password' = **********)" in shown or "'password' = '********'" in shown


@pytest.mark.parametrize(
    "url",
    [
        "https://a.blob.core.windows.net/c/x?sv=2020&sig=cAnary7301xyz&se=1",
        "wasbs://c@a.blob.core.windows.net/x?SIG=cAnary7301xyz",
        "https://b.s3.amazonaws.com/x?X-Amz-Signature=cAnary7301xyz",
        "sig=cAnary7301xyz&sv=1",
    ],
)
def test_signatures_of_urls_are_secret(url: str) -> None:
    script = f"CREATE TABLE t (a INT) WITH ('path' = '{url}', 'nokey' = 'x')"
    assert CANARY not in redact_script(script)
    assert CANARY not in redact_log(f"cannot read '{url}'")
    assert CANARY not in redact_value("path", f"'{url}'")
    assert CANARY not in Diagnostic("x", f"no file `{url}`", Span(0, 5, "q", script)).render()
    assert (
        redact_script("SELECT sig FROM t WHERE sig = 5 AND design=3") == "SELECT sig FROM t WHERE sig = 5 AND design=3"
    )
