"""Subqueries within expressions: scalar ones become columns of a join, IN and EXISTS become semi and anti joins."""

from __future__ import annotations

from sqlglot import exp

from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import GroupAggregate, Join, JoinKind, Limit, Plan, Project, Values
from everfold.sql.binder.bounded import beside_stream, check_bounded
from everfold.sql.binder.context import Context
from everfold.sql.binder.literals import truth
from everfold.sql.binder.scope import Relation


class Subqueries:
    """The scalar subqueries of a clause: each is a column behind the `width` columns of the relation."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.plans: list[Plan] = []

    def bind(self, node: exp.Expression, relation: Relation, context: Context) -> Expr:
        """The value of a scalar subquery."""
        if not isinstance(node, (exp.Subquery, exp.Query)):
            raise context.unsupported(
                "subquery",
                "IN and EXISTS with a subquery are conditions of WHERE, by themselves or joined by AND",
                node,
                "write it as a join",
            )
        plan = subquery_plan(node, relation, context)
        if len(plan.schema) != 1:
            raise context.error(
                "wrong-arguments", f"a subquery used as a value has one column, not {len(plan.schema)}", node
            )
        if not _one_row(plan):
            raise context.unsupported(
                "scalar-subquery",
                "a subquery used as a value must have one row whatever the data",
                node,
                "aggregate it, as in (SELECT MAX(x) FROM t)",
            )
        if plan not in self.plans:
            self.plans.append(plan)
        return InputRef(
            type=plan.schema[0].type.as_nullable(),
            position=self.width + self.plans.index(plan),
            span=context.span(node),
        )

    def joined(self, plan: Plan) -> Plan:
        """The relation's plan with a column for each subquery."""
        for each in self.plans:
            plan = Join(left=plan, right=each, kind=JoinKind.LEFT, condition=truth(True))
        return plan


def subquery_plan(node: exp.Expression, relation: Relation, context: Context) -> Plan:
    """The plan of a subquery that may not refer to the relation around it."""
    from everfold.sql.binder.queries import bind_body

    query = node.this if isinstance(node, exp.Subquery) else node
    plan = bind_body(query, beside_stream(context).inside(relation)).plan
    check_bounded(plan, node, context)
    return plan


def _one_row(plan: Plan) -> bool:
    """Whether a plan has at most one row, whatever the data."""
    match plan:
        case GroupAggregate():
            return not plan.keys
        case Values():
            return len(plan.rows) <= 1
        case Limit():
            return plan.count is not None and plan.count <= 1
        case Project():
            return _one_row(plan.input)
        case _:
            return False


def semi_join(node: exp.Expression, relation: Relation, context: Context) -> Plan | None:
    """The plan of a WHERE whose condition is [NOT] IN (SELECT …) or [NOT] EXISTS (SELECT …); None for another condition."""
    from everfold.sql.binder.expressions import ExpressionBinder
    from everfold.sql.functions import build

    negated = False
    inner = node
    while isinstance(inner, exp.Not):
        negated, inner = not negated, inner.this
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    span = context.span(node)
    if isinstance(inner, exp.Exists):
        plan = subquery_plan(inner.this, relation, context)
        return Join(left=relation.plan, right=plan, kind=kind, condition=truth(True), span=span)
    if not isinstance(inner, exp.In) or inner.args.get("query") is None:
        return None
    plan = subquery_plan(inner.args["query"], relation, context)
    nodes = inner.this.expressions if isinstance(inner.this, exp.Tuple) else [inner.this]
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
    if negated:  # NOT IN is TRUE only where no row compares as equal and none as unknown
        condition = build("NOT", (build("IS FALSE", (condition,), span),), span)
    return Join(left=relation.plan, right=plan, kind=kind, condition=condition, span=span)
