"""Subqueries within expressions: scalar ones become columns of a join, IN and EXISTS become semi and anti joins."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from everfold.aggregates.registry import Signature
from everfold.errors import Span
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import AggCall, GroupAggregate, Join, JoinKind, Limit, Plan, Project, Values
from everfold.sql.binder.bounded import beside_stream, check_bounded
from everfold.sql.binder.context import Context
from everfold.sql.binder.literals import truth
from everfold.sql.binder.names import aggregate_named
from everfold.sql.binder.scope import Relation


class Subqueries:
    """The subqueries of a clause that have one row: their columns are behind the `width` columns of the relation."""

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
        plan = _one_column(node, relation, context)
        if not _one_row(plan):
            raise context.unsupported(
                "scalar-subquery",
                "a subquery used as a value must have one row whatever the data",
                node,
                "aggregate it, as in (SELECT MAX(x) FROM t)",
            )
        (column,) = self._columns(plan, context.span(node))
        return column

    def bind_values(self, node: exp.Expression, relation: Relation, context: Context) -> SubqueryValues:
        """What a comparison with all values of a subquery needs to know of them."""
        plan, span = _one_column(node, relation, context), context.span(node)
        value = InputRef(type=plan.schema[0].type, position=0, name=plan.schema[0].name)
        calls = []
        for name, args in (("MIN", (value,)), ("MAX", (value,)), ("COUNT", ()), ("COUNT", (value,))):
            entry = aggregate_named(name)
            assert entry is not None
            result = entry.result_type(Signature(tuple(each.type for each in args)))
            if result is None:
                raise context.error("wrong-arguments", f"values of type {value.type.sql} have no order", node)
            calls.append(AggCall(function=name, args=args, type=result, span=span))
        return SubqueryValues(*self._columns(GroupAggregate(input=plan, keys=(), calls=tuple(calls), span=span), span))

    def _columns(self, plan: Plan, span: Span | None) -> list[InputRef]:
        """The columns of a subquery of one row, behind those of the relation and of the subqueries before it."""
        if plan not in self.plans:
            self.plans.append(plan)
        before = self.plans[: self.plans.index(plan)]
        first = self.width + sum(len(each.schema) for each in before)
        return [
            InputRef(type=of.type.as_nullable(), position=first + at, span=span) for at, of in enumerate(plan.schema)
        ]

    def joined(self, plan: Plan) -> Plan:
        """The relation's plan with a column for each subquery."""
        for each in self.plans:
            plan = Join(left=plan, right=each, kind=JoinKind.LEFT, condition=truth(True))
        return plan


@dataclass(frozen=True, slots=True)
class SubqueryValues:
    """The least and the greatest value of a subquery, how many rows it has, and how many of them are not NULL."""

    least: Expr
    greatest: Expr
    rows: Expr
    known: Expr


def _one_column(node: exp.Expression, relation: Relation, context: Context) -> Plan:
    plan = subquery_plan(node, relation, context)
    if len(plan.schema) != 1:
        message = f"a subquery used as a value has one column, not {len(plan.schema)}"
        raise context.error("wrong-arguments", message, node)
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
