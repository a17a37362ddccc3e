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

from sqlglot import exp

from everfold.plan.expressions import Call, InputRef
from everfold.plan.nodes import Table, TableColumn
from everfold.sql.binder.names import LEGACY_WINDOWS, is_aggregate
from everfold.sql.binder.python_functions import is_builtin
from everfold.sql.catalog import CatalogTable, Column, Watermark
from everfold.sql.dialects.lenses import KEY, META, METADATA, VALUE
from everfold.sql.dialects.lenses_nodes import TopicQuery
from everfold.sql.dialects.nodes import ColumnPath, FunctionCall, QualifiedStar, WindowTvf
from everfold.sql.statements import (
    AsQuery,
    CreateTable,
    CreateView,
    Explain,
    Insert,
    Query,
    Statement,
    StatementSet,
)
from everfold.sql.user_functions import UserFunction
from everfold.types import ANY, DataType, TimestampType
from everfold.udf.function import PythonFunction
from everfold.udf.interface import AggregateFunction, ScalarFunction

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

    `tables` maps each table to its columns, in the order of their use from the end of the script.
    `aggregates` tells which functions are aggregate functions. `notes` describes how queries were
    changed.
    """

    tables: dict[str, dict[str, Use]] = field(default_factory=dict)
    aggregates: dict[str, bool] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def entries(self) -> Iterator[CatalogTable]:
        """Yield the tables as catalog entries."""
        return (_entry(name, columns) for name, columns in self.tables.items())

    def functions(self) -> Iterator[UserFunction]:
        """Yield the functions as catalog entries."""
        for name, aggregate in self.aggregates.items():
            function = _UnknownAggregate() if aggregate else _UnknownFunction()
            python = PythonFunction(
                name=name, identifier=name, function=function, accumulator=ANY if aggregate else None
            )
            yield UserFunction(python=python, input_types=None, result_type=ANY)


def infer_undeclared(statements: Sequence[Statement], known: Iterable[str], functions: Iterable[str]) -> Completion:
    """Return what a script leaves undeclared.

    Queries that must pass a column through are changed in place.

    `known` are tables declared elsewhere; `functions` are the user functions that can be loaded.
    """
    declared = {each.name[-1] for each in statements if isinstance(each, CreateTable | CreateView)}
    run = _Inference({*known, *declared}, {each.lower() for each in functions})
    for statement in reversed(statements):
        match statement.statement if isinstance(statement, Explain) else statement:
            case Query() | Insert() as one:
                run.query(one.query, {})
            case StatementSet(inserts=inserts):
                for each in inserts:
                    run.query(each.query, {})
            case CreateTable(as_query=AsQuery() as one):
                run.query(one.query, {})
            case CreateView() as view:
                wanted = run.of_views.get(view.name[-1], {})
                if view.columns is not None:
                    at = {name: place for place, name in enumerate(view.columns)}
                    outputs = _outputs(view.query)
                    wanted = {
                        outputs[at[name]]: use
                        for name, use in wanted.items()
                        if at.get(name, len(outputs)) < len(outputs)
                    }
                run.query(view.query, wanted)
    return run.found


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

    def query(self, node: exp.Expression, wanted: Mapping[str, Use]) -> None:
        """Complete a query; `wanted` are the columns read from it, by name."""
        clause = node.args.get("with_")
        outer = dict(self.ctes)
        if clause is not None:
            self.ctes |= {each.args["alias"].name: {} for each in clause.expressions}
        match node:
            case TopicQuery():
                self.table(node.source.name, dict.fromkeys(_fields(node), Use.VALUE))
            case exp.Select():
                self._select(node, wanted)
            case exp.Subquery():
                self.query(node.this, wanted)
            case exp.Union() | exp.Intersect() | exp.Except():
                names = _outputs(node)
                for side in (node.this, node.expression):
                    own = _outputs(side)
                    places = {at: wanted[name] for at, name in enumerate(names) if name in wanted and at < len(own)}
                    self.query(side, {own[at]: use for at, use in places.items()})
        if clause is not None:
            for each in reversed(clause.expressions):
                self.query(each.this, self.ctes[each.args["alias"].name])
            self.ctes = outer

    def _select(self, node: exp.Select, wanted: Mapping[str, Use]) -> None:
        items = _items(node)
        scope = _Scope(self, node)
        for name, use in wanted.items():
            if name in items:
                item = items[name]
                if isinstance(item, ColumnPath):
                    scope.take(item.names, use)
            elif _has_star(node):
                scope.take((name,), use)
            elif name == _REST:
                pass
            elif node.args.get("group") is None and not any(map(self._has_aggregate, node.expressions)):
                self.found.notes.append(
                    f"`{name}` is read from an inner query that does not select it: it is added to that query"
                )
                node.append("expressions", _column(name, node))
                scope.take((name,), use)
        if _has_star(node):
            scope.take((_REST,), Use.VALUE)
        self._record_functions(node)
        for path, use in _uses(node, set(items)):
            scope.take(path, use)
        for inner in _nested(node):
            self.query(inner, {})
        scope.finish()

    def table(self, name: str, wanted: Mapping[str, Use]) -> None:
        """Record the columns read from a name in FROM."""
        if name in self.ctes:
            _add(self.ctes[name], wanted)
        elif name in self.known:
            _add(self.of_views.setdefault(name, {}), wanted)
        else:
            _add(self.found.tables.setdefault(name, {}), wanted)

    # --- functions ---

    def _record_functions(self, node: exp.Select) -> None:
        keys = set(node.args["group"].expressions) if node.args.get("group") is not None else set()
        grouped = bool(keys) or any(map(self._has_aggregate, node.expressions))
        having = node.args.get("having")
        for item in [*node.expressions, *([having.this] if having is not None else [])]:
            self._record_calls(item, over_groups=grouped, keys=keys)
        for name in ("where", "group", "qualify", "order"):
            if node.args.get(name) is not None:
                self._record_calls(node.args[name], over_groups=False, keys=keys)

    def _record_calls(self, node: exp.Expression, *, over_groups: bool, keys: Set[exp.Expression]) -> None:
        """Record the undeclared functions among the calls.

        `rewrite_over_groups`: whether calls here are computed over the rows of a group.
        """
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists) or node in keys:
            return
        inside = over_groups
        if isinstance(node, exp.Window) and isinstance(node.this, FunctionCall):
            self._record_if_undeclared(node.this, aggregate=True)
            inside = False
        elif isinstance(node, FunctionCall):
            aggregate = is_aggregate(node.name) or self._record_if_undeclared(node, aggregate=over_groups)
            inside = over_groups and not aggregate
        for child in node.iter_expressions():
            self._record_calls(child, over_groups=inside, keys=keys)

    def _record_if_undeclared(self, node: FunctionCall, *, aggregate: bool) -> bool:
        """Record a function if it is undeclared; return whether it is such an aggregate."""
        if node.special or is_builtin(node.name) or node.original_name.lower() in self.functions:
            return False
        self.found.aggregates[node.original_name] = aggregate or self.found.aggregates.get(node.original_name, False)
        return self.found.aggregates[node.original_name]

    def _has_aggregate(self, node: exp.Expression) -> bool:
        """Return whether an item of a SELECT list contains an aggregate function."""
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists | exp.Window):
            return False
        if isinstance(node, FunctionCall) and is_aggregate(node.name):
            return True
        return any(map(self._has_aggregate, node.iter_expressions()))


class _Scope:
    """The items of a FROM clause, and the columns read from each."""

    def __init__(self, run: _Inference, node: exp.Select) -> None:
        self._run = run
        source = node.args.get("from_")
        items = [] if source is None else [source.this, *(join.this for join in node.args.get("joins") or ())]
        self._items: list[tuple[exp.Expression, dict[str, Use]]] = [
            (each, {}) for each in items if isinstance(each, exp.Table | exp.Subquery | WindowTvf)
        ]
        self._named = {_alias(item): wanted for item, wanted in self._items if _alias(item)}

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

    def finish(self) -> None:
        """Pass the recorded columns on to the items of FROM."""
        for item, wanted in self._items:
            self._hand_down(item, wanted)

    def _may_have(self, item: exp.Expression, name: str) -> bool:
        """Return whether an item has a column, or may have it.

        Among several items, one that lists its columns has only those.
        """
        if len(self._items) == 1:
            return True
        match item:
            case exp.Subquery():
                return name in _outputs(item.this) or name == _REST
            case WindowTvf():
                return name in _WINDOW or self._may_have(item.table, name)
            case _:
                return True

    def _hand_down(self, item: exp.Expression, wanted: Mapping[str, Use]) -> None:
        match item:
            case WindowTvf():
                time = {item.timecol.names[-1]: Use.TIME}
                keys = {each.names[-1]: Use.VALUE for each in item.partition_by}
                below = {name: use for name, use in wanted.items() if name not in _WINDOW}
                self._hand_down(item.table, {**below, **keys, **time})
            case exp.Subquery():
                self._run.query(item.this, wanted)
            case exp.Table() if item.args.get("db") is None:
                self._run.table(item.this.name, wanted)
            case _:
                pass


# --- topics ---------------------------------------------------------------------------------------


def _fields(node: TopicQuery) -> Iterator[str]:
    """Yield the columns that a query of Lenses SQL reads from its source."""
    yield from (KEY, *(f"{META}.{name}" for name in METADATA))
    parts = [each.this for each in (*node.expressions, *node.group)]
    parts += [node.args[name] for name in ("eventtime", "where") if node.args.get(name) is not None]
    for part in parts:
        if isinstance(part, exp.Star):
            yield _REST
        for path in part.find_all(ColumnPath):
            names = path.names[1:] if len(path.names) > 1 and path.names[0] == node.source_name else path.names
            name = names[1] if len(names) > 1 and names[0] == VALUE else names[0]
            if name not in (KEY, META):
                yield name


# --- nodes ----------------------------------------------------------------------------------------


def _items(node: exp.Select) -> dict[str, exp.Expression]:
    """Return the expression of each name in a SELECT list."""
    found = {}
    for each in node.expressions:
        if isinstance(each, exp.Alias):
            found[each.alias] = each.this
        elif isinstance(each, ColumnPath):
            found[each.names[-1]] = each
    return found


def _outputs(node: exp.Expression) -> list[str]:
    """Return the column names of a query that are written; `` for an unnamed column."""
    match node:
        case exp.Select():
            return [
                each.alias if isinstance(each, exp.Alias) else each.names[-1] if isinstance(each, ColumnPath) else ""
                for each in node.expressions
            ]
        case exp.Subquery() | exp.Union() | exp.Intersect() | exp.Except():
            return _outputs(node.this)
        case _:
            return []


def _has_star(node: exp.Select) -> bool:
    return any(isinstance(each, exp.Star | QualifiedStar) for each in node.expressions)


def _alias(item: exp.Expression) -> str:
    alias = item.args.get("alias")
    if alias is not None:
        return str(alias.name)
    return item.this.name if isinstance(item, exp.Table) else ""


def _column(name: str, near: exp.Expression) -> ColumnPath:
    path = ColumnPath(parts=[exp.Identifier(this=name, quoted=False)])
    path.meta.update({key: near.meta[key] for key in ("start", "end") if key in near.meta})
    return path


def _uses(node: exp.Select, outputs: set[str]) -> Iterator[tuple[tuple[str, ...], Use]]:
    """Yield the columns that the clauses of a SELECT read from its FROM."""
    parts = [*node.expressions, *(node.args.get("windows") or ())]
    parts += [node.args[name] for name in ("where", "group", "having", "qualify", "order") if node.args.get(name)]
    parts += [join.args["on"] for join in node.args.get("joins") or () if join.args.get("on") is not None]
    for part in parts:
        by_alias = outputs if isinstance(part, exp.Order | exp.Qualify | exp.Having) else set()
        yield from ((path, use) for path, use in _paths(part, Use.VALUE) if path[0] not in by_alias)


def _paths(node: exp.Expression, use: Use) -> Iterator[tuple[tuple[str, ...], Use]]:
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
        return
    if isinstance(node, ColumnPath):
        yield node.names, use
        return
    if isinstance(node, QualifiedStar):
        yield (*node.names, _REST), use
        return
    time: exp.Expression | None = None
    if isinstance(node, exp.Window) and node.args.get("order") is not None:
        first = node.args["order"].expressions[0].this
        # Numbered rows may be in any order: there, only its name marks a column as processing time.
        if not _ranks(node) or (isinstance(first, ColumnPath) and _is_processing_time(first.names[-1])):
            time = first
    elif isinstance(node, FunctionCall) and node.name in LEGACY_WINDOWS and node.expressions:
        time = node.expressions[0]
    if isinstance(time, ColumnPath):
        yield time.names, Use.TIME
    if isinstance(node, FunctionCall) and node.name in _NUMERIC_FUNCTIONS:
        yield from ((each.names, Use.NUMBER) for each in node.expressions if isinstance(each, ColumnPath))
    for child in node.iter_expressions():
        yield from _paths(child, use)


def _ranks(node: exp.Window) -> bool:
    """Return whether a window numbers rows, which may be in any order."""
    return isinstance(node.this, FunctionCall) and node.this.name in ("ROW_NUMBER", "RANK", "DENSE_RANK")


def _nested(node: exp.Select) -> Iterator[exp.Expression]:
    """Yield the queries inside the expressions of a SELECT."""
    for name, part in node.args.items():
        for each in part if isinstance(part, list) else [part]:
            if isinstance(each, exp.Expression) and name not in ("from_", "joins", "with_"):
                yield from _queries(each)


def _queries(node: exp.Expression) -> Iterator[exp.Expression]:
    if isinstance(node, exp.Query):
        yield node
        return
    for child in node.iter_expressions():
        yield from _queries(child)


def _add(to: dict[str, Use], more: Mapping[str, Use]) -> None:
    for name, use in more.items():
        to[name] = max(use, to.get(name, use))
