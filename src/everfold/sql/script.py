"""A script: text to statements, and the variables in its option values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from everfold.errors import Span, SqlError, UsageError, nearest
from everfold.sql.dialects import flink
from everfold.sql.statements import Statement

DIALECTS = {"flink": flink.parse_statements}
"""What parses a script, by the dialect's name."""

_VARIABLE = re.compile(r"\$\{(env:)?([^}]*)\}")


def parse_script(text: str, source: str = "<sql>", dialect: str = "flink") -> tuple[Statement, ...]:
    """The statements of a script; `source` names it in messages."""
    parse = DIALECTS.get(dialect)
    if parse is None:
        raise UsageError.of("unknown-dialect", f"no SQL dialect is named `{dialect}`", help=nearest(dialect, DIALECTS))
    return parse(text, source)


def resolve_variables(
    value: str, variables: Mapping[str, str], environment: Mapping[str, str], span: Span | None = None
) -> str:
    """An option's value with `${name}` and `${env:NAME}` filled in, once: what is filled in is not looked at again.

    Only values of WITH (…), OPTIONS (…) and SET go through here, when they are used, so no secret enters the SQL text or a plan.
    """

    def fill(match: re.Match[str]) -> str:
        from_environment, name = match.groups()
        known = environment if from_environment else variables
        if name in known:
            return known[name]
        if from_environment:
            raise SqlError.of("unknown-variable", f"the environment has no variable `{name}`", span, f"export {name}=…")
        message = f"no value was given for the variable `{name}`"
        raise SqlError.of("unknown-variable", message, span, nearest(name, known) or f"give it with --var {name}=…")

    return _VARIABLE.sub(fill, value)
