"""Conditions of WHERE and HAVING over subqueries: IN and EXISTS become semi and anti joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everfold.errors import Span
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import Join, JoinKind, Plan
from everfold.sql import syntax
from everfold.sql.binder.constants import boolean_literal
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.subqueries import bind_subquery
from everfold.sql.functions import build


@dataclass(frozen=True, slots=True)
class SemiJoin:
    """[NOT] IN (SELECT …) with its values, or [NOT] EXISTS (SELECT …) without."""

    subquery: Plan
    negated: bool
    values: tuple[Expr, ...]
    span: Span | None

    def join_to(self, plan: Plan, rewrite: Callable[[Expr], Expr] = lambda value: value) -> Plan:
        """Return the rows of a plan that meet the condition.

        `rewrite` converts the values to expressions over the plan.
        """
        width = len(plan.schema)
        condition: Expr | None = None
        for position, value in enumerate(self.values):
            field = self.subquery.schema[position]
            other = InputRef(type=field.type, position=width + position, name=field.name)
            same = build("=", (rewrite(value), other), self.span)
            condition = same if condition is None else build("AND", (condition, same), self.span)
        if condition is None:
            condition = boolean_literal(True)
        elif self.negated:  # NOT IN is TRUE only if no comparison is TRUE or UNKNOWN
            condition = build("NOT", (build("IS FALSE", (condition,), self.span),), self.span)
        kind = JoinKind.ANTI if self.negated else JoinKind.SEMI
        return Join(left=plan, right=self.subquery, kind=kind, condition=condition, span=self.span)


def bind_semi_join(node: syntax.Expression, binder: ExpressionBinder) -> SemiJoin | None:
    """Return a condition [NOT] IN (SELECT …) or [NOT] EXISTS (SELECT …); None for others."""
    relation, context = binder.relation, binder.context
    negated = False
    inner = node
    while isinstance(inner, syntax.Not):
        negated, inner = not negated, inner.operand
    if isinstance(inner, syntax.Exists):
        return SemiJoin(bind_subquery(inner.query, inner.query, relation, context), negated, (), node.span)
    if not isinstance(inner, syntax.InQuery):
        return None
    plan = bind_subquery(inner.subquery.query, inner.subquery, relation, context)
    nodes = inner.operand.items if isinstance(inner.operand, syntax.Tuple) else (inner.operand,)
    if len(plan.schema) != len(nodes):
        raise context.error(
            "wrong-arguments", f"IN compares {len(nodes)} values with a subquery of {len(plan.schema)} columns", inner
        )
    values = tuple(map(binder.bind, nodes))
    for value, field in zip(values, plan.schema, strict=True):  # raises the error of types that do not compare
        build("=", (value, InputRef(type=field.type, position=0, name=field.name)), node.span)
    return SemiJoin(plan, negated, values, node.span)
