"""Completion of SQL: a list of candidates for the word before the cursor.

Which kinds of names come next is decided by the words before it (`_TABLES_AFTER` and the rest);
the names come from a catalog and the registries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from everfold.completion.words import Kind, Word, last_statement, split_sql, split_words

if TYPE_CHECKING:
    from everfold.connectors.options import Option
    from everfold.sql.catalog import Catalog, Entry


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completion. text: replaces `length` characters before the cursor. kind, meaning: shown."""

    text: str
    length: int
    kind: str
    meaning: str = ""


Found: TypeAlias = Iterable[tuple[str, str, str]]
"""Candidates as text, kind and meaning."""

STATEMENTS = (
    "SELECT", "INSERT INTO", "CREATE TABLE", "CREATE TEMPORARY TABLE", "CREATE VIEW", "CREATE TEMPORARY VIEW",
    "CREATE FUNCTION", "DROP TABLE", "DROP VIEW", "DROP FUNCTION", "DESCRIBE", "EXPLAIN", "EXECUTE STATEMENT SET BEGIN",
    "SET", "RESET", "SHOW TABLES", "SHOW VIEWS", "SHOW FUNCTIONS", "SHOW USER FUNCTIONS", "SHOW COLUMNS FROM",
    "SHOW CREATE TABLE", "SHOW CREATE VIEW", "SHOW CATALOGS", "SHOW DATABASES", "SHOW CURRENT CATALOG",
    "SHOW CURRENT DATABASE", "USE", "VALUES", "WITH",
)  # fmt: skip
"""The beginnings of the statements of a script."""
_TABLES_AFTER = frozenset({"FROM", "JOIN", "INTO", "TABLE", "DESCRIBE", "DESC", "OVERWRITE", "LIKE", "VIEW", ","})
_WINDOWS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_NOT_ALIASES = frozenset({
    "WHERE", "GROUP", "ORDER", "HAVING", "JOIN", "LEFT", "RIGHT", "INNER", "CROSS", "FULL", "ON", "UNION", "LIMIT",
    "FOR", "WINDOW", "QUALIFY", "PARTITION", "WITH", "SET", "VALUES", "SELECT", "EXCEPT", "INTERSECT",
})  # fmt: skip


