"""Expressions over a source: `_key`, `_value`, `_meta`, the fields of the value, and aggregates.

In the SELECT list of an aggregation a key is qualified by its source (`source._key.a`), because
`_key` alone would be that of the result. Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from everfold.errors import Span
from everfold.plan.expressions import Expr, column_references
from everfold.plan.topic_storage import KEY, META, VALUE
from everfold.sql import syntax
from everfold.sql.binder.aggregate_calls import bind_call
from everfold.sql.binder.aggregates import Calls
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.binder.lenses.functions import LensesBinder, build_row, check_on_table, find_aggregate, simplify_top_1
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.binder.scope import resolve
from everfold.sql.dialects.lenses_columns import METADATA


class FacetBinder(LensesBinder):
    """Binds expressions over the records of a source.

    `calls` collects aggregate calls where they are allowed. `projection`: the expression is in the
    SELECT list of an aggregation, where a key must be qualified by its source.
    """

    def __init__(
        self,
        source: Source,
        context: Context,
        clause: str,
        *,
        calls: Calls | None = None,
        within: str | None = None,
        projection: bool = False,
    ) -> None:
        super().__init__(source.relation, context, clause, calls=calls, within=within)
        self.source = source
        self.projection = projection

    # --- fields -----------------------------------------------------------------------------------

    def _column(self, node: syntax.ColumnPath) -> Expr:
        span, names = node.span, node.names
        qualified = len(names) > 1 and names[0] == self.source.name
        if qualified:
            names = names[1:]
        match names[0]:
            case "_key":
                self._check_key(node, qualified)
            case "_meta":
                return self._meta(node, names, span)
            case "_value" if VALUE not in self.source.plan.schema.names:
                if len(names) == 1:
                    return self._whole_value()
                names = names[1:]
        return resolve(self.relation, names, span)

    def _check_key(self, node: syntax.ColumnPath, qualified: bool) -> None:
        path = self.context.sql(node)
        if self.projection and not qualified:
            raise self.context.error(
                "unqualified-key",
                f"`{path}` is ambiguous: the result of an aggregation has its own key, which GROUP BY defines",
                node,
                f"write `{self.source.name}.{path}`",
            )
        if KEY not in self.source.plan.schema.names:
            raise self.context.error("no-key", f"the records of `{self.source.name}` have no key", node)

    def _meta(self, node: syntax.ColumnPath, names: tuple[str, ...], span: Span | None) -> Expr:
        known = [name for name in METADATA if f"{META}.{name}" in self.source.plan.schema.names]
        if len(names) != 2 or names[1] not in known:
            there = f"there are {quote_names(f'{META}.{name}' for name in known)}" if known else None
            path = ".".join(names)
            raise self.context.error(
                "unknown-field", f"the records of `{self.source.name}` have no `{path}`", node, there
            )
        return resolve(self.relation, (".".join(names),), span)

    def _whole_value(self) -> Expr:
        """Return all fields of the value, as a ROW."""
        fields, schema = self.source.fields, self.source.plan.schema
        values = [each for each in column_references(schema) if each.name in fields]
        return build_row(values, [each.name for each in values])

    # --- aggregates -------------------------------------------------------------------------------

    def _aggregate(self, node: syntax.FunctionCall) -> Expr:
        name, context = node.name, self.context
        if self.within is not None:
            raise context.error(
                "nested-aggregate",
                f"`{name}` cannot be inside `{self.within}`: aggregates cannot be nested",
                node,
                "aggregate in a WITH first",
            )
        if self.calls is None:
            where = self.clause == "WHERE"
            raise context.error(
                "aggregate-in-where" if where else "misplaced-aggregate",
                f"the aggregate `{name}` is not allowed in {self.clause}",
                node,
                "give it a name in SELECT, and write that in HAVING" if where else None,
            )
        for clause, written in (
            ("DISTINCT", node.distinct),
            ("FILTER", node.filter),
            ("ORDER BY", node.order),
            ("NULLS", node.nulls),
        ):
            if written:
                raise context.unsupported("unsupported-clause", f"{clause} is not supported in `{name}`", node)
        if self.source.is_table:
            check_on_table(node, context)
        inside = FacetBinder(self.source, context, self.clause, within=name, projection=self.projection)
        call = bind_call(node, find_aggregate(name), inside.bind, inside.condition, context)
        return self.calls.reference(simplify_top_1(call))
