"""FROM: tables, views, subqueries, window functions, UNNEST, joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import Diagnostic, SqlError
from everfold.plan.expressions import Expr, column_references
from everfold.plan.nodes import ONE_ROW, Filter, Join, JoinKind, Plan, Project, Table, Unnest, time_attribute
from everfold.plan.size import check_size
from everfold.sql import syntax
from everfold.sql.binder.bounded import batch_context, check_bounded, find_unbounded
from everfold.sql.binder.constants import boolean_literal
from everfold.sql.binder.context import Context
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.scope import Relation, ScopeColumn
from everfold.sql.binder.windows import bind_window_function
from everfold.sql.catalog import CatalogView, local_name
from everfold.sql.dialects.relations import unknown_table_function_error
from everfold.types import INT, ArrayType, DataType, Field, MapType, MultisetType, RowType

_KINDS = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL, None: JoinKind.INNER}


def bind_from(node: syntax.Select, context: Context) -> Relation:
    """Return the relation of FROM and its joins; without FROM, one row without columns."""
    if node.source is None:
        return Relation(plan=ONE_ROW, columns=())
    relation = bind_item(node.source, context)
    for join in node.joins:
        relation = _join(relation, join, context)
        check_size(relation.plan, join.span)
        context.catalog.work.add(len(relation.columns), join.span)
    return relation


def bind_item(node: syntax.Relation, context: Context) -> Relation:
    """Bind one item of FROM, under its alias."""
    match node:
        case syntax.Table():
            relation = _table(node, context)
        case syntax.WindowTvf():
            relation = _bind_window(node, bind_item(node.table, context), context)
        case syntax.DerivedTable(lateral=False):
            relation = context.bind_query(node.query, context)
        case syntax.DerivedTable():
            raise context.unsupported("lateral", "LATERAL subqueries are not supported", node, "write a join")
        case syntax.Unnest():
            return _unnest(Relation(plan=ONE_ROW, columns=()), node, context, outer=False)
        case _:
            assert isinstance(node, syntax.TableFunction)
            raise unknown_table_function_error(node.call.name, node.span)
    return apply_alias(relation, node.alias, context)


def _bind_window(node: syntax.WindowTvf, data: Relation, context: Context) -> Relation:
    """Return the relation of a window function: its input's columns, then the window's."""
    plan = bind_window_function(node, data, context)
    width = len(data.plan.schema)
    window = (ScopeColumn(name=field.name, position=width + at) for at, field in enumerate(plan.schema.fields[width:]))
    return Relation(plan=plan, columns=(*(replace(column, relation=None) for column in data.visible_columns), *window))


def apply_alias(relation: Relation, alias: syntax.TableAlias | None, context: Context) -> Relation:
    """Return a relation under an alias. Raises SqlError `column-count`."""
    if alias is None:
        return relation
    _check_alias(alias, len(relation.visible_columns), context)
    return relation.with_alias(alias.name.name, alias.column_names or None)


def _check_alias(alias: syntax.TableAlias, width: int, context: Context) -> None:
    """Raise SqlError `column-count` if an alias lists another number of columns."""
    if alias.columns and len(alias.columns) != width:
        what = f"`{alias.name.name}` names {len(alias.columns)} columns of {width}"
        raise context.error("column-count", what, alias.name)


# --- tables and views -----------------------------------------------------------------------------


def _table(node: syntax.Table, context: Context) -> Relation:
    name = node.names
    if node.system_time is not None:
        raise context.unsupported(
            "temporal-join",
            "FOR SYSTEM_TIME AS OF belongs to the table on the right of a JOIN",
            node.system_time,
            "leave it out: a table is read as it is now",
        )
    if len(name) == 1 and name[0] in context.ctes:
        _reject_hints(node.hints, context, "a name of WITH")
        return context.ctes[name[0]].with_alias(name[0])
    entry = context.catalog.find(name)
    if entry is None:
        first = node.parts[0].span
        span = first and first.to(node.parts[-1].span)
        raise SqlError(context.catalog.unknown_table(name, span, tuple(context.ctes)))
    if isinstance(entry, CatalogView):
        _reject_hints(node.hints, context, "a view")
        plan = bind_view(entry, context, node)
    else:
        plan = entry.plan(
            streaming=context.streaming, table=_apply_options(entry.table, node.hints, context), span=node.span
        )
    return Relation.of(plan, local_name(name))


def bind_view(view: CatalogView, context: Context, node: syntax.Node | None) -> Plan:
    """Return the plan of a view's current query, under the column names of the view."""
    if view.name in context.views:
        raise context.error("recursive-view", f"the view `{view.name}` refers to itself", node)
    context.check_views(node)
    return context.bind_view_once(view.name, lambda: _bind_view_query(view, context, node))


