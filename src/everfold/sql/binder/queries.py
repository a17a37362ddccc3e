"""Queries: WITH, set operations, VALUES, and ORDER BY and LIMIT around a SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.limits import MAX_HEIGHT, MAX_NODES
from everfold.plan.expressions import Expr, Literal, column_references
from everfold.plan.nodes import Collect, Limit, Plan, Project, SetKind, SetOperation, Sort, SortKey, Union, Values
from everfold.plan.rewrites import shorten
from everfold.plan.size import check_size, count_nodes, count_own_cells, height
from everfold.sql import syntax
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.expressions import ExpressionBinder
from everfold.sql.binder.lenses.queries import bind_topic_query
from everfold.sql.binder.order_by import build_sort_key, order_items, resolve_ordinal, sort_rows
from everfold.sql.binder.relations import apply_alias
from everfold.sql.binder.scope import Relation
from everfold.sql.binder.select import bind_select, deduplicate_rows
from everfold.sql.binder.topn import check_top_n, limit_to_rank
from everfold.sql.catalog import Catalog
from everfold.types import DataType, Field, NullType


def create_context(catalog: Catalog) -> Context:
    """Return the context in which a statement is bound."""
    return Context(catalog=catalog, bind_query=_bind_nested)


def bind_query(query: syntax.Query, catalog: Catalog) -> Collect:
    """Bind a bare query."""
    context = create_context(catalog)
    plan = bind_body(query, context).plan
    check_top_n(plan, context)
    check_typed(plan, query, context)
    return Collect(input=rename_columns(plan, deduplicate_names(plan.schema.names)))


def rename_columns(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan with its columns renamed."""
    if tuple(names) == plan.schema.names:
        return plan
    if isinstance(plan, Project):
        return Project(input=plan.input, expressions=plan.expressions, names=tuple(names), span=plan.span)
    return Project(input=plan, expressions=column_references(plan.schema), names=tuple(names))


