"""FROM: tables, views, subqueries, window functions, UNNEST, joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from everfold.errors import Diagnostic, SqlError
from everfold.plan.expressions import Expr, column_references
from everfold.plan.nodes import ONE_ROW, Filter, Join, JoinKind, Plan, Project, Table, Unnest, time_attribute
from everfold.plan.size import check_size
from everfold.sql.binder.bounded import batch_context, check_bounded
from everfold.sql.binder.context import Context
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.literals import boolean_literal
from everfold.sql.binder.scope import Relation, ScopeColumn
from everfold.sql.binder.windows import bind_window_function
from everfold.sql.catalog import CatalogView, local_name
from everfold.sql.dialects.nodes import TableFunction, TableHint, WindowTvf
from everfold.sql.dialects.relations import unknown_table_function_error
from everfold.types import INT, ArrayType, DataType, Field, MapType, MultisetType, RowType

_KINDS = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL, "": JoinKind.INNER}


def bind_from(node: exp.Select, context: Context) -> Relation:
    """Return the relation of FROM and its joins; without FROM, one row without columns."""
    source = node.args.get("from_")
    if source is None:
        return Relation(plan=ONE_ROW, columns=())
    relation = bind_item(source.this, context)
    for join in node.args.get("joins") or ():
        relation = _join(relation, join, context)
        check_size(relation.plan, context.span(join))
        context.catalog.work.add(len(relation.columns), context.span(join))
    return relation


def bind_item(node: exp.Expression, context: Context) -> Relation:
    """Bind one item of FROM, under its alias."""
    match node:
        case exp.Table():
            relation = _table(node, context)
        case WindowTvf():
            relation = _bind_window(node, bind_item(node.table, context), context)
        case exp.Subquery():
            relation = _query(node.this, context)
        case exp.Values():
            relation = _query(node, context)
        case exp.Unnest():
            return _unnest(Relation(plan=ONE_ROW, columns=()), node, context, outer=False)
        case exp.Lateral():
            raise context.unsupported("lateral", "LATERAL subqueries are not supported", node, "write a join")
        case TableFunction():
            raise unknown_table_function_error(node.this.name, context.span(node))
        case _:
            raise context.unsupported("unsupported-clause", f"`{context.sql(node)}` is not supported in FROM", node)
    return _apply_alias(relation, node.args.get("alias"), context)


def _bind_window(node: WindowTvf, data: Relation, context: Context) -> Relation:
    """Return the relation of a window function: its input's columns, then the window's."""
    plan = bind_window_function(node, data, context)
    width = len(data.plan.schema)
    window = (ScopeColumn(name=field.name, position=width + at) for at, field in enumerate(plan.schema.fields[width:]))
    return Relation(plan=plan, columns=(*(replace(column, relation=None) for column in data.visible_columns), *window))


def _apply_alias(relation: Relation, alias: exp.TableAlias | None, context: Context) -> Relation:
    if alias is None:
        return relation
    names = [column.name for column in alias.args.get("columns") or ()]
    if names and len(names) != len(relation.visible_columns):
        raise context.error(
            "column-count", f"`{alias.name}` names {len(names)} columns of {len(relation.visible_columns)}", alias.this
        )
    return relation.with_alias(alias.name, names or None)


def _query(node: exp.Expression, context: Context) -> Relation:
    from everfold.sql.binder.queries import bind_body

    return bind_body(node, context)


# --- tables and views -----------------------------------------------------------------------------


def _table(node: exp.Table, context: Context) -> Relation:
    name = tuple(part.name for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part)
    if node.args.get("version") is not None:
        raise context.unsupported(
            "temporal-join",
            "FOR SYSTEM_TIME AS OF belongs to the table on the right of a JOIN",
            node.args["version"],
            "leave it out: a table is read as it is now",
        )
    hints: list[TableHint] = node.args.get("hints") or []
    if len(name) == 1 and name[0] in context.ctes:
        _reject_hints(hints, context, "a name of WITH")
        return context.ctes[name[0]].with_alias(name[0])
    entry = context.catalog.find(name)
    if entry is None:
        first = context.span(node.args.get("catalog") or node.args.get("db") or node.this)
        span = first.to(context.span(node.this)) if first is not None else None
        raise SqlError(context.catalog.unknown_table(name, span, tuple(context.ctes)))
    if isinstance(entry, CatalogView):
        _reject_hints(hints, context, "a view")
        plan = bind_view(entry, context, node)
    else:
        plan = entry.plan(
            streaming=context.streaming, table=_apply_options(entry.table, hints, context), span=context.span(node)
        )
    return Relation.of(plan, local_name(name))


def bind_view(view: CatalogView, context: Context, node: exp.Expression | None) -> Plan:
    """Return the plan of a view's current query, under the column names of the view."""
    if view.name in context.views:
        raise context.error("recursive-view", f"the view `{view.name}` refers to itself", node)
    context.check_views(node)
    return context.bind_view_once(view.name, lambda: _bind_view_query(view, context, node))