def _bind_view_query(view: CatalogView, context: Context, node: syntax.Node | None) -> Plan:
    inside = Context(
        catalog=context.catalog,
        bind_query=context.bind_query,
        views=(*context.views, view.name),
        as_batch=context.as_batch,
        bound_views=context.bound_views,
    )
    plan = inside.bind_query(view.query, inside).plan
    if len(plan.schema) != len(view.schema):
        raise context.error(
            "view-changed",
            f"the view `{view.name}` no longer has the columns that it was created with",
            node,
            "create it after the table, or list its columns instead of `*`",
        )
    if plan.schema.names == view.schema.names:
        return plan
    return Project(input=plan, expressions=column_references(plan.schema), names=view.schema.names)


def _reject_hints(hints: Sequence[syntax.Hint], context: Context, what: str) -> None:
    for hint in hints:
        raise context.error("misplaced-hint", f"the hint {hint.name} belongs to a table, and this is {what}", hint)


def _apply_options(table: Table, hints: Sequence[syntax.Hint], context: Context) -> Table:
    """Return the table with the options of OPTIONS hints applied."""
    options, spans = dict(table.options), dict(table.option_spans)
    for hint in hints:
        if hint.name != "OPTIONS":
            raise context.unsupported(
                "unsupported-hint",
                f"the hint {hint.name} is not supported",
                hint,
                "leave it out: OPTIONS('key' = 'value') is the only hint",
            )
        for entry in hint.arguments:
            match entry:
                case syntax.BinaryOperation(
                    operator="=", left=syntax.StringLiteral(value=key), right=syntax.StringLiteral() as value
                ):
                    options[key] = context.catalog.resolve(value.value, value.span)
                case _:
                    raise context.error("wrong-arguments", "OPTIONS takes 'key' = 'value'", entry)
            if entry.span is not None:
                spans[key] = entry.span
    if not hints:
        return table
    table = replace(
        table,
        options=tuple(sorted(options.items())),
        option_spans=tuple(sorted(spans.items(), key=lambda each: each[0])),
    )
    return context.catalog.connected(table)


# --- UNNEST ---------------------------------------------------------------------------------------

_ELEMENT = "EXPR$0"
"""Name of the elements of a collection, unless the table has an alias: then they have that name."""


def _unnest(left: Relation, node: syntax.Unnest, context: Context, *, outer: bool) -> Relation:
    if len(node.collections) != 1:
        raise context.unsupported("unsupported-clause", "UNNEST of more than one collection is not supported", node)
    collection = ExpressionBinder(left, context, "UNNEST").bind(node.collections[0])
    fields = list(_collection_fields(collection, node, context))
    alias = node.alias
    if alias is not None and not alias.columns and [field.name for field in fields] == [_ELEMENT]:
        fields = [fields[0].with_name(alias.name.name)]
    if outer:
        fields = [replace(field, type=field.type.as_nullable()) for field in fields]
    if node.ordinality:
        fields.append(Field(name="ORDINALITY", type=INT.as_nullable(outer)))
    if alias is not None:
        _check_alias(alias, len(fields), context)
    if alias is not None and alias.columns:
        fields = [field.with_name(name) for field, name in zip(fields, alias.column_names, strict=True)]
    unnest = Unnest(
        input=left.plan,
        collection=collection,
        fields=tuple(fields),
        outer=outer,
        ordinality=node.ordinality,
        span=node.span,
    )
    width = len(left.plan.schema)
    more = tuple(
        ScopeColumn(name=field.name, position=width + at, relation=alias.name.name if alias else None)
        for at, field in enumerate(fields)
    )
    return Relation(plan=unnest, columns=(*left.columns, *more))


def _collection_fields(collection: Expr, node: syntax.Unnest, context: Context) -> tuple[Field, ...]:
    of = collection.type
    if isinstance(of, MultisetType):
        return _element_fields(of.key)
    if isinstance(of, MapType):
        return Field(name="KEY", type=of.key), Field(name="VALUE", type=of.value)
    if isinstance(of, ArrayType):
        return _element_fields(of.element)
    raise context.error("wrong-arguments", f"UNNEST takes an ARRAY, a MAP or a MULTISET, not {of.sql}", node)


def _element_fields(of: DataType) -> tuple[Field, ...]:
    if isinstance(of, RowType):
        return tuple(
            Field(name=each.name, type=each.type.as_nullable(each.type.nullable or of.nullable)) for each in of.fields
        )
    return (Field(name=_ELEMENT, type=of),)


# --- joins ----------------------------------------------------------------------------------------


