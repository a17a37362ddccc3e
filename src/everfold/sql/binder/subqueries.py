"""Subqueries in expressions: scalar ones become columns of a join."""

from __future__ import annotations

from dataclasses import dataclass

from everfold.aggregates.registry import Signature
from everfold.errors import Span
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import AggCall, GroupAggregate, Join, JoinKind, Limit, Plan, Project, Values
from everfold.sql import syntax
from everfold.sql.binder.bounded import batch_context, check_bounded
from everfold.sql.binder.constants import boolean_literal
from everfold.sql.binder.context import Context
from everfold.sql.binder.names import find_aggregate
from everfold.sql.binder.scope import Relation

OVER_GROUPS = 1 << 19
"""Position of the first column of subqueries over groups, until the groups are built."""


class Subqueries:
    """The one-row subqueries of a clause; their columns follow the relation's `width` columns."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.plans: list[Plan] = []

    def bind(self, node: syntax.Expression, relation: Relation, context: Context) -> Expr:
        """Return the value of a scalar subquery."""
        if not isinstance(node, syntax.Subquery):
            raise context.unsupported(
                "subquery",
                "IN and EXISTS with a subquery are only supported as conditions of WHERE and HAVING, "
                "alone or combined by AND",
                node,
                "write it as a join",
            )
        plan = _bind_one_column(node, relation, context)
        if not _has_one_row(plan):
            raise context.unsupported(
                "scalar-subquery",
                "a subquery used as a value must return one row for any data",
                node,
                "aggregate it, as in (SELECT MAX(x) FROM t)",
            )
        (column,) = self._columns(plan, node.span)
        return column

    def bind_values(self, node: syntax.Subquery, relation: Relation, context: Context) -> SubqueryValues:
        """Return what a comparison with all values of a subquery needs."""
        plan, span = _bind_one_column(node, relation, context), node.span
        value = InputRef(type=plan.schema[0].type, position=0, name=plan.schema[0].name)
        calls = []
        for name, args in (("MIN", (value,)), ("MAX", (value,)), ("COUNT", ()), ("COUNT", (value,))):
            entry = find_aggregate(name)
            assert entry is not None
            result = entry.result_type(Signature(tuple(each.type for each in args)))
            if result is None:
                raise context.error("wrong-arguments", f"values of type {value.type.sql} have no order", node)
            calls.append(AggCall(function=name, args=args, type=result, span=span))
        return SubqueryValues(*self._columns(GroupAggregate(input=plan, keys=(), calls=tuple(calls), span=span), span))

    def _columns(self, plan: Plan, span: Span | None) -> list[InputRef]:
        """Return the columns of a one-row subquery.

        They follow those of the relation and of earlier subqueries.
        """
        if plan not in self.plans:
            self.plans.append(plan)
        before = self.plans[: self.plans.index(plan)]
        first = self.width + sum(len(each.schema) for each in before)
        return [
            InputRef(type=of.type.as_nullable(), position=first + at, span=span) for at, of in enumerate(plan.schema)
        ]

    def join_to(self, plan: Plan) -> Plan:
        """Return the relation's plan with the columns of all subqueries."""
        for each in self.plans:
            plan = Join(left=plan, right=each, kind=JoinKind.LEFT, condition=boolean_literal(True))
        return plan


@dataclass(frozen=True, slots=True)
class SubqueryValues:
    """Minimum and maximum of a subquery's values, the number of rows, and of non-NULL values."""

    least: Expr
    greatest: Expr
    rows: Expr
    non_null_rows: Expr


def _bind_one_column(node: syntax.Subquery, relation: Relation, context: Context) -> Plan:
    plan = bind_subquery(node.query, node, relation, context)
    if len(plan.schema) != 1:
        message = f"a subquery used as a value must have one column, not {len(plan.schema)}"
        raise context.error("wrong-arguments", message, node)
    return plan


def bind_subquery(query: syntax.Query, node: syntax.Node, relation: Relation, context: Context) -> Plan:
    """Return the plan of a subquery, which must not refer to the surrounding relation.

    `node` is what errors are located at.
    """
    inside = batch_context(context).for_subquery(relation)
    plan = inside.bind_query(query, inside).plan
    check_bounded(plan, node, context)
    return plan


def _has_one_row(plan: Plan) -> bool:
    """Return whether a plan has at most one row for any data."""
    match plan:
        case GroupAggregate():
            return not plan.keys
        case Values():
            return len(plan.rows) <= 1
        case Limit():
            return plan.count is not None and plan.count <= 1
        case Project():
            return _has_one_row(plan.input)
        case _:
            return False