def _bind_view_query(view: CatalogView, context: Context, node: exp.Expression | None) -> Plan:
    from everfold.sql.binder.queries import bind_body

    inside = replace(
        Context.at(view.span, context.catalog),
        views=(*context.views, view.name),
        as_batch=context.as_batch,
        bound_views=context.bound_views,
    )
    plan = bind_body(view.query, inside).plan
    if len(plan.schema) != len(view.schema):
        raise context.error(
            "view-changed",
            f"the view `{view.name}` no longer has the columns that it was created with",
            node,
            "create it again",
        )
    if plan.schema.names == view.schema.names:
        return plan
    return Project(input=plan, expressions=column_references(plan.schema), names=view.schema.names)


def _reject_hints(hints: Sequence[TableHint], context: Context, what: str) -> None:
    for hint in hints:
        raise context.error("misplaced-hint", f"the hint {hint.name} belongs to a table, and this is {what}", hint)


def _apply_options(table: Table, hints: Sequence[TableHint], context: Context) -> Table:
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
        for entry in hint.expressions:
            if not isinstance(entry, exp.EQ) or not (_is_string(entry.this) and _is_string(entry.expression)):
                raise context.error("wrong-arguments", "OPTIONS takes 'key' = 'value'", entry)
            key, span = entry.this.name, context.span(entry)
            options[key] = context.catalog.resolve(entry.expression.name, context.span(entry.expression))
            if span is not None:
                spans[key] = span
    if not hints:
        return table
    table = replace(
        table,
        options=tuple(sorted(options.items())),
        option_spans=tuple(sorted(spans.items(), key=lambda each: each[0])),
    )
    return context.catalog.connected(table)


def _is_string(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and node.is_string


# --- UNNEST ---------------------------------------------------------------------------------------


def _unnest(left: Relation, node: exp.Unnest, context: Context, *, outer: bool) -> Relation:
    if len(node.expressions) != 1:
        raise context.unsupported("unsupported-clause", "UNNEST of more than one collection is not supported", node)
    collection = ExpressionBinder(left, context, "UNNEST").bind(node.expressions[0])
    fields = list(_collection_fields(collection, node, context))
    if outer:
        fields = [replace(field, type=field.type.as_nullable()) for field in fields]
    ordinality = bool(node.args.get("offset"))
    if ordinality:
        fields.append(Field(name="ORDINALITY", type=INT.as_nullable(outer)))
    alias: exp.TableAlias | None = node.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or ()] if alias else []
    if alias is not None and names and len(names) != len(fields):
        raise context.error("column-count", f"`{alias.name}` names {len(names)} columns of {len(fields)}", alias.this)
    if names:
        fields = [field.with_name(name) for field, name in zip(fields, names, strict=True)]
    unnest = Unnest(
        input=left.plan,
        collection=collection,
        fields=tuple(fields),
        outer=outer,
        ordinality=ordinality,
        span=context.span(node),
    )
    width = len(left.plan.schema)
    more = tuple(
        ScopeColumn(name=field.name, position=width + at, relation=alias.name if alias else None)
        for at, field in enumerate(fields)
    )
    return Relation(plan=unnest, columns=(*left.columns, *more))


def _collection_fields(collection: Expr, node: exp.Unnest, context: Context) -> tuple[Field, ...]:
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
    return (Field(name="EXPR$0", type=of),)


# --- joins ----------------------------------------------------------------------------------------