def _join(left: Relation, node: syntax.Join, context: Context) -> Relation:
    if isinstance(node.relation, syntax.Unnest):
        return _join_unnest(left, node, node.relation, context)
    if context.streaming and node.side in ("RIGHT", "FULL"):
        raise context.unsupported(
            "streaming-join",
            f"a {node.side} JOIN emits the rows without a match in the stream, "
            "which are known only when the stream ends",
            node,
            "put the stream on the left of a LEFT JOIN, or run in batch",
        )
    item = node.relation
    if isinstance(item, syntax.Table) and item.system_time is not None:
        right = bind_item(replace(item, system_time=None), batch_context(context))
        _check_system_time(item.system_time, left, right, context)
    else:
        right = bind_item(item, batch_context(context))
    check_bounded(right.plan, node, context)
    width = len(left.plan.schema)
    moved = tuple(replace(column, position=column.position + width) for column in right.columns)
    if node.kind in ("CROSS", ","):
        cross = Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None, span=node.span)
        return Relation(plan=cross, columns=(*left.columns, *moved))
    how = _KINDS[node.side]
    plain = Relation(
        plan=Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None),
        columns=(*left.columns, *moved),
    )
    using = [each.name for each in node.using]
    if node.natural:
        names = {column.name for column in right.visible_columns}
        using = [column.name for column in left.visible_columns if column.name in names]
        if not using:
            cross = Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None, span=node.span)
            return plain.with_plan(cross)
    if using:
        return _join_using(left, Relation(plan=plain.plan, columns=moved), how, using, node, context)
    assert node.on is not None
    condition = ExpressionBinder(plain, context, "ON").condition(node.on)
    return plain.with_plan(Join(left=left.plan, right=right.plan, kind=how, condition=condition, span=node.span))


def _check_system_time(clause: syntax.SystemTime, left: Relation, right: Relation, context: Context) -> None:
    """Check that FOR SYSTEM_TIME AS OF names a processing time of the left side.

    The table is read as of processing time anyway, so the clause has no further effect. Raises
    UnsupportedFeature `temporal-join`.
    """
    moment = ExpressionBinder(left, context, "FOR SYSTEM_TIME AS OF").bind(clause.moment)
    if not context.streaming or time_attribute(moment, left.plan.schema) == "proctime":
        return
    fields = left.plan.schema.fields
    processing_time = next((c.name for c in left.visible_columns if fields[c.position].time == "proctime"), None)
    unbounded = find_unbounded(right.plan)
    if unbounded is not None:
        help_text = (
            f"`{unbounded.name}` is unbounded, so it can only be combined by UNION ALL and an aggregation; "
            "a bounded table can be joined as of processing time"
        )
    elif processing_time is not None:
        help_text = f"name the processing time `{processing_time}`"
    else:
        help_text = "declare a column `proc AS PROCTIME()` and name that"
    raise context.unsupported(
        "temporal-join",
        "FOR SYSTEM_TIME AS OF takes a processing time of the left side: "
        "a table is read as it is now, its earlier rows are not kept",
        clause,
        help_text,
    )


def _join_unnest(left: Relation, node: syntax.Join, unnest: syntax.Unnest, context: Context) -> Relation:
    if node.side in ("RIGHT", "FULL") or node.using or node.natural:
        raise context.unsupported("unsupported-clause", "UNNEST supports only CROSS JOIN and LEFT JOIN … ON TRUE", node)
    relation = _unnest(left, unnest, context, outer=node.side == "LEFT")
    if node.on is None:
        return relation
    condition = ExpressionBinder(relation, context, "ON").condition(node.on)
    if condition == boolean_literal(True):
        return relation
    if node.side == "LEFT":
        raise context.unsupported("unsupported-clause", "LEFT JOIN UNNEST takes ON TRUE only", node.on)
    return relation.with_plan(Filter(input=relation.plan, condition=condition, span=node.on.span))


def _join_using(
    left: Relation, right: Relation, kind: JoinKind, using: Sequence[str], node: syntax.Join, context: Context
) -> Relation:
    """Build a join by common columns, which come first and once; the other columns follow."""
    from everfold.sql.functions import build

    assert isinstance(right.plan, Join)
    span = node.span
    pairs = [(_side(left, name, node, context), _side(right, name, node, context)) for name in using]
    condition: Expr | None = None
    for one, other in pairs:
        equal = build("=", (left.reference(one), right.reference(other)), span)
        condition = equal if condition is None else build("AND", (condition, equal), span)
    joined: Plan = replace(right.plan, kind=kind, condition=condition, span=span)
    outputs = column_references(joined.schema)
    merged: list[Expr] = []
    for one, other in pairs:
        first, second = outputs[one.position], outputs[other.position]
        match kind:
            case JoinKind.RIGHT:
                merged.append(second)
            case JoinKind.FULL:
                merged.append(build("COALESCE", (first, second), span))
            case _:
                merged.append(first)
    names = (*using, *joined.schema.names)
    plan = Project(input=joined, expressions=(*merged, *outputs), names=names)
    width = len(using)
    taken = {column.position for pair in pairs for column in pair}
    columns = [ScopeColumn(name=name, position=at) for at, name in enumerate(using)]
    for column in (*left.columns, *right.columns):
        columns.append(
            replace(column, position=column.position + width, hidden=column.hidden or column.position in taken)
        )
    return Relation(plan=plan, columns=tuple(columns))


def _side(relation: Relation, name: str, node: syntax.Join, context: Context) -> ScopeColumn:
    found = [column for column in relation.visible_columns if column.name == name]
    if len(found) != 1:
        code, what = ("unknown-column", "no column") if not found else ("ambiguous-column", f"{len(found)} columns")
        raise SqlError(
            Diagnostic(code, f"USING takes columns of both sides, and one side has {what} named `{name}`", node.span)
        )
    return found[0]
