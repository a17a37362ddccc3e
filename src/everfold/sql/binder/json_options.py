"""The clauses inside the parentheses of JSON functions, as arguments behind the plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everfold.plan.expressions import Expr
from everfold.sql.dialects.nodes import FunctionCall

if TYPE_CHECKING:
    from everfold.sql.binder.expressions import ExpressionBinder


def json_options(node: FunctionCall, binder: ExpressionBinder) -> tuple[Expr, ...]:
    """The clauses of a call as arguments."""
    if not node.options:
        return ()
    first = next(iter(node.options.values()))
    raise binder.context.unsupported("unsupported-clause", f"{first.name} is not supported in `{node.name}`", first)
