"""The clauses inside the parentheses of JSON functions, as plain arguments.

A missing clause becomes an untyped NULL, or is left out if no other clause follows. `JSON_OBJECT`
and `JSON_ARRAY` take theirs as the first argument.
"""

from __future__ import annotations

from collections.abc import Callable

from everfold.plan.expressions import Expr, Literal
from everfold.sql import syntax
from everfold.sql.binder.constants import null_literal, string_literal

_TRAILING = {
    "JSON_VALUE": ("RETURNING", "ON EMPTY", "DEFAULT ON EMPTY", "ON ERROR", "DEFAULT ON ERROR"),
    "JSON_QUERY": ("RETURNING", "WRAPPER", "ON EMPTY", "ON ERROR"),
    "JSON_EXISTS": ("ON ERROR",),
}
_ON_NULL = {"JSON_OBJECT": "NULL", "JSON_ARRAY": "ABSENT"}


def with_options(
    node: syntax.FunctionCall, args: tuple[Expr, ...], bind: Callable[[syntax.Expression], Expr]
) -> tuple[Expr, ...]:
    """Return the arguments of a call, including those that stand for its clauses."""
    if node.name in _ON_NULL:
        option = node.option("ON NULL")
        return (string_literal(option.value if option and option.value else _ON_NULL[node.name]), *args)
    more: list[Expr | None] = []
    for role in _TRAILING.get(node.name, ()):
        name = role.removeprefix("DEFAULT ")
        option = node.option(name)
        if option is None:
            more.append(None)
        elif role == "RETURNING":
            assert option.type is not None
            more.append(Literal(type=option.type, value=None))
        elif role == name:
            assert option.value is not None
            more.append(string_literal(option.value))
        else:
            more.append(None if option.default is None else bind(option.default))
    while more and more[-1] is None:
        more.pop()
    return (*args, *(null_literal() if each is None else each for each in more))
