"""Conditions of WHERE over subqueries: IN and EXISTS become semi and anti joins."""

from __future__ import annotations

from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import Join, JoinKind, Plan
from everfold.sql import syntax
from everfold.sql.binder.constants import boolean_literal
from everfold.sql.binder.context import Context
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.scope import Relation
from everfold.sql.binder.subqueries import bind_subquery
from everfold.sql.functions import build


def semi_join(node: syntax.Expression, relation: Relation, context: Context) -> Plan | None:
    """Return the plan of WHERE [NOT] IN (SELECT …) or [NOT] EXISTS (SELECT …); None for others."""
    negated = False
    inner = node
    while isinstance(inner, syntax.Not):
        negated, inner = not negated, inner.operand
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    span = node.span
    if isinstance(inner, syntax.Exists):
        plan = bind_subquery(inner.query, inner.query, relation, context)
        return Join(left=relation.plan, right=plan, kind=kind, condition=boolean_literal(True), span=span)
    if not isinstance(inner, syntax.InQuery):
        return None
    plan = bind_subquery(inner.subquery.query, inner.subquery, relation, context)
    nodes = inner.operand.items if isinstance(inner.operand, syntax.Tuple) else (inner.operand,)
    if len(plan.schema) != len(nodes):
        raise context.error(
            "wrong-arguments", f"IN compares {len(nodes)} values with a subquery of {len(plan.schema)} columns", inner
        )
    width = len(relation.plan.schema)
    condition: Expr | None = None
    for at, each in enumerate(nodes):
        value = ExpressionBinder(relation, context, "WHERE").bind(each)
        field = plan.schema[at]
        same = build("=", (value, InputRef(type=field.type, position=width + at, name=field.name)), span)
        condition = same if condition is None else build("AND", (condition, same), span)
    assert condition is not None
    if negated:  # NOT IN is TRUE only if no comparison is TRUE or UNKNOWN
        condition = build("NOT", (build("IS FALSE", (condition,), span),), span)
    return Join(left=relation.plan, right=plan, kind=kind, condition=condition, span=span)
