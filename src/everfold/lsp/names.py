"""Find what a name in a script stands for, and where it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass

from everfold.errors import Span
from everfold.lsp.analysis import Analysis
from everfold.sql import syntax
from everfold.sql.catalog import CatalogTable, CatalogView, Entry
from everfold.sql.statements import CreateFunction, CreateTable, CreateView, Insert, StatementSet


@dataclass(frozen=True, slots=True)
class Reference:
    """A name of a table, a column or a function in a script.

    qualifier: the table or alias before a column. path: the nodes around it, outermost first.
    """

    kind: str
    name: str
    span: Span
    qualifier: str = ""
    path: tuple[syntax.Node, ...] = ()


def find_reference(analysis: Analysis, offset: int) -> Reference | None:
    """Return the name at an offset, None if there is none."""
    for statement in analysis.statements:
        if not _covers(statement.span, offset):
            continue
        inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
        for each in inserts:
            if isinstance(each, Insert) and _covers(each.target_span, offset):
                return Reference("table", each.target[-1], each.target_span)
            if isinstance(each, CreateTable | CreateView) and _covers(each.name_span, offset):
                return Reference("table", each.name[-1], each.name_span)
        for root in _trees(statement):
            path = _path_to(root, offset)
            if path and (found := _reference_of(path, offset)) is not None:
                return found
    return None


def _covers(span: Span | None, offset: int) -> bool:
    return span is not None and span.start <= offset <= span.end


def _trees(value: object) -> Iterator[syntax.Node]:
    """Yield the syntax trees in a statement."""
    if isinstance(value, syntax.Node):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _trees(each)
    elif is_dataclass(value) and not isinstance(value, Span):
        for each in fields(value):
            yield from _trees(getattr(value, each.name))


def _path_to(node: syntax.Node, offset: int) -> tuple[syntax.Node, ...]:
    """Return the nodes that cover an offset, from a root to the smallest one."""
    if node.span is not None and not _covers(node.span, offset):
        return ()
    for child in syntax.children(node):
        if path := _path_to(child, offset):
            return (node, *path)
    return (node,) if node.span is not None else ()


def _reference_of(path: tuple[syntax.Node, ...], offset: int) -> Reference | None:
    for at in range(len(path) - 1, -1, -1):
        node = path[at]
        match node:
            case syntax.Table(span=Span() as span):
                return Reference("table", node.names[-1], span, path=path[:at])
            case syntax.ColumnPath(parts=parts):
                last = next((n for n, each in enumerate(parts) if _covers(each.span, offset)), len(parts) - 1)
                own = parts[last].span or node.span
                assert own is not None
                if len(parts) > 1 and last == 0:
                    return Reference("qualifier", parts[0].name, own, path=path[:at])
                return Reference("column", parts[min(last, 1)].name, own, parts[0].name if last else "", path[:at])
            case syntax.FunctionCall(span=Span() as span) if offset <= span.start + len(node.original_name):
                end = span.start + len(node.original_name)
                return Reference("function", node.original_name, Span(span.start, end, span.source, span.text))
            case _:
                pass
    return None


def find_definition(analysis: Analysis, reference: Reference) -> Span | None:
    """Return where a name is declared in the script, None if it is not."""
    match reference.kind:
        case "table":
            return _table_definition(analysis, reference.name, reference.path)
        case "qualifier":
            relation = _named_relation(reference.path, reference.name)
            if relation is None:
                return _column_definition(analysis, reference)
            return relation.alias.span if relation.alias is not None else relation.span
        case "column":
            return _column_definition(analysis, reference)
        case _:
            return next(
                (
                    each.name_span
                    for each in analysis.statements
                    if isinstance(each, CreateFunction) and each.name[-1].lower() == reference.name.lower()
                ),
                None,
            )


def find_entry(analysis: Analysis, name: str) -> Entry | None:
    """Return the table or view of a name."""
    return analysis.session.catalog.find((name,))


def _table_definition(analysis: Analysis, name: str, path: tuple[syntax.Node, ...]) -> Span | None:
    if (common := _common_table(path, name)) is not None:
        return common.alias.span
    statement = _declaration(analysis, name)
    return None if statement is None else statement.name_span


def _declaration(analysis: Analysis, name: str) -> CreateTable | CreateView | None:
    found = (
        each
        for each in reversed(analysis.statements)
        if isinstance(each, CreateTable | CreateView) and each.name[-1] == name
    )
    return next(found, None)


def _common_table(path: tuple[syntax.Node, ...], name: str) -> syntax.CommonTable | None:
    for node in reversed(path):
        if isinstance(node, syntax.FlinkQuery):
            for each in node.ctes:
                if each.alias.name.name == name:
                    return each
    return None


def _relations(path: tuple[syntax.Node, ...]) -> Iterator[syntax.Relation]:
    """Yield the items of FROM that a column may be in, those of the innermost query first."""
    for node in reversed(path):
        if isinstance(node, syntax.Select) and node.source is not None:
            yield node.source
            yield from (join.relation for join in node.joins)
        elif isinstance(node, syntax.WindowTvf):
            yield node.table


def _named_relation(path: tuple[syntax.Node, ...], name: str) -> syntax.Relation | None:
    for each in _relations(path):
        alias = each.alias.name.name if each.alias is not None else ""
        if alias == name or (not alias and isinstance(each, syntax.Table) and each.names[-1] == name):
            return each
    return None


def _column_definition(analysis: Analysis, reference: Reference) -> Span | None:
    if reference.qualifier and (relation := _named_relation(reference.path, reference.qualifier)) is not None:
        return _column_of(analysis, relation, reference.name, reference.path)
    name = reference.qualifier or reference.name
    for each in _relations(reference.path):
        if (found := _column_of(analysis, each, name, reference.path)) is not None:
            return found
    return None


def _column_of(analysis: Analysis, relation: syntax.Relation, name: str, path: tuple[syntax.Node, ...]) -> Span | None:
    """Return where a column of an item of FROM is declared or computed."""
    match relation:
        case syntax.WindowTvf(table=table):
            return _column_of(analysis, table, name, path)
        case syntax.DerivedTable(query=query):
            return _item_of(query, name)
        case syntax.Table(names=names):
            common = _common_table(path, names[-1])
            if common is not None:
                return _item_of(common.query, name)
            statement = _declaration(analysis, names[-1])
            if isinstance(statement, CreateTable):
                return next((each.span for each in statement.columns if each.name == name), None)
            return None if statement is None else _item_of(statement.query, name)
        case _:
            return None


def _item_of(query: syntax.Query, name: str) -> Span | None:
    """Return the item of SELECT that computes a column."""
    match query:
        case syntax.Select(items=items):
            for each in items:
                named = each.alias.name if each.alias is not None else syntax.implicit_name(each.value)
                if named == name:
                    return (each.alias or each).span
            return None
        case syntax.SetOperation(left=left):
            return _item_of(left, name)
        case syntax.NestedQuery(query=inner):
            return _item_of(inner, name)
        case _:
            return None


def describe_entry(entry: Entry) -> str:
    """Return a table or view with its columns, as SQL in Markdown."""
    kind = "VIEW" if isinstance(entry, CatalogView) else "TABLE"
    columns = [f"  {field.name} {field.type.sql}{_clock(field.time)}" for field in entry.schema]
    text = f"{kind} {entry.name} (\n" + ",\n".join(columns) + "\n)"
    if isinstance(entry, CatalogTable) and entry.table.connector:
        text += f" -- connector: {entry.table.connector}"
    return f"```sql\n{text}\n```"


def _clock(time: str | None) -> str:
    return f" *{time.upper()}*" if time else ""
