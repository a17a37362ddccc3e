"""Hints after SELECT: STATE_TTL sets how long the state of its aggregates is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import suggest_or_list_names
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.scope import Relation
from everfold.sql.settings import parse_duration


def with_hints(hints: Sequence[syntax.Hint], relation: Relation, context: Context) -> Context:
    """Return the context of a SELECT with its hints applied.

    `relation` is that of its FROM. A hint names a table, view or subquery by its name or alias
    there.
    """
    for hint in hints:
        if hint.name != "STATE_TTL":
            raise context.unsupported(
                "unsupported-hint",
                f"the hint {hint.name} is not supported after SELECT",
                hint,
                "leave it out: Spark chooses the join strategy" if hint.name in _JOIN_HINTS else None,
            )
        for entry in hint.arguments:
            context = _apply_ttl(entry, relation, context)
    return context


_JOIN_HINTS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "LOOKUP", "MULTI_JOIN")


def _apply_ttl(entry: syntax.Expression, relation: Relation, context: Context) -> Context:
    match entry:
        case syntax.BinaryOperation(
            operator="=",
            left=written,
            right=syntax.StringLiteral(value=duration) | syntax.NumberLiteral(text=duration),
        ):
            name = written.value if isinstance(written, syntax.StringLiteral) else context.sql(written).strip("`")
        case _:
            raise context.error(
                "wrong-arguments", "STATE_TTL takes 'table' = 'duration'", entry, "such as STATE_TTL('t' = '1 d')"
            )
    names = list(dict.fromkeys(column.relation for column in relation.columns if column.relation is not None))
    if name not in names:
        message = f"STATE_TTL names `{name}`, and FROM has no item of that name"
        raise context.error("unknown-table", message, entry, suggest_or_list_names(name, names))
    try:
        ttl_ms = parse_duration(duration)
    except ValueError as error:
        message = f"STATE_TTL of `{name}`: `{duration}` is not a duration"
        raise context.error("wrong-arguments", message, entry, str(error)) from None
    # A join with a bounded table has no state that the hint could apply to.
    return replace(context, state_ttl_ms=ttl_ms) if len(names) == 1 else context
