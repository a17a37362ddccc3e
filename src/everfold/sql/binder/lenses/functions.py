"""Functions of Lenses SQL: aggregates, which of them work on tables, and scalar MIN and MAX.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from everfold.aggregates import registry
from everfold.errors import Span, suggest_name
from everfold.plan.expressions import Expr
from everfold.plan.nodes import AggCall
from everfold.sql import syntax
from everfold.sql.binder.aggregate_calls import refuse_aggregate_clauses
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.names import LEGACY_WINDOWS, OVER_FUNCTIONS, is_aggregate
from everfold.sql.binder.python_functions import find_user_function
from everfold.sql.functions import build, cast, lookup
from everfold.sql.functions import names as scalar_names
from everfold.types import RowField, RowType

AGGREGATES: Mapping[str, str] = MappingProxyType({
    **{name: name for name in ("AVG", "BOTTOMK", "COUNT", "MAXK", "MAXK_UNIQUE", "MINK", "MINK_UNIQUE", "SUM", "TOPK")},
    "COLLECT": "COLLECT_LIST",
    "COLLECT_UNIQUE": "COLLECT_SET",
    "FIRST": "FIRST_VALUE",
    "LAST": "LAST_VALUE",
})  # fmt: skip
"""The aggregates by their names in Lenses SQL, with those in the registry."""
ON_TABLES = frozenset({"AVG", "COUNT", "SUM"})
"""Aggregates whose state supports retraction of a value.

Tables work with these; with others only if all values are kept.
"""
_TOP_1 = {"MAXK": "MAX", "MAXK_UNIQUE": "MAX", "MINK": "MIN", "MINK_UNIQUE": "MIN"}
_SCALAR_FUNCTIONS = {"MIN": "LEAST", "MAX": "GREATEST"}


def has_aggregate(node: syntax.Node) -> bool:
    """Return whether an expression contains an aggregate."""
    return any(isinstance(each, syntax.FunctionCall) and each.name in AGGREGATES for each in syntax.walk(node))


def is_scalar(name: str) -> bool:
    """Return whether a name in capitals is that of a scalar function of Flink."""
    return lookup(name) is not None and not (is_aggregate(name) or name in OVER_FUNCTIONS or name in LEGACY_WINDOWS)


def find_aggregate(name: str) -> registry.Aggregate:
    """Return the registered function for the name of an aggregate in Lenses SQL."""
    entry = registry.lookup(AGGREGATES[name])
    assert entry is not None, name
    return entry


def simplify_top_1(call: AggCall) -> AggCall:
    """Replace a call that returns the top or bottom 1 value with MAX or MIN."""
    if call.function not in _TOP_1 or any(each.value != 1 for each in call.constants):
        return call
    return replace(call, function=_TOP_1[call.function], constants=())


class LensesBinder(ExpressionBinder):
    """Binds expressions with the functions of Lenses SQL; all but aggregates are Flink's."""

    def _call(self, node: syntax.FunctionCall, span: Span | None) -> Expr:
        name = node.name
        if name in AGGREGATES:
            return self._aggregate(node)
        if name in _SCALAR_FUNCTIONS:
            return self._of_several(node, span)
        if find_user_function(node, self.context) is None and not (node.special or is_scalar(name)):
            raise self.context.error(
                "unknown-function",
                f"no function is named `{node.original_name}` in Lenses SQL",
                node,
                suggest_name(name, (*AGGREGATES, *scalar_names()))
                or f"the aggregates are {quote_names(sorted(AGGREGATES))}",
            )
        return super()._call(node, span)

    def _of_several(self, node: syntax.FunctionCall, span: Span | None) -> Expr:
        """Bind MIN and MAX: the least and the greatest of several arguments."""
        name, args = node.name, node.arguments
        if len(args) == 1:
            raise self.context.error(
                "wrong-arguments",
                f"`{name}` compares several values of one record, and has only one argument",
                node,
                f"to aggregate the records of a group, write {name}K({self.context.sql(args[0])}, 1)",
            )
        refuse_aggregate_clauses(node, self.context)
        return self._build(_SCALAR_FUNCTIONS[name], self._all(args), span)


def check_on_table(node: syntax.FunctionCall, context: Context) -> None:
    """Raise SqlError `stream-only-aggregate` if an aggregate over a table cannot retract.

    All aggregates can if all values are kept.
    """
    if node.name in ON_TABLES or context.settings.lenses_exact_tables:
        return
    raise context.error(
        "stream-only-aggregate",
        f"`{node.name}` works on streams only: when a record of a table changes, its old value is retracted, "
        "and what replaces that value is known only if all values are kept",
        node,
        "write SELECT STREAM, or SET everfold.lenses.exact-tables = true to keep them; "
        f"{quote_names(sorted(ON_TABLES))} work on tables without it",
    )


def build_row(values: Sequence[Expr], names: Sequence[str], *, nullable_fields: bool = False) -> Expr:
    """Return a ROW of values with these names, with the types of the values or as nullable ones."""
    fields = tuple(
        RowField(name=name, type=value.type.as_nullable() if nullable_fields else value.type)
        for name, value in zip(names, values, strict=True)
    )
    return cast(build("ROW", tuple(values)), RowType(fields=fields, nullable=False))