def deduplicate_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return result names without duplicates, numbered as in Flink: `a`, `a0`, `a1`."""
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        new, number = name, 0
        while new in seen or (new != name and new in taken):
            new, number = f"{name}{number}", number + 1
        seen.add(new)
        result.append(new)
    return tuple(result)


def check_typed(plan: Plan, query: syntax.Query, context: Context) -> None:
    """Raise SqlError `untyped-null` for a result column that is nothing but NULL."""
    for field in plan.schema:
        if isinstance(field.type, NullType):
            raise context.error(
                "untyped-null", f"the column `{field.name}` is NULL without a type", query, "write CAST(NULL AS STRING)"
            )


def bind_body(node: syntax.Query, context: Context) -> Relation:
    """Bind a query as a relation. Its columns keep their names, including duplicates.

    Raises SqlError `too-complex` for a query that no engine could run.
    """
    relation = _body(node, context)
    if height(relation.plan) > MAX_HEIGHT and count_nodes(relation.plan) <= MAX_NODES:
        relation = relation.with_plan(shorten(relation.plan))
    check_size(relation.plan, node.span)
    context.catalog.work.add(count_own_cells(relation.plan), node.span)
    return relation


def _bind_nested(node: syntax.Query, context: Context) -> Relation:
    return bind_body(node, replace(context, is_nested=True))


def _body(node: syntax.Query, context: Context) -> Relation:
    if isinstance(node, syntax.TopicQuery):
        return Relation.of(bind_topic_query(node, context).plan)
    assert isinstance(node, syntax.FlinkQuery)
    context = _with(node, context)
    match node:
        case syntax.Select():
            return _apply_limit(Relation.of(bind_select(node, context)), node, context)
        case syntax.NestedQuery():
            relation = (bind_body if node.order is None else _bind_nested)(node.query, context)
        case syntax.Values():
            relation = Relation.of(_values(node, context))
        case _:
            assert isinstance(node, syntax.SetOperation)
            relation = Relation.of(_set_operation(node, context))
    return _apply_limit(_apply_order(relation, node, context), node, context)


def _with(node: syntax.FlinkQuery, context: Context) -> Context:
    for cte in node.ctes:
        relation = apply_alias(_bind_nested(cte.query, context), cte.alias, context)
        context = context.with_ctes({cte.alias.name.name: relation})
    return context


# --- ORDER BY, LIMIT ------------------------------------------------------------------------------


def _apply_order(relation: Relation, node: syntax.FlinkQuery, context: Context) -> Relation:
    if node.order is None:
        return relation
    keys: list[SortKey] = []
    problems = Problems()
    for each in order_items(node, context):
        with problems:
            at = resolve_ordinal(each.value, len(relation.visible_columns), context)
            if at is not None:
                keys.append(build_sort_key(each, relation.reference(relation.visible_columns[at])))
            else:
                keys.append(build_sort_key(each, ExpressionBinder(relation, context, "ORDER BY").bind(each.value)))
    problems.check()
    if not keys:
        return relation
    return relation.with_plan(sort_rows(relation.plan, keys, node, context))


def _apply_limit(relation: Relation, node: syntax.FlinkQuery, context: Context) -> Relation:
    limit, offset = node.limit, node.offset
    clause = limit or offset
    if clause is None:
        return relation
    if context.streaming and limit is None:
        raise context.unsupported(
            "streaming-offset",
            "OFFSET without LIMIT is not supported in streaming: all rows would have to be kept forever",
            offset,
            "add LIMIT n, or run in batch",
        )
    count = None if limit is None else limit.rows
    skipped = 0 if offset is None else offset.rows

    def limit_plan(plan: Plan) -> Plan:
        limit_node = Limit(input=plan, count=count, offset=skipped, span=clause.span)
        return limit_to_rank(limit_node, context.settings.state_ttl_ms or 0) if context.streaming else limit_node

    plan = relation.plan
    if isinstance(plan, Project) and isinstance(plan.input, Sort):
        # Keep LIMIT directly on top of the sort whose first rows it takes.
        return relation.with_plan(replace(plan, input=limit_plan(plan.input)))
    return relation.with_plan(limit_plan(plan))


# --- set operations, VALUES -----------------------------------------------------------------------


def _set_operation(node: syntax.SetOperation, context: Context) -> Plan:
    kind = node.operator + ("" if node.distinct else " ALL")
    if context.streaming and node.operator != "UNION":
        raise context.unsupported(
            "streaming-set-operation",
            f"{kind} is not supported in streaming: it would keep all rows forever",
            node,
            "run in batch",
        )
    sides = _operands(node) if kind == "UNION ALL" else [node.left, node.right]
    plans: list[Plan] = []
    problems = Problems()
    for side in sides:
        with problems:
            plans.append(_bind_nested(side, context).plan)
    problems.check()
    for side, plan in zip(sides, plans, strict=True):
        if len(plan.schema) != len(plans[0].schema):
            raise context.error(
                "column-count",
                f"{kind} needs the same number of columns: {len(plans[0].schema)} and {len(plan.schema)}",
                side,
            )
    types = [_column_type(at, kind, node, plans, context) for at in range(len(plans[0].schema))]
    plans = [_cast_to(plan, types) for plan in plans]
    if kind == "UNION ALL":
        return Union(inputs=tuple(plans), span=node.span)
    if context.streaming:
        return deduplicate_rows(Union(inputs=tuple(plans), span=node.span), context, node)
    return SetOperation(kind=SetKind(kind), left=plans[0], right=plans[1], span=node.span)


def _operands(node: syntax.SetOperation) -> list[syntax.Query]:
    """Return the queries that a chain of UNION ALL combines."""
    sides: list[syntax.Query] = []
    for side in (node.left, node.right):
        match side:
            case syntax.SetOperation(operator="UNION", distinct=False, has_own_clauses=False):
                sides += _operands(side)
            case _:
                sides.append(side)
    return sides


def _column_type(at: int, kind: str, node: syntax.SetOperation, plans: Sequence[Plan], context: Context) -> DataType:
    from everfold.sql.functions import least_restrictive

    types = [plan.schema[at].type for plan in plans]
    found = least_restrictive(types)
    if found is None:
        shown = " and ".join(dict.fromkeys(each.sql for each in types))
        raise context.error(
            "type-mismatch", f"column {at + 1} of {kind} cannot be {shown} at once", node, "CAST them to one type"
        )
    return found.as_nullable(any(each.nullable for each in types))


def _cast_to(plan: Plan, types: Sequence[DataType]) -> Plan:
    """Cast the columns of a plan to these types.

    A column of the same type stays unchanged, and a time attribute remains one.
    """
    if all(field.type.same_as(of) for field, of in zip(plan.schema, types, strict=True)):
        return plan
    return Project(
        input=plan,
        expressions=tuple(
            convert_value(each, of) for each, of in zip(column_references(plan.schema), types, strict=True)
        ),
        names=plan.schema.names,
    )


def convert_value(value: Expr, of: DataType) -> Expr:
    """Convert a value to a type that accepts it implicitly."""
    from everfold.sql.functions.coercion import convert_to as convert

    if isinstance(value, Literal) and value.value is None:
        return Literal(type=of.as_nullable(), value=None, span=value.span)
    return convert(value, of)


def _values(node: syntax.Values, context: Context) -> Values:
    from everfold.sql.functions import least_restrictive

    nothing = Relation(plan=Values(rows=(), fields=()), columns=())
    binder = ExpressionBinder(nothing, context, "VALUES")
    rows: list[tuple[Expr, ...]] = []
    problems = Problems()
    for written in node.rows:
        with problems:
            rows.append(tuple(binder.bind(each) for each in written.items))
    problems.check()
    width = len(rows[0])
    for row, written in zip(rows, node.rows, strict=True):
        if len(row) != width:
            raise context.error("column-count", f"the rows of VALUES have {width} and {len(row)} values", written)
    fields = []
    for at in range(width):
        types = [row[at].type for row in rows]
        found = least_restrictive(types)
        if found is None:
            shown = " and ".join(dict.fromkeys(each.sql for each in types))
            raise context.error(
                "type-mismatch", f"column {at + 1} of VALUES cannot be {shown} at once", node, "CAST them to one type"
            )
        fields.append(Field(name=f"EXPR${at}", type=found.as_nullable(any(each.nullable for each in types))))
    converted_rows = tuple(
        tuple(convert_value(value, field.type) for value, field in zip(row, fields, strict=True)) for row in rows
    )
    return Values(rows=converted_rows, fields=tuple(fields), span=node.span)
