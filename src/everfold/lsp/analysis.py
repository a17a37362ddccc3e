"""Analyze a script that is being edited: all of its errors, and what its statements mean.

Statements are parsed and bound one by one, so that an error hides no other. Nothing is executed:
modules of Python functions are not imported, and no external system is accessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everfold.completion.words import split_sql, split_statements
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_tables
from everfold.errors import Diagnostic, EverfoldError, Span
from everfold.limits import MAX_CHARACTERS, MAX_STATEMENTS, MAX_TOKENS, too_complex_error
from everfold.plan.nodes import Root, Sink
from everfold.sql.planner import Session, Submit
from everfold.sql.script import DIALECT_OPTION, DIALECTS, keep_variables
from everfold.sql.statements import CreateFunction, CreateTable, CreateView, SetOption, Statement
from everfold.sql.undeclared import infer_undeclared
from everfold.sql.user_functions import Kind

_SPLIT = "split it into several scripts"
_WORDS_OF_NAME = 8
"""CREATE TEMPORARY TABLE IF NOT EXISTS and a name are no more words than these."""


@dataclass(frozen=True, slots=True)
class Work:
    """A statement that runs queries, and its plans."""

    statement: Statement
    submit: Submit

    @property
    def roots(self) -> tuple[Root, ...]:
        """The plans of its queries."""
        return self.submit.roots


@dataclass(slots=True)
class Analysis:
    """A script with what is known about it.

    dialect: that of its first statement. errors: all that were found. statements: those that could
    be parsed. works: those that run queries, and could be bound.
    """

    text: str
    source: str
    dialect: str
    session: Session
    errors: list[Diagnostic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)

    @property
    def roots(self) -> tuple[Root, ...]:
        """The plans of all queries."""
        return tuple(root for each in self.works for root in each.roots)

    def span(self, start: int, end: int) -> Span:
        """Return a range of the script."""
        return Span(start, end, self.source, self.text)


def analyze(
    text: str, source: str, folder: Path, dialect: str = "flink", options: Mapping[str, str] | None = None
) -> Analysis:
    """Analyze a script, whose relative paths start from a folder.

    A script that declares no table is read like `everfold check` does: its tables are inferred from
    their use.
    """
    too_long = _find_excess(text, source)
    if too_long is not None:
        return Analysis(text, source, dialect, Session(options), list(too_long.diagnostics))
    variables, environment = keep_variables(text)
    notes: list[str] = []
    session = Session(options, variables, environment, notes.append, apply_connector, folder)
    found = Analysis(text, source, dialect, session, notes=notes)
    broken = _parse(found, dialect)
    declares = any(isinstance(each, CreateTable) for each in found.statements) or bool(broken)
    statements = _complete(found, infer_tables=not declares)
    for statement in statements:
        _bind(found, statement, broken)
    return found


def _find_excess(text: str, source: str) -> EverfoldError | None:
    """Return the error of a script that is too long for `everfold run`, too."""
    if len(text) > MAX_CHARACTERS:
        return too_complex_error(f"it has {len(text):,} characters", MAX_CHARACTERS, None, _SPLIT)
    words = split_sql(text)
    if len(words) > MAX_TOKENS:
        first = words[MAX_TOKENS]
        span = Span(first.start, first.start + len(first.text), source, text)
        return too_complex_error(f"it has more than {MAX_TOKENS:,} tokens", MAX_TOKENS, span, _SPLIT)
    return None


def _parse(found: Analysis, dialect: str) -> set[str]:
    """Parse the statements one by one; return the first words of wrong CREATE statements.

    The name of the table is among them.
    """
    broken: set[str] = set()
    for number, part in enumerate(split_statements(found.text)):
        if number == MAX_STATEMENTS:
            what = f"it has more than {MAX_STATEMENTS:,} statements"
            blank = len(found.text[part.start : part.end]) - len(found.text[part.start : part.end].lstrip())
            span = found.span(part.start + blank, part.end)
            found.errors += too_complex_error(what, MAX_STATEMENTS, span, _SPLIT).diagnostics
            break
        try:
            parsed = DIALECTS[dialect](found.text, found.source, part)
        except EverfoldError as error:
            found.errors += error.diagnostics
            words = split_sql(found.text[part.start : part.end])[:_WORDS_OF_NAME]
            if words and words[0].key == "CREATE":
                broken |= {each.content for each in words}
            continue
        found.statements += parsed
        for each in parsed:
            if isinstance(each, SetOption) and each.key == DIALECT_OPTION and each.value in DIALECTS:
                dialect = str(each.value)
    return broken


def _complete(found: Analysis, *, infer_tables: bool) -> Sequence[Statement]:
    """Declare the functions of a script and, if asked, the tables; return what to bind."""
    inferred = infer_undeclared(found.statements, (), ())
    declared = {each.name[-1].lower(): each for each in found.statements if isinstance(each, CreateFunction)}
    for function in inferred.functions():
        statement = declared.get(function.name.lower())
        if statement is not None:
            python = replace(function.python, name=statement.name[-1], identifier=statement.identifier)
            found.session.catalog.functions.add(replace(function, python=python), Kind.TEMPORARY)
        elif infer_tables:
            found.session.catalog.functions.add(function, Kind.TEMPORARY)
    if not infer_tables:
        return found.statements
    for entry in inferred.entries():
        found.session.catalog.add(entry)
    found.session.lenient = True
    found.session.catalog.tolerated_errors = []
    return inferred.statements


def _bind(found: Analysis, statement: Statement, broken: set[str]) -> None:
    if isinstance(statement, CreateFunction):
        return
    try:
        action = found.session.execute(statement)
    except EverfoldError as error:
        errors = error.at(statement.span).diagnostics
        found.errors += (each for each in errors if not _follows(each, broken))
        if isinstance(statement, CreateTable | CreateView):
            broken.add(statement.name[-1])
        return
    if isinstance(action, Submit):
        found.works.append(Work(statement, action))
        if not found.session.lenient:
            _check_tables(found, statement, action)


def _check_tables(found: Analysis, statement: Statement, submit: Submit) -> None:
    """Check the options of the tables that queries use, unless variables decide them."""
    used = [root.table for root in submit.roots if isinstance(root, Sink)]
    if any("${" in str(value) for table in (*submit.sources, *used) for _, value in table.options):
        return
    try:
        check_tables(submit.roots, streaming=submit.settings.streaming)
    except EverfoldError as error:
        errors = error.at(statement.span).diagnostics
        found.errors += (each for each in errors if each not in found.errors)


def _follows(error: Diagnostic, broken: set[str]) -> bool:
    """Return whether an error only follows from a wrong CREATE statement."""
    return error.code in ("unknown-table", "unknown-view") and any(f"`{name}`" in error.message for name in broken)