def _join(left: Relation, node: exp.Join, context: Context) -> Relation:
    kind, side = node.args.get("kind") or "", node.args.get("side") or ""
    if isinstance(node.this, exp.Unnest):
        return _join_unnest(left, node, context)
    if context.streaming and side in ("RIGHT", "FULL"):
        raise context.unsupported(
            "streaming-join",
            f"a {side} JOIN emits the rows without a match in the stream, which are known only when the stream ends",
            node,
            "put the stream on the left of a LEFT JOIN, or run in batch",
        )
    right = bind_item(_drop_system_time(node.this, left, context), batch_context(context))
    check_bounded(right.plan, node, context)
    width = len(left.plan.schema)
    moved = tuple(replace(column, position=column.position + width) for column in right.columns)
    if kind in ("CROSS", ","):
        cross = Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None, span=context.span(node))
        return Relation(plan=cross, columns=(*left.columns, *moved))
    how = _KINDS[side]
    plain = Relation(
        plan=Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None),
        columns=(*left.columns, *moved),
    )
    using = [each.name for each in node.args.get("using") or ()]
    if node.args.get("method") == "NATURAL":
        names = {column.name for column in right.visible_columns}
        using = [column.name for column in left.visible_columns if column.name in names]
        if not using:
            cross = Join(left=left.plan, right=right.plan, kind=JoinKind.CROSS, condition=None, span=context.span(node))
            return plain.with_plan(cross)
    if using:
        return _join_using(left, Relation(plan=plain.plan, columns=moved), how, using, node, context)
    condition = ExpressionBinder(plain, context, "ON").condition(node.args["on"])
    return plain.with_plan(
        Join(left=left.plan, right=right.plan, kind=how, condition=condition, span=context.span(node))
    )


def _drop_system_time(item: exp.Expression, left: Relation, context: Context) -> exp.Expression:
    """Return a table without its FOR SYSTEM_TIME AS OF.

    The clause must name a processing time of the left side; the table is read as of processing time
    anyway.
    """
    version = item.args.get("version") if isinstance(item, exp.Table) else None
    if version is None:
        return item
    moment = ExpressionBinder(left, context, "FOR SYSTEM_TIME AS OF").bind(version.expression)
    if context.streaming and time_attribute(moment, left.plan.schema) != "proctime":
        raise context.unsupported(
            "temporal-join",
            "FOR SYSTEM_TIME AS OF takes a processing time of the left side: "
            "a table is read as it is now, its earlier rows are not kept",
            version,
            "declare a column `proc AS PROCTIME()` and name that",
        )
    now = item.copy()
    now.set("version", None)
    return now


def _join_unnest(left: Relation, node: exp.Join, context: Context) -> Relation:
    unnest, kind, side = node.this, node.args.get("kind") or "", node.args.get("side") or ""
    on = node.args.get("on")
    if side in ("RIGHT", "FULL") or node.args.get("using") or node.args.get("method"):
        raise context.unsupported("unsupported-clause", "UNNEST supports only CROSS JOIN and LEFT JOIN … ON TRUE", node)
    relation = _unnest(left, unnest, context, outer=side == "LEFT")
    if on is None or kind in ("CROSS", ","):
        return relation
    condition = ExpressionBinder(relation, context, "ON").condition(on)
    if condition == boolean_literal(True):
        return relation
    if side == "LEFT":
        raise context.unsupported("unsupported-clause", "LEFT JOIN UNNEST takes ON TRUE only", on)
    return relation.with_plan(Filter(input=relation.plan, condition=condition, span=context.span(on)))


def _join_using(
    left: Relation, right: Relation, kind: JoinKind, using: Sequence[str], node: exp.Join, context: Context
) -> Relation:
    """Build a join by common columns, which come first and once; the other columns follow."""
    from everfold.sql.functions import build

    assert isinstance(right.plan, Join)
    span = context.span(node)
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


def _side(relation: Relation, name: str, node: exp.Join, context: Context) -> ScopeColumn:
    found = [column for column in relation.visible_columns if column.name == name]
    if len(found) != 1:
        code, what = ("unknown-column", "no column") if not found else ("ambiguous-column", f"{len(found)} columns")
        raise SqlError(
            Diagnostic(
                code, f"USING takes columns of both sides, and one side has {what} named `{name}`", context.span(node)
            )
        )
    return found[0]
