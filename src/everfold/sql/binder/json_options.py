"""The clauses inside the parentheses of JSON functions, as plain arguments.

A missing clause becomes an untyped NULL, or is left out if no other clause follows. `JSON_OBJECT`
and `JSON_ARRAY` take theirs as the first argument.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from everfold.plan.expressions import Expr, Literal
from everfold.sql.binder.literals import null_literal, string_literal
from everfold.sql.dialects.nodes import CallOption, FunctionCall

_TRAILING = {
    "JSON_VALUE": ("RETURNING", "ON EMPTY", "DEFAULT ON EMPTY", "ON ERROR", "DEFAULT ON ERROR"),
    "JSON_QUERY": ("RETURNING", "WRAPPER", "ON EMPTY", "ON ERROR"),
    "JSON_EXISTS": ("ON ERROR",),
}
_ON_NULL = {"JSON_OBJECT": "NULL", "JSON_ARRAY": "ABSENT"}


def with_options(
    node: FunctionCall, args: tuple[Expr, ...], bind: Callable[[exp.Expression], Expr]
) -> tuple[Expr, ...]:
    """Return the arguments of a call, including those that stand for its clauses."""
    options = node.options
    if node.name in _ON_NULL:
        option = options.get("ON NULL")
        return (string_literal(option.value if option and option.value else _ON_NULL[node.name]), *args)
    more: list[Expr | None] = []
    for role in _TRAILING.get(node.name, ()):
        name = role.removeprefix("DEFAULT ")
        option = options.get(name)
        if option is None:
            more.append(None)
        elif role == "RETURNING":
            assert option.to is not None
            more.append(Literal(type=option.to, value=None))
        elif role == name:
            assert option.value is not None
            more.append(string_literal(option.value))
        else:
            more.append(_default(option, bind))
    while more and more[-1] is None:
        more.pop()
    return (*args, *(null_literal() if each is None else each for each in more))


def _default(option: CallOption, bind: Callable[[exp.Expression], Expr]) -> Expr | None:
    expression: exp.Expression | None = option.args.get("expression")
    return None if expression is None else bind(expression)
