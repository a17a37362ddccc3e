"""A suggestion means what the user wrote, is accepted in its place, and does no damage."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import click
import pytest

from everfold.cli.main import everfold
from everfold.cli.similar_arguments import DESTRUCTIVE, limit_suggestions
from everfold.connectors.formats.registry import NAMES as FORMATS
from everfold.connectors.formats.registry import options_of
from everfold.connectors.registry import connector_names, get_connector
from everfold.error_codes import all_codes
from everfold.errors import EverfoldError
from everfold.plan.nodes import Table
from everfold.similar_names import find_similar_name
from everfold.sql.binder.names import aggregate_names
from everfold.sql.dialects.keywords import NOT_AN_ALIAS
from everfold.sql.dialects.types import TYPE_NAMES
from everfold.sql.functions import names as scalar_names
from everfold.sql.planner import Session
from everfold.sql.settings import OPTIONS, TOPIC_PROPERTIES, check_option

SOURCE = Path(__file__).parents[2] / "src" / "everfold"
_SUGGESTION = re.compile(r"did you mean `([^`]+)`\?")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_STATEMENTS = (
    "SELECT", "WITH", "VALUES", "INSERT", "CREATE", "SET", "SHOW", "DESCRIBE", "EXPLAIN", "EXECUTE", "BEGIN", "USE",
)  # fmt: skip


def table_options(connector: str) -> list[str]:
    """Return the options of a table of a connector, without those of formats."""
    table = Table(name="t", columns=(), options=(("connector", connector),))
    return [option.name for option in get_connector(connector).options(table).options if "*" not in option.name]


REGISTRIES: dict[str, list[str]] = {
    "SET": [*OPTIONS],
    "topics": [key for key in TOPIC_PROPERTIES if "*" not in key],
    "connectors": list(connector_names()),
    "formats": list(FORMATS),
    "types": list(TYPE_NAMES),
    "functions": [*aggregate_names(), *scalar_names()],
    "keywords": sorted(NOT_AN_ALIAS),
    "codes": [entry.code for entry in all_codes()],
    **{f"table of {name}": table_options(name) for name in connector_names()},
    **{f"format {name}": [option.name for option in options_of(name).options] for name in FORMATS},
    **{
        f"everfold {name}": [o for p in command.params for o in p.opts if o.startswith("--")]
        for name, command in everfold.commands.items()
    },
}

FOREIGN_WORDS = (
    "path", "dir", "limit", "dry", "max", "min", "enabled", "disabled", "backend", "storage", "type", "class",
    "catalog", "secret", "force", "delete", "purge", "recursive", "verbose", "output", "encode", "decode", "first",
    "last", "before", "after", "read", "write", "upper", "lower", "early", "late", "left", "right", "start", "stop",
)  # fmt: skip


def sample(names: Iterable[str]) -> list[str]:
    """Return some of the names, the same in each run."""
    listed = sorted(names)
    return random.Random(63).sample(listed, min(len(listed), 120))


def swap_words(names: Iterable[str]) -> Iterator[str]:
    """Yield each name with one word replaced by a word that is not similar to it."""
    for name in names:
        for word in _WORDS.finditer(name):
            for other in FOREIGN_WORDS:
                if len(set(word[0].lower()) & set(other)) <= len(other) // 2:
                    yield name[: word.start()] + other + name[word.end() :]


def swap_letters(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name with two letters swapped, and the name."""
    for name in names:
        for position in range(2, len(name) - 1):
            if name[position : position + 2].isalpha():
                yield name[:position] + name[position + 1] + name[position] + name[position + 2 :], name


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_name_with_another_word_is_another_name(registry: str) -> None:
    known = REGISTRIES[registry]
    wrong = [
        f"{name} -> {similar}"
        for name in sample(swap_words(known))
        if (similar := find_similar_name(name, known)) is not None
        # a name that is contained as a whole, or is written with other separators, may be meant
        and name.lower() not in similar.lower()
        and not _differs_by_one_word(name, similar)
    ]
    assert not wrong, "\n".join(wrong[:20])


def _differs_by_one_word(name: str, similar: str) -> bool:
    """Return whether the suggestion has the same words but for spelling: `lats` for `last`."""
    words, others = _WORDS.findall(name.lower()), _WORDS.findall(similar.lower())
    one, other = "".join(words), "".join(others)
    pairs = list(zip(words, others, strict=False)) if len(words) == len(others) else [(one, other)]
    return all(SequenceMatcher(None, *pair).ratio() >= 0.6 for pair in pairs)


