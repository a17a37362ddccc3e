"""Infer the undeclared tables, columns and functions of a script that is checked and never run.

The script is processed from its end to its beginning, so that a view knows which of its columns are
used. A table that no CREATE TABLE declares has the columns that queries read from it, each of type
ANY. A column that a window or an OVER is ordered by is its time attribute. If an outer query reads
a column that an inner query does not select, the column is added to the inner query. A topic of
Lenses SQL has a key and metadata in addition to the fields that queries read. A function called
over groups is an aggregate function, any other a scalar function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeVar

from everfold.errors import suggest_name
from everfold.plan.expressions import Call, InputRef
from everfold.plan.nodes import Table, TableColumn
from everfold.plan.topic_storage import KEY, META, VALUE
from everfold.sql import syntax
from everfold.sql.binder.names import LEGACY_WINDOWS, is_aggregate
from everfold.sql.binder.python_functions import is_builtin
from everfold.sql.catalog import CatalogTable, Column, Watermark
from everfold.sql.dialects.lenses_columns import METADATA
from everfold.sql.statements import (
    AsQuery,
    CreateFunction,
    CreateTable,
    CreateView,
    Explain,
    Insert,
    JobStatement,
    Query,
    Statement,
    StatementSet,
)
from everfold.sql.user_functions import UserFunction
from everfold.types import ANY, DataType, TimestampType
from everfold.udf.function import PythonFunction
from everfold.udf.interface import AggregateFunction, ScalarFunction

J = TypeVar("J", bound=JobStatement)

_MAX_SUGGESTED = 10
"""How many undeclared names are compared with the declared ones: this takes time."""
_WINDOW = ("window_start", "window_end", "window_time")
_REST = "*"
"""Stands for all columns of an undeclared table that no query names, where a query selects `*`."""


_NUMERIC_FUNCTIONS = ("SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP", "VAR_POP", "VAR_SAMP", "STDDEV", "VARIANCE")
"""Functions whose argument is never a time attribute."""


class Use(IntEnum):
    """How a column is used; the greatest value wins."""

    VALUE = 0
    TIME = 1
    NUMBER = 2


class _UnknownFunction(ScalarFunction):
    """A scalar function of which only the name is known."""

    def eval(self, *args: object) -> object:
        raise NotImplementedError


class _UnknownAggregate(AggregateFunction):
    """An aggregate function of which only the name is known; it may or may not retract."""

    def create_accumulator(self) -> object:
        raise NotImplementedError

    def accumulate(self, accumulator: object, *args: object) -> None:
        raise NotImplementedError

    def retract(self, accumulator: object, *args: object) -> None:
        raise NotImplementedError

    def get_value(self, accumulator: object) -> object:
        raise NotImplementedError


@dataclass(slots=True)
class Completion:
    """What a script uses and does not declare.

    `statements` is the script, with queries that pass more columns through. `tables` maps each
    table to its columns, in the order of their use from the end of the script. `aggregates` tells
    which functions are aggregate functions, `identifiers` what those run that are declared and
    cannot be loaded. `notes` describes how queries were changed. `used` has the names of all tables
    and views that are read or written, also of those that are declared.
    """

    statements: tuple[Statement, ...] = ()
    tables: dict[str, dict[str, Use]] = field(default_factory=dict)
    aggregates: dict[str, bool] = field(default_factory=dict)
    identifiers: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def entries(self) -> Iterator[CatalogTable]:
        """Yield the tables as catalog entries."""
        return (_entry(name, columns) for name, columns in self.tables.items())

    def functions(self) -> Iterator[UserFunction]:
        """Yield the functions as catalog entries."""
        for name, aggregate in self.aggregates.items():
            function = _UnknownAggregate() if aggregate else _UnknownFunction()
            identifier = self.identifiers.get(name.lower(), name)
            accumulator = ANY if aggregate else None
            python = PythonFunction(name=name, identifier=identifier, function=function, accumulator=accumulator)
            yield UserFunction(python=python, input_types=None, result_type=ANY)


def infer_undeclared(statements: Sequence[Statement], known: Iterable[str], functions: Iterable[str]) -> Completion:
    """Return what a script leaves undeclared.

    `known` are tables declared elsewhere; `functions` are the user functions that can be loaded.
    """
    declared = {each.name[-1] for each in statements if isinstance(each, CreateTable | CreateView)}
    run = _Inference({*known, *declared}, {each.lower() for each in functions})
    run.found.identifiers = {
        each.name[-1].lower(): each.identifier for each in statements if isinstance(each, CreateFunction)
    }
    completed = [run.statement(each) for each in reversed(statements)]
    run.found.statements = tuple(reversed(completed))
    return run.found


def declares_tables(statements: Sequence[Statement]) -> bool:
    """Return whether a script declares the tables that its queries read or write, or tries to.

    One declared table is enough, but not one that CREATE TABLE … AS fills from undeclared ones. A
    name that is like that of a declared table is misspelled.
    """
    declared = {each.name[-1] for each in statements if isinstance(each, CreateTable) and each.as_query is None}
    created = {each.name[-1] for each in statements if isinstance(each, CreateTable | CreateView)}
    if not any(isinstance(each, CreateTable) for each in statements):
        return False
    used = infer_undeclared(statements, (), ()).used
    if used & declared or used <= created:
        return True
    return any(suggest_name(name, declared) is not None for name in sorted(used - created)[:_MAX_SUGGESTED])


def _entry(name: str, columns: Mapping[str, Use]) -> CatalogTable:
    """Return a table with columns of type ANY, sorted by name: their order has no meaning."""
    names = sorted(columns) or [_REST]
    of_time = TimestampType(precision=3)
    times = [each for each in names if columns.get(each) is Use.TIME]
    rowtimes = [each for each in times if not _is_processing_time(each)]
    table = Table(
        name=name,
        columns=tuple(_column_of(each, of_time if each in rowtimes else ANY) for each in names),
    )
    rowtime = None
    if rowtimes:
        at = names.index(rowtimes[0])
        rowtime = Watermark(
            column=at, expression=InputRef(type=of_time, position=at, name=rowtimes[0]), text=rowtimes[0]
        )
    plain = CatalogTable.of(table, rowtime=rowtime)
    computed = {
        each: Column(
            name=each,
            expression=Call(
                function="PROCTIME", args=(), type=TimestampType(precision=3, local_zone=True, nullable=False)
            ),
            kind="computed",
        )
        for each in times
        if _is_processing_time(each)
    }
    return replace(plain, columns=tuple(computed.get(each.name, each) for each in plain.columns))


def _column_of(name: str, of: DataType) -> TableColumn:
    """Return a column of a type, or a metadata column of a topic."""
    facet, _, key = name.partition(".")
    if facet == META and key in METADATA:
        return TableColumn(name=name, type=METADATA[key], metadata_key=key, virtual=True)
    return TableColumn(name=name, type=of)


def _is_processing_time(name: str) -> bool:
    return "proc" in name.lower()


# --- queries --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Inference:
    """A walk through the queries of a script."""

    known: set[str]
    functions: set[str]
    found: Completion = field(default_factory=Completion)
    of_views: dict[str, dict[str, Use]] = field(default_factory=dict)
    ctes: dict[str, dict[str, Use]] = field(default_factory=dict)

    def statement(self, statement: Statement) -> Statement:
        """Return a statement with its queries completed."""
        match statement:
            case Explain(statement=inner):
                return replace(statement, statement=self.job(inner))
            case Query() | Insert() | StatementSet() | CreateTable(as_query=AsQuery()):
                return self.job(statement)
            case CreateView():
                return replace(statement, query=self.query(statement.query, self._wanted_of_view(statement)))
            case _:
                return statement

    def job(self, statement: J) -> J:
        """Return a statement that runs queries, with these completed."""
        if isinstance(statement, StatementSet):
            return replace(statement, inserts=tuple(map(self.job, statement.inserts)))
        if isinstance(statement, Insert):
            self.found.used.add(statement.target[-1])
        if isinstance(statement, CreateTable):
            assert statement.as_query is not None
            query = self.query(statement.as_query.query, {})
            return replace(statement, as_query=replace(statement.as_query, query=query))
        return replace(statement, query=self.query(statement.query, {}))

    def _wanted_of_view(self, view: CreateView) -> Mapping[str, Use]:
        """Return the columns read from a view, by their names in its query."""
        wanted = self.of_views.get(view.name[-1], {})
        return wanted if view.columns is None else _rename(wanted, view.columns, _outputs(view.query))

    def query(self, node: syntax.Query, wanted: Mapping[str, Use]) -> syntax.Query:
        """Complete a query; `wanted` are the columns read from it, by name."""
        outer, found = dict(self.ctes), node
        if isinstance(node, syntax.FlinkQuery):
            self.ctes |= {each.alias.name.name: {} for each in node.ctes}
        match node:
            case syntax.TopicQuery():
                self.table(node.source.name, dict.fromkeys(_fields(node), Use.VALUE))
            case syntax.Select():
                found = self._select(node, wanted)
            case syntax.NestedQuery():
                found = replace(node, query=self.query(node.query, wanted))
            case syntax.SetOperation():
                names = _outputs(node)
                left, right = (
                    self.query(side, _rename(wanted, names, _outputs(side))) for side in (node.left, node.right)
                )
                found = replace(node, left=left, right=right)
        if isinstance(found, syntax.FlinkQuery) and found.ctes:
            ctes = [
                replace(each, query=self.query(each.query, self.ctes[each.alias.name.name]))
                for each in reversed(found.ctes)
            ]
            found = replace(found, ctes=tuple(reversed(ctes)))
            self.ctes = outer
        return found

    def _select(self, node: syntax.Select, wanted: Mapping[str, Use]) -> syntax.Select:
        items = _items(node)
        scope = _Scope(self, node)
        for name, use in wanted.items():
            if name in items:
                item = items[name]
                if isinstance(item, syntax.ColumnPath):
                    scope.take(item.names, use)
            elif _has_star(node):
                scope.take((name,), use)
            elif name == _REST:
                pass
            elif node.group is None and not any(map(self._has_aggregate, node.items)):
                self.found.notes.append(
                    f"`{name}` is read from an inner query that does not select it: it is added to that query"
                )
                column = syntax.ColumnPath((syntax.Identifier(name),), span=node.span)
                node = replace(node, items=(*node.items, syntax.SelectItem(column, span=node.span)))
                scope.take((name,), use)
        if _has_star(node):
            scope.take((_REST,), Use.VALUE)
        self._record_functions(node)
        for path, use in _uses(node, set(items)):
            scope.take(path, use)
        return self._complete_below(node, scope)

    def _complete_below(self, node: syntax.Select, scope: _Scope) -> syntax.Select:
        """Complete the queries inside the expressions of a SELECT, then those in its FROM."""

        def complete(part: syntax.Node) -> syntax.Node:
            return syntax.transform(part, lambda each: self.query(each, {}) if isinstance(each, syntax.Query) else None)

        expressions = syntax.map_children(replace(node, ctes=(), source=None, joins=()), complete)
        relations = scope.finish()
        source = next(relations, None)
        joins = tuple(replace(join, relation=each) for join, each in zip(node.joins, relations, strict=True))
        return replace(expressions, ctes=node.ctes, source=source, joins=joins)

    def table(self, name: str, wanted: Mapping[str, Use]) -> None:
        """Record the columns read from a name in FROM."""
        if name in self.ctes:
            _add(self.ctes[name], wanted)
            return
        self.found.used.add(name)
        if name in self.known:
            _add(self.of_views.setdefault(name, {}), wanted)
        else:
            _add(self.found.tables.setdefault(name, {}), wanted)

    # --- functions ---

    def _record_functions(self, node: syntax.Select) -> None:
        keys: dict[type[syntax.Node], set[syntax.Node]] = {}
        for each in node.group.elements if node.group is not None else ():
            keys.setdefault(type(each), set()).add(each)
        grouped = bool(keys) or any(map(self._has_aggregate, node.items))
        for item in (*node.items, *([node.having] if node.having is not None else [])):
            self._record_calls(item, over_groups=grouped, keys=keys)
        for part in (node.where, node.group, node.qualify, node.order):
            if part is not None:
                self._record_calls(part, over_groups=False, keys=keys)

    def _record_calls(
        self, node: syntax.Node, *, over_groups: bool, keys: Mapping[type[syntax.Node], Set[syntax.Node]]
    ) -> None:
        """Record the undeclared functions among the calls.

        `over_groups`: whether calls here are computed over the rows of a group. `keys` are those of
        GROUP BY by class, because the hash of a high tree takes time.
        """
        if isinstance(node, syntax.Query) or node in keys.get(type(node), ()):
            return
        inside = over_groups
        match node:
            case syntax.Over(call=call):
                self._record_if_undeclared(call, aggregate=True)
                inside = False
            case syntax.FunctionCall():
                aggregate = is_aggregate(node.name) or self._record_if_undeclared(node, aggregate=over_groups)
                inside = over_groups and not aggregate
        for child in syntax.children(node):
            self._record_calls(child, over_groups=inside, keys=keys)

    def _record_if_undeclared(self, node: syntax.FunctionCall, *, aggregate: bool) -> bool:
        """Record a function if it is undeclared; return whether it is such an aggregate."""
        if node.special or is_builtin(node.name) or node.original_name.lower() in self.functions:
            return False
        self.found.aggregates[node.original_name] = aggregate or self.found.aggregates.get(node.original_name, False)
        return self.found.aggregates[node.original_name]

    def _has_aggregate(self, node: syntax.Node) -> bool:
        """Return whether an item of a SELECT list contains an aggregate function."""
        if isinstance(node, syntax.Query | syntax.Over):
            return False
        if isinstance(node, syntax.FunctionCall) and is_aggregate(node.name):
            return True
        return any(map(self._has_aggregate, syntax.children(node)))


class _Scope:
    """The items of a FROM clause, and the columns read from each."""

    def __init__(self, run: _Inference, node: syntax.Select) -> None:
        self._run = run
        relations = [] if node.source is None else [node.source, *(join.relation for join in node.joins)]
        self._items: list[tuple[syntax.Relation, dict[str, Use]]] = [(each, {}) for each in relations]
        self._named = {_alias(item): wanted for item, wanted in self._items if _has_columns(item) and _alias(item)}
        self._is_single = sum(map(_has_columns, relations)) == 1

    def take(self, path: Sequence[str], use: Use) -> None:
        """Record the use of a column.

        An unqualified name belongs to the first item that may have it.
        """
        if len(path) > 1 and path[0] in self._named:
            _add(self._named[path[0]], {path[1]: use})
            return
        for item, wanted in self._items:
            if self._may_have(item, path[0]):
                _add(wanted, {path[0]: use})
                return

    def finish(self) -> Iterator[syntax.Relation]:
        """Pass the recorded columns on to the items of FROM; yield the completed items."""
        return (self._hand_down(item, wanted) for item, wanted in self._items)

    def _may_have(self, item: syntax.Relation, name: str) -> bool:
        """Return whether an item has a column, or may have it.

        Among several items, one that lists its columns has only those.
        """
        if not _has_columns(item):
            return False
        match item:
            case syntax.DerivedTable() if not self._is_single:
                return name in _outputs(item.query) or name == _REST
            case syntax.WindowTvf() if not self._is_single:
                return name in _WINDOW or self._may_have(item.table, name)
            case _:
                return True

    def _hand_down(self, item: syntax.Relation, wanted: Mapping[str, Use]) -> syntax.Relation:
        match item:
            case syntax.WindowTvf():
                time = {item.time_column.names[-1]: Use.TIME}
                keys = {each.names[-1]: Use.VALUE for each in item.partition_by}
                below = {name: use for name, use in wanted.items() if name not in _WINDOW}
                return replace(item, table=self._hand_down(item.table, {**below, **keys, **time}))
            case syntax.DerivedTable(lateral=False):
                return replace(item, query=self._run.query(item.query, wanted))
            case syntax.Table(names=(name,)):
                self._run.table(name, wanted)
            case syntax.Table(names=names):
                self._run.found.used.add(names[-1])
        return item


# --- topics ---------------------------------------------------------------------------------------


def _fields(node: syntax.TopicQuery) -> Iterator[str]:
    """Yield the columns that a query of Lenses SQL reads from its source."""
    yield from (KEY, *(f"{META}.{name}" for name in METADATA))
    parts = [*(each.value for each in node.items), *(each.value for each in node.group)]
    parts += [each for each in (node.eventtime, node.where) if each is not None]
    for part in parts:
        if isinstance(part, syntax.Star):
            yield _REST
        for path in syntax.find_all(part, syntax.ColumnPath):
            names = path.names[1:] if len(path.names) > 1 and path.names[0] == node.source_name else path.names
            name = names[1] if len(names) > 1 and names[0] == VALUE else names[0]
            if name not in (KEY, META):
                yield name


# --- nodes ----------------------------------------------------------------------------------------


def _items(node: syntax.Select) -> dict[str, syntax.Expression]:
    """Return the expression of each name in a SELECT list."""
    return {name: each.value for name, each in zip(_outputs(node), node.items, strict=True) if name}


def _outputs(node: syntax.Query) -> list[str]:
    """Return the column names of a query that are written; `` for an unnamed column."""
    match node:
        case syntax.Select():
            return [_output(each) for each in node.items]
        case syntax.NestedQuery():
            return _outputs(node.query)
        case syntax.SetOperation():
            return _outputs(node.left)
        case _:
            return []


def _output(item: syntax.SelectItem) -> str:
    if item.alias is not None:
        return item.alias.name
    return item.value.names[-1] if isinstance(item.value, syntax.ColumnPath) else ""


def _rename(wanted: Mapping[str, Use], names: Sequence[str], others: Sequence[str]) -> dict[str, Use]:
    """Return the columns by their other names; both lists have the columns in the same order.

    An expression without a name is left out.
    """
    return {other: wanted[name] for name, other in zip(names, others, strict=False) if other and name in wanted}


def _has_star(node: syntax.Select) -> bool:
    return any(isinstance(each.value, syntax.Star | syntax.QualifiedStar) for each in node.items)


def _has_columns(item: syntax.Relation) -> bool:
    """Return whether columns are read from an item of FROM."""
    return isinstance(item, syntax.Table | syntax.DerivedTable | syntax.WindowTvf) and not (
        isinstance(item, syntax.DerivedTable) and item.lateral
    )


def _alias(item: syntax.Relation) -> str:
    if item.alias is not None:
        return item.alias.name.name
    return item.names[-1] if isinstance(item, syntax.Table) else ""


def _uses(node: syntax.Select, outputs: Set[str]) -> Iterator[tuple[tuple[str, ...], Use]]:
    """Yield the columns that the clauses of a SELECT read from its FROM."""
    of_rows = (*node.items, *node.windows, node.where, node.group, *(join.on for join in node.joins))
    for part in of_rows:
        if part is not None:
            yield from _paths(part, Use.VALUE)
    for clause in (node.having, node.qualify, node.order):
        if clause is not None:
            yield from ((path, use) for path, use in _paths(clause, Use.VALUE) if path[0] not in outputs)


def _paths(node: syntax.Node, use: Use) -> Iterator[tuple[tuple[str, ...], Use]]:
    time: syntax.Expression | None = None
    match node:
        case syntax.Query():
            return
        case syntax.ColumnPath():
            yield node.names, use
            return
        case syntax.QualifiedStar():
            yield (*node.names, _REST), use
            return
        case syntax.Over(call=call, window=syntax.WindowSpec(order=(first, *_))):
            # Numbered rows may be in any order: there, only the name marks processing time.
            ranks = call.name in ("ROW_NUMBER", "RANK", "DENSE_RANK")
            if not ranks or _is_processing_time(syntax.implicit_name(first.value) or ""):
                time = first.value
        case syntax.NamedWindow(window=syntax.WindowSpec(order=(first, *_))):
            time = first.value
        case syntax.FunctionCall(arguments=(argument, *_)) if node.name in LEGACY_WINDOWS:
            time = argument
    if isinstance(time, syntax.ColumnPath):
        yield time.names, Use.TIME
    if isinstance(node, syntax.FunctionCall) and node.name in _NUMERIC_FUNCTIONS:
        yield from ((each.names, Use.NUMBER) for each in node.arguments if isinstance(each, syntax.ColumnPath))
    for child in syntax.children(node):
        yield from _paths(child, use)


def _add(to: dict[str, Use], more: Mapping[str, Use]) -> None:
    for name, use in more.items():
        to[name] = max(use, to.get(name, use))
