"""HAVING: a condition over the aggregated columns of SELECT, by name.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.plan.expressions import Expr, substitute
from everfold.plan.nodes import Filter, Plan, Project
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.lenses.functions import LensesBinder
from everfold.sql.binder.scope import Relation, resolve
from everfold.sql.dialects.lenses_nodes import TopicQuery
from everfold.sql.dialects.nodes import ColumnPath, FunctionCall


class _HavingBinder(LensesBinder):
    def __init__(self, relation: Relation, aggregated: Sequence[str], context: Context) -> None:
        super().__init__(relation, context, "HAVING")
        self._aggregated = aggregated

    def _column(self, node: ColumnPath) -> Expr:
        if node.names[0] not in self._aggregated:
            raise self._refusal(node, f"`{'.'.join(node.names)}` is not one of them")
        return resolve(self.relation, node.names, self.context.span(node))

    def _aggregate(self, node: FunctionCall) -> Expr:
        raise self._refusal(node, f"`{self.context.sql(node)}` is an expression")

    def _refusal(self, node: ColumnPath | FunctionCall, why: str) -> Exception:
        return self.context.error(
            "not-in-select",
            f"HAVING takes aggregated projections of SELECT by name, and {why}",
            node,
            f"there are {quote_names(self._aggregated)}"
            if isinstance(node, ColumnPath)
            else f"name it in SELECT: {self.context.sql(node)} AS name",
        )


def with_having(node: TopicQuery, plan: Project, aggregated: Sequence[str], context: Context) -> Plan:
    """Return a projection of the groups that HAVING keeps.

    Raises SqlError `not-in-select`, `not-a-condition`.
    """
    clause = node.args.get("having")
    if clause is None:
        return plan
    condition = substitute(_HavingBinder(Relation.of(plan), aggregated, context).condition(clause), plan.expressions)
    return replace(plan, input=Filter(input=plan.input, condition=condition, span=context.span(clause)))