@pytest.mark.parametrize("registry", REGISTRIES)
def test_a_misspelled_name_is_recognized_or_nothing_is_suggested(registry: str) -> None:
    known = REGISTRIES[registry]
    originals = dict(swap_letters(known))
    for typo in sample(originals.keys() - set(known)):
        similar = find_similar_name(typo, known)
        assert similar in (None, originals[typo]) or _differs_by_one_word(typo, similar or ""), (typo, similar)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execution.savepoint.path", None),
        ("execution.checkpointing.max-pause", None),
        ("execution.checkpointing.unaligned", None),
        ("state.backend.type", None),
        ("table.exec.sink.upsert-materialize", None),
        ("table.exec.async-lookup.timeout", None),
        ("table.exec.emit.early-fire", None),
        ("execution.checkpointing.intervall", "execution.checkpointing.interval"),
        ("table.exec.state-ttl", "table.exec.state.ttl"),
        ("table.local-timezone", "table.local-time-zone"),
        ("runtime-mode", "execution.runtime-mode"),
    ],
)
def test_options_of_flink(name: str, expected: str | None) -> None:
    assert find_similar_name(name, OPTIONS) == expected


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("tsv", FORMATS, None),
        ("bson", FORMATS, None),
        ("debezium-avro-confluent", FORMATS, None),
        ("debezium", FORMATS, "debezium-json"),
        ("BOOL", TYPE_NAMES, "BOOLEAN"),
        ("TIMESTAMP_NTZ", TYPE_NAMES, None),
        ("upsert_kafka", connector_names(), "upsert-kafka"),
        ("postgres-cdc", connector_names(), None),
        ("mix", ("min", "max"), None),
        ("col3", ("col1", "col2"), None),
        ("MIN", ("min",), "min"),
        ("min", ("min",), None),
        ("", ("a",), None),
        ("$", ("a", "$$"), None),
        ("x" * 100_000, ("y" * 100_000, "x" * 99_999), None),
        ("lookupMaxRetries", ("lookup.max-retries", "sink.max-retries"), "lookup.max-retries"),
    ],
)
def test_names_of_the_same_meaning(name: str, known: Iterable[str], expected: str | None) -> None:
    assert find_similar_name(name, known) == expected


# --- what is suggested is accepted ----------------------------------------------------------------


def test_suggested_options_exist() -> None:
    for key in OPTIONS:
        try:
            check_option(key[:-1] + key[-1] * 2, "x")
        except EverfoldError as error:
            suggested = _SUGGESTION.findall(error.diagnostics[0].help or "")
            assert suggested == [key]
            assert OPTIONS[suggested[0]]


@pytest.mark.parametrize("connector", [name for name in connector_names() if name != "topic"])
def test_suggested_options_of_tables_are_accepted(connector: str) -> None:
    known = set(table_options(connector))
    for name in known:
        suggested = _SUGGESTION.findall(help_of(f"CREATE TABLE t (a INT) WITH {with_options(connector, name + 'x')}"))
        assert set(suggested) <= known
        for spelling in suggested:
            accepted = help_of(f"CREATE TABLE t (a INT) WITH {with_options(connector, spelling)}")
            assert f"`{spelling}`" not in accepted, accepted


def with_options(connector: str, name: str) -> str:
    return f"('connector' = '{connector}', '{name}' = '1')" if name != "connector" else "('connector' = 'x')"


def help_of(sql: str) -> str:
    """Return the errors and helps of reading a table, in one string."""
    from everfold.connectors.contract import Role
    from everfold.connectors.registry import apply_connector
    from everfold.connectors.validate import check_table
    from everfold.sql.catalog import CatalogTable

    session = Session(connected=apply_connector)
    list(session.run(sql))
    entry = session.catalog.get(("t",))
    assert isinstance(entry, CatalogTable)
    try:
        check_table(entry.table, Role.SOURCE)
    except EverfoldError as error:
        unknown = [each for each in error.diagnostics if each.code == "unknown-option"]
        return "\n".join(f"{each.message}: {each.help}" for each in unknown)
    return ""


@pytest.mark.parametrize("name", TYPE_NAMES)
def test_suggested_types_exist(name: str) -> None:
    forms = ("", "<INT>", "<INT, INT>", "<a INT>", " DAY", "(3)")
    assert any(_is_accepted(f"CREATE TABLE t (a {name}{form})") for form in forms), name


def _is_accepted(sql: str) -> bool:
    try:
        list(Session().run(sql))
    except EverfoldError:
        return False
    return True


@pytest.mark.parametrize("word", _STATEMENTS)
def test_suggested_statements_exist(word: str) -> None:
    help_text = sql_help(f"{word}{word[-1]} x")
    assert help_text == f"did you mean `{word}`?"
    assert "expected a statement" not in sql_message(f"{word} )")


