"""HAVING: a condition over the aggregated columns of SELECT, by name.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.plan.expressions import Expr, substitute
from everfold.plan.nodes import Filter, Plan, Project
from everfold.sql import syntax
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.lenses.functions import LensesBinder
from everfold.sql.binder.scope import Relation, resolve


class _HavingBinder(LensesBinder):
    def __init__(self, relation: Relation, aggregated: Sequence[str], context: Context) -> None:
        super().__init__(relation, context, "HAVING")
        self._aggregated = aggregated

    def _column(self, node: syntax.ColumnPath) -> Expr:
        if node.names[0] not in self._aggregated:
            raise self._refusal(node, f"`{'.'.join(node.names)}` is not one of them")
        return resolve(self.relation, node.names, node.span)

    def _aggregate(self, node: syntax.FunctionCall) -> Expr:
        raise self._refusal(node, f"`{self.context.sql(node)}` is an expression")

    def _refusal(self, node: syntax.ColumnPath | syntax.FunctionCall, why: str) -> Exception:
        return self.context.error(
            "not-in-select",
            f"HAVING takes aggregated projections of SELECT by name, and {why}",
            node,
            f"there are {quote_names(self._aggregated)}"
            if isinstance(node, syntax.ColumnPath)
            else f"name it in SELECT: {self.context.sql(node)} AS name",
        )


def with_having(node: syntax.TopicQuery, plan: Project, aggregated: Sequence[str], context: Context) -> Plan:
    """Return a projection of the groups that HAVING keeps.

    Raises SqlError `not-in-select`, `not-a-condition`.
    """
    if node.having is None:
        return plan
    condition = _HavingBinder(Relation.of(plan), aggregated, context).condition(node.having)
    condition = substitute(condition, plan.expressions)
    return replace(plan, input=Filter(input=plan.input, condition=condition, span=node.having.span))
