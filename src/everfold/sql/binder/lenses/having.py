"""HAVING: a condition over the aggregated columns of SELECT, by name.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Expr, substitute
from everfold.plan.nodes import Filter, Plan, Project
from everfold.plan.topic_storage import VALUE
from everfold.sql import syntax
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.lenses.functions import LensesBinder
from everfold.sql.binder.lenses.targets import Target
from everfold.sql.binder.scope import Relation, resolve


class _HavingBinder(LensesBinder):
    """Binds HAVING over a relation with a column for each target, by its name."""

    def __init__(self, relation: Relation, targets: Sequence[Target], context: Context) -> None:
        super().__init__(relation, context, "HAVING")
        self._paths = {target.path: target for target in targets if target.is_aggregated}

    def _column(self, node: syntax.ColumnPath) -> Expr:
        names = node.names[1:] if node.names[0] == VALUE and len(node.names) > 1 else node.names
        for length in range(1, len(names) + 1):
            target = self._paths.get(names[:length])
            if target is not None:
                return resolve(self.relation, (target.name, *names[length:]), node.span)
        raise self._refusal(node, f"`{'.'.join(node.names)}` is not one of them")

    def _aggregate(self, node: syntax.FunctionCall) -> Expr:
        raise self._refusal(node, f"`{self.context.sql(node)}` is an expression")

    def _refusal(self, node: syntax.ColumnPath | syntax.FunctionCall, why: str) -> Exception:
        return self.context.error(
            "not-in-select",
            f"HAVING takes aggregated projections of SELECT by name, and {why}",
            node,
            f"there are {quote_names(target.name for target in self._paths.values())}"
            if isinstance(node, syntax.ColumnPath)
            else f"name it in SELECT: {self.context.sql(node)} AS name",
        )


def filter_groups(node: syntax.TopicQuery, groups: Plan, targets: Sequence[Target], context: Context) -> Plan:
    """Return the groups that HAVING keeps.

    targets: what the projections write, over the groups. Raises SqlError `not-in-select`,
    `not-a-condition`.
    """
    if node.having is None:
        return groups
    values = tuple(target.value for target in targets)
    results = Project(input=groups, expressions=values, names=tuple(target.name for target in targets))
    condition = _HavingBinder(Relation.of(results), targets, context).condition(node.having)
    return Filter(input=groups, condition=substitute(condition, values), span=node.having.span)