# --- nothing harmful ------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["DORP", "DROPP", "DRP", "RSET", "RESETT", "SOTP", "STOPP", "TOP", "DUMP"])
def test_no_destructive_statement_is_suggested(word: str) -> None:
    assert "did you mean" not in sql_help(f"{word} TABLE t")


@pytest.mark.parametrize("sql", ["CREATE OR ALTER TABLE t (a INT)", "CREATE OR REPLACE VIEW v AS SELECT 1", "ALTER TABLE t ADD b INT"])  # fmt: skip
def test_a_changed_declaration_is_an_edited_one(sql: str) -> None:
    assert "DROP" not in sql_help(sql)
    assert "a script declares its tables and views each time it runs" in sql_help(sql)


def sql_help(sql: str) -> str:
    return _diagnostic(sql).help or ""


def sql_message(sql: str) -> str:
    return str(_diagnostic(sql).message)


def _diagnostic(sql: str) -> Any:
    try:
        list(Session().run(sql))
    except EverfoldError as error:
        return error.diagnostics[0]
    pytest.fail(f"accepted: {sql}")


WRONG_OPTIONS = (
    "--dry-run", "--dryrun", "--dry", "--preview", "--purge", "--prun", "--prune-all", "--delete", "--force", "--yes",
    "--no-color", "--output", "--verbose", "--restore", "--resto", "--blesss", "--less", "--allow-change", "--writ",
    "--rewrite", "--statt", "--state-dir", "--on-chang", "--confi", "--timeout-s", "--max", "--reset", "--rebuild",
)  # fmt: skip
WRONG_COMMANDS = (
    "rolback",
    "roll-back",
    "expires",
    "exprie",
    "stp",
    "stops",
    "rescal",
    "stat",
    "stats",
    "delete",
    "rm",
)


@pytest.mark.parametrize("command", everfold.commands)
def test_wrong_options_of_commands(command: str) -> None:
    context = click.Context(everfold.commands[command], info_name=command)
    known = [name for parameter in context.command.params for name in parameter.opts]
    for name in (*WRONG_OPTIONS, *(f"{option}x" for option in known if option.startswith("--"))):
        error = click.NoSuchOption(name, possibilities=known, ctx=context)
        limit_suggestions(error)
        for suggested in error.possibilities or ():
            assert suggested in known
            assert suggested not in DESTRUCTIVE
            assert suggested.startswith(name[:4]), (name, suggested)


@pytest.mark.parametrize("name", WRONG_COMMANDS)
def test_wrong_commands(name: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        everfold.main([name], standalone_mode=False)
    limit_suggestions(caught.value)
    message = caught.value.format_message()
    assert not [
        command for command in DESTRUCTIVE if f"'{command}'" in message.removeprefix(f"No such command '{name}'.")
    ]


def test_dry_run_does_not_suggest_prune() -> None:
    with pytest.raises(click.UsageError) as caught:
        everfold.main(["run", "--dry-run", "x.sql"], standalone_mode=False)
    limit_suggestions(caught.value)
    assert caught.value.format_message() == "No such option '--dry-run'."


_HARMFUL = re.compile(
    r"\b(DROP|TRUNCATE|DELETE FROM)\b|--prune|\b(remove|delete|empty|drop) (it|the|this|them)\b", re.IGNORECASE
)
_HARMLESS = {
    # the statement already drops something of this name, in the session
    "temporary-hides", "unknown-function", "not-a-view", "not-a-table",
    # a part of a script, an answer or an option
    "duplicate-option", "unsupported-statement", "unsupported-clause", "unsupported-hint", "not-an-aggregate",
    "recursive-view", "not-in-flink", "not-in-lenses", "duplicate-column", "null-rowtime",
}  # fmt: skip


def test_no_page_advises_something_destructive() -> None:
    found = [
        f"{entry.code}: {entry.fix}"
        for entry in all_codes()
        if entry.code not in _HARMLESS and _HARMFUL.search(entry.fix)
    ]
    assert not found, "\n".join(found)


def test_no_help_advises_something_destructive() -> None:
    codes = {entry.code for entry in all_codes()}
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent.name == "error_codes":
            continue
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if _HARMFUL.search(source) else ():
            if not isinstance(node, ast.Call):
                continue
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            code = next(
                (each.value for each in arguments if isinstance(each, ast.Constant) and each.value in codes), None
            )
            helps = [each for each in arguments[-1:] if code is not None and code not in _HARMLESS]
            found += [
                f"{path.relative_to(SOURCE)}:{text.lineno}: {text.value}"
                for each in helps
                for text in ast.walk(each)
                if isinstance(text, ast.Constant) and isinstance(text.value, str) and _HARMFUL.search(text.value)
            ]
    assert not found, "\n".join(found)
