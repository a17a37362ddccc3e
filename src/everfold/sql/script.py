"""Parse a script into statements, and substitute the variables in its option values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from everfold.errors import Span, SqlError, UsageError, suggest_name
from everfold.limits import MAX_DIALECTS, MAX_STATEMENTS, too_complex_error
from everfold.sql.dialects import flink, lenses
from everfold.sql.dialects.tokens import Part, scan
from everfold.sql.statements import SetOption, Statement

DIALECTS = {"flink": flink.parse_statements, "lenses": lenses.parse_statements}
"""The parser of each dialect; it parses a script or a part of one."""
DIALECT_OPTION = "everfold.dialect"
"""The option that sets the dialect of the statements after it."""

_VARIABLE = re.compile(r"\$\{(env:)?([^}]*)\}")


def parse_script(text: str, source: str = "<sql>", dialect: str = "flink") -> tuple[Statement, ...]:
    """Return the statements of a script.

    `dialect` is the one it begins with; `SET 'everfold.dialect'` changes it. `source` names the
    script in messages.
    """
    if dialect not in DIALECTS:
        raise UsageError.of(
            "unknown-dialect", f"no SQL dialect is named `{dialect}`", help=suggest_name(dialect, DIALECTS)
        )
    found: list[Statement] = []
    for number, (language, part) in enumerate(split_dialects(text, source, dialect)):
        if number > MAX_DIALECTS:
            span = Span(part.start, part.start + 1, source, text)
            raise too_complex_error("it changes its dialect too often", MAX_DIALECTS, span)
        found += DIALECTS[language](text, source, part)
        if len(found) > MAX_STATEMENTS:
            what = f"it has {len(found):,} statements"
            raise too_complex_error(what, MAX_STATEMENTS, found[MAX_STATEMENTS].span, "split it into several scripts")
    return tuple(found)


def split_dialects(text: str, source: str, dialect: str) -> Iterator[tuple[str, Part]]:
    """Yield the parts of a script that are in one dialect each.

    A part ends with the SET that starts the next one.
    """
    start = 0
    if DIALECT_OPTION in text:
        tokens = scan(text, source, measures=True)
        ends = [at for at, token in enumerate(tokens) if token.key == ";"]
        for first, last in zip([0, *(at + 1 for at in ends)], ends, strict=False):
            key, _, value = "".join(token.text for token in tokens[first + 1 : last]).partition("=")
            if tokens[first].key == "SET" and key == DIALECT_OPTION and value in DIALECTS:
                yield dialect, Part(start, tokens[last].end)
                dialect, start = value, tokens[last].end
    yield dialect, Part(start, len(text))


def sets_dialect(statement: Statement) -> bool:
    """Return whether a statement sets the dialect of those after it."""
    return isinstance(statement, SetOption) and statement.key == DIALECT_OPTION


def keep_variables(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return variables and an environment that keep every `${name}` and `${env:NAME}` unchanged."""
    variables: dict[str, str] = {}
    environment: dict[str, str] = {}
    for found in _VARIABLE.finditer(text):
        (environment if found.group(1) else variables)[found.group(2)] = found.group()
    return variables, environment


def resolve_variables(
    value: str, variables: Mapping[str, str], environment: Mapping[str, str], span: Span | None = None
) -> str:
    """Return an option value with `${name}` and `${env:NAME}` substituted.

    Substituted values are not scanned again. Only values of WITH (…), OPTIONS (…) and SET pass
    through here, when they are used, so no secret enters the SQL text or a plan.
    """

    def fill(match: re.Match[str]) -> str:
        from_environment, name = match.groups()
        known = environment if from_environment else variables
        if name in known:
            return known[name]
        if from_environment:
            raise SqlError.of("unknown-variable", f"the environment has no variable `{name}`", span, f"export {name}=…")
        message = f"no value was given for the variable `{name}`"
        raise SqlError.of(
            "unknown-variable", message, span, suggest_name(name, known) or f"give it with --var {name}=…"
        )

    return _VARIABLE.sub(fill, value)