class Completer:
    """Completes SQL with the names of a catalog.

    statements: their beginnings. jobs: returns the names of jobs that statements may use.
    """

    def __init__(
        self,
        catalog: Catalog,
        statements: Sequence[str] = STATEMENTS,
        jobs: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._catalog = catalog
        self._statements = statements
        self._jobs = jobs

    def complete(self, before: str, after: str = "") -> list[Candidate]:
        """Return the candidates for the text before the cursor, best first.

        `after` is the rest of the statement, whose tables count, too.
        """
        if _ends_in_comment(before):
            return []
        words = last_statement(split_sql(before))
        typed, found = self._find(words, before, after)
        unique = {text: (kind, meaning) for text, kind, meaning in reversed(list(found))}
        chosen = [
            Candidate(text, len(typed), kind, meaning)
            for text, (kind, meaning) in reversed(unique.items())
            if text.lower().startswith(typed.lower()) and text != typed
        ]
        return sorted(chosen, key=lambda each: _RANK.get(each.kind, 9))

    def _find(self, words: Sequence[Word], before: str, after: str) -> tuple[str, Found]:
        """Return the typed part of the last word, and the names that can stand there."""
        last = words[-1] if words else None
        if last is not None and last.is_open and last.kind is Kind.STRING:
            return last.content, self._complete_string([*words[:-1]], words)
        is_typing = last is not None and last.kind is Kind.WORD and before.endswith(last.text)
        typed = last.text if is_typing and last is not None else ""
        done = list(words[:-1] if is_typing else words)
        if len(done) >= 2 and done[-1].key == "." and done[-2].kind in (Kind.WORD, Kind.QUOTED):
            return typed, self._columns_of(done[-2].content, [*words, *split_sql(after)])
        statement = " ".join(each.key for each in done)
        starts = [each for each in self._statements if each.startswith(f"{statement} ")] if done else self._statements
        if not done or (
            starts and all(each.kind is Kind.WORD for each in done) and statement not in ("SELECT", "WITH")
        ):
            rests = [(each[len(statement) :].strip(), "statement", "") for each in starts]
            return typed, [*rests, *self._names_after(done, words, after)] if done else rests
        return typed, self._names_after(done, words, after)

    def _names_after(self, done: Sequence[Word], words: Sequence[Word], after: str) -> Found:
        previous = done[-1].key if done else ""
        keys = [each.key for each in done]
        if previous == "," and not _in_from(keys):
            previous = ""
        if previous in _TABLES_AFTER:
            yield from self.tables()
            yield from ((quote_if_needed(name), "view", "") for name in _common_tables(words))
            yield from (
                (f"{name}(", "function", "window") for name in _WINDOWS if previous in ("FROM", "JOIN", "TABLE", ",")
            )
            return
        if previous in ("USE", "IN") and keys[0] in ("USE", "SHOW"):
            yield from ((each, "name", "") for each in ("default_catalog", "default_database"))
            return
        if previous == "WITH" and keys[0] == "CREATE":
            yield "(", "keyword", ""
            return
        yield from self._columns([*words, *split_sql(after)])
        yield from self._functions()
        yield from self._keywords()

    # --- names ------------------------------------------------------------------------------------

    def tables(self) -> Found:
        """Return the tables and views."""
        from everfold.sql.catalog import CatalogTable

        for entry in self._catalog.entries():
            yield quote_if_needed(entry.name), "table" if isinstance(entry, CatalogTable) else "view", ""

    def _columns(self, words: Sequence[Word]) -> Found:
        """Return the columns of the tables in a statement; of all tables if there are none."""
        named = list(self._entries(words))
        for name, entry in named or [(each.name, each) for each in self._catalog.entries()]:
            yield from ((quote_if_needed(field.name), "column", f"{name} {field.type.sql}") for field in entry.schema)

    def _columns_of(self, alias: str, words: Sequence[Word]) -> Found:
        for name, entry in self._entries(words):
            if name == alias:
                yield from ((quote_if_needed(field.name), "column", field.type.sql) for field in entry.schema)

    def _entries(self, words: Sequence[Word]) -> Iterator[tuple[str, Entry]]:
        """Yield the tables that a statement names, under their names and aliases."""
        catalog = self._catalog
        for at, word in enumerate(words):
            entry = catalog.find((word.content,)) if word.kind in (Kind.WORD, Kind.QUOTED) else None
            if entry is None or (at and words[at - 1].key == "."):
                continue
            yield entry.name, entry
            rest = [each for each in words[at + 1 : at + 3] if each.key != "AS"]
            if rest and rest[0].kind in (Kind.WORD, Kind.QUOTED) and rest[0].key not in _NOT_ALIASES:
                yield rest[0].content, entry

    def _functions(self) -> Found:
        from everfold.aggregates import registry as aggregates
        from everfold.sql.dialects.keywords import NILADIC
        from everfold.sql.functions import registry as functions

        for each in self._catalog.functions:
            yield f"{each.name}(", "function", "user-defined"
        for name in (*aggregates.names(self._catalog.settings.dialect), *aggregates.window_function_names()):
            meaning = (type(aggregates.lookup(name)).__doc__ or "").strip().split("\n")[0]
            yield f"{name}(", "function", meaning
        for name in functions.names():
            entry = functions.lookup(name)
            called = name if name in NILADIC else f"{name}("
            yield called, "function", "" if entry is None else entry.doc

    def _keywords(self) -> Found:
        from everfold.sql.dialects.keywords import KEYWORDS
        from everfold.sql.dialects.types import TYPE_NAMES

        yield from ((each, "keyword", "") for each in sorted(KEYWORDS))
        yield from ((each, "type", "") for each in TYPE_NAMES)

    # --- strings ----------------------------------------------------------------------------------

    def _complete_string(self, done: Sequence[Word], words: Sequence[Word]) -> Found:
        keys = [each.key for each in done]
        if keys[:1] == ["SET"]:
            return self._values_of_set(done[1].content) if len(done) > 2 else self._options_of_set()
        if keys[:1] == ["RESET"]:
            return [(each, "option", "") for each in self._catalog.settings.options]
        if keys in (["STOP", "JOB"], ["DESCRIBE", "JOB"], ["DESC", "JOB"]):
            return [(each, "job", "") for each in self._jobs()]
        if "WITH" in keys or "OPTIONS" in keys:
            given = _options_of(words)
            is_value = bool(keys) and keys[-1] == "="
            return self._values_of_table(done[-2].content, given) if is_value else self._options_of_table(given)
        return ()

    def _options_of_set(self) -> Found:
        from everfold.sql.settings import OPTIONS

        return [(each.key, "option", each.meaning or each.why) for each in OPTIONS.values()]

    def _values_of_set(self, key: str) -> Found:
        from everfold.sql.settings import OPTIONS

        option = OPTIONS.get(key)
        return [(each, "value", "") for each in option.choices] if option is not None else ()

    def _options_of_table(self, given: Sequence[tuple[str, str]]) -> Found:
        options = self._table_options(given)
        if not options:
            return [("connector", "option", "which system the table is in")]
        taken = {name for name, _ in given}
        return [
            (option.name.removesuffix("*"), "option", option.meaning or option.note or "")
            for option in options
            if option.name not in taken
        ]

    def _values_of_table(self, key: str, given: Sequence[tuple[str, str]]) -> Found:
        from everfold.connectors.formats import registry as formats
        from everfold.connectors.registry import connector_names

        if key == "connector":
            return [(each, "connector", "") for each in connector_names()]
        if key in ("format", "key.format", "value.format"):
            return [(each, "format", "") for each in formats.NAMES]
        for option in self._table_options(given):
            if option.name == key:
                values = ("true", "false") if option.type == "bool" else option.type
                return () if isinstance(values, str) else [(each, "value", "") for each in values]
        return ()

    def _table_options(self, given: Sequence[tuple[str, str]]) -> Sequence[Option]:
        """Return the options of a table that has some already; none without a connector."""
        from everfold.connectors.registry import connector_names, get_connector
        from everfold.plan.nodes import Table

        name = dict(given).get("connector", "")
        if name not in connector_names():
            return ()
        found = get_connector(name).options(Table(name="t", columns=(), options=tuple(given))).options
        return [each for each in found if each.name != "connector"]


_RANK = {"column": 0, "table": 1, "view": 1, "statement": 1, "function": 2, "keyword": 3, "type": 4}
"""The order of kinds; those of one kind keep the order in which they were found."""


def _ends_in_comment(text: str) -> bool:
    words = split_words(text)
    return bool(words) and words[-1].kind is Kind.COMMENT and not words[-1].text.endswith("*/")


def _in_from(keys: Sequence[str]) -> bool:
    """Return whether the last clause of a query is FROM."""
    clauses = [key for key in keys if key in ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "INSERT", "(")]
    return bool(clauses) and clauses[-1] == "FROM"


def _common_tables(words: Sequence[Word]) -> Iterator[str]:
    """Yield the names that WITH gives to queries: those before `AS (`."""
    for name, of, opened in zip(words, words[1:], words[2:], strict=False):
        if name.kind in (Kind.WORD, Kind.QUOTED) and of.key == "AS" and opened.key == "(":
            yield name.content


def _options_of(words: Sequence[Word]) -> list[tuple[str, str]]:
    """Return the complete `'key' = 'value'` pairs of a statement."""
    found = []
    for key, sign, value in zip(words, words[1:], words[2:], strict=False):
        if key.kind is value.kind is Kind.STRING and sign.key == "=" and not value.is_open:
            found.append((key.content, value.content))
    return found


def quote_if_needed(name: str) -> str:
    """Return a name as it is written in SQL."""
    from everfold.sql.dialects.keywords import NOT_A_NAME

    is_plain = re.fullmatch(r"[^\W0-9]\w*", name) is not None and name.upper() not in NOT_A_NAME
    return name if is_plain else "`" + name.replace("`", "``") + "`"
