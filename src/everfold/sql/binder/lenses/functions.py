"""Functions as Lenses SQL names them: which are aggregates, which of these go with tables, and MIN and MAX, which are none.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from everfold.aggregates import registry
from everfold.errors import Span, nearest
from everfold.plan.expressions import Expr
from everfold.plan.nodes import AggCall
from everfold.sql.binder.context import Context, named_list
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.names import LEGACY_WINDOWS, OVER_FUNCTIONS, is_aggregate
from everfold.sql.binder.python_functions import called
from everfold.sql.dialects.nodes import FunctionCall
from everfold.sql.functions import lookup
from everfold.sql.functions import names as scalar_names

AGGREGATES: Mapping[str, str] = MappingProxyType({
    **{name: name for name in ("AVG", "BOTTOMK", "COUNT", "MAXK", "MAXK_UNIQUE", "MINK", "MINK_UNIQUE", "SUM", "TOPK")},
    "COLLECT": "COLLECT_LIST",
    "COLLECT_UNIQUE": "COLLECT_SET",
    "FIRST": "FIRST_VALUE",
    "LAST": "LAST_VALUE",
})  # fmt: skip
"""The aggregates by their names here, with those of the registry."""
ON_TABLES = frozenset({"AVG", "COUNT", "SUM"})
"""Aggregates from whose state a value can be subtracted: a table takes these, and others only if all values are kept."""
_OF_ONE = {"MAXK": "MAX", "MAXK_UNIQUE": "MAX", "MINK": "MIN", "MINK_UNIQUE": "MIN"}
_OF_SEVERAL = {"MIN": "LEAST", "MAX": "GREATEST"}


def is_aggregated(node: exp.Expression) -> bool:
    """Whether an expression has an aggregate in it."""
    return any(isinstance(each, FunctionCall) and each.name in AGGREGATES for each in node.walk())


def is_scalar(name: str) -> bool:
    """Whether a function of Flink's of that name in capitals is one of the values of a record."""
    return lookup(name) is not None and not (is_aggregate(name) or name in OVER_FUNCTIONS or name in LEGACY_WINDOWS)


def aggregate_of(name: str) -> registry.Aggregate:
    """The registered function of an aggregate that is called so here."""
    entry = registry.lookup(AGGREGATES[name])
    assert entry is not None, name
    return entry


def of_one(call: AggCall) -> AggCall:
    """A call of which one value is asked as what it then is: the greatest value is MAX, the least is MIN."""
    if call.function not in _OF_ONE or any(each.value != 1 for each in call.constants):
        return call
    return replace(call, function=_OF_ONE[call.function], constants=())


class LensesBinder(ExpressionBinder):
    """Binds expressions with the functions of Lenses SQL; what is no aggregate is Flink's."""

    def _call(self, node: FunctionCall, span: Span | None) -> Expr:
        name = node.name
        if name in AGGREGATES:
            return self._aggregate(node)
        if name in _OF_SEVERAL:
            return self._of_several(node, span)
        if called(node, self.context) is None and not (node.special or is_scalar(name)):
            raise self.context.error(
                "unknown-function",
                f"no function is named `{node.spelled}` in Lenses SQL",
                node,
                nearest(name, (*AGGREGATES, *scalar_names())) or f"the aggregates are {named_list(sorted(AGGREGATES))}",
            )
        return super()._call(node, span)

    def _of_several(self, node: FunctionCall, span: Span | None) -> Expr:
        """MIN and MAX: the least and the greatest of several arguments."""
        name, args = node.name, node.expressions
        if len(args) == 1:
            raise self.context.error(
                "wrong-arguments",
                f"`{name}` compares several values of one record, and this is one",
                node,
                f"over the records of a group write {name}K({self.context.sql(args[0])}, 1)",
            )
        self.refuse_aggregate_clauses(node)
        return self._build(_OF_SEVERAL[name], self._all(args), span)


def check_on_table(node: FunctionCall, context: Context) -> None:
    """SqlError `stream-only-aggregate` for an aggregate over a table that cannot subtract, unless all values are to be kept."""
    if node.name in ON_TABLES or context.settings.lenses_exact_tables:
        return
    raise context.error(
        "stream-only-aggregate",
        f"`{node.name}` works on streams only: when a record of a table changes, its old value is subtracted from its group, and what takes the "
        f"place of that value is known only to who keeps all values",
        node,
        f"SELECT STREAM, or SET everfold.lenses.exact-tables = true to keep them; {named_list(sorted(ON_TABLES))} go with tables as they are",
    )
