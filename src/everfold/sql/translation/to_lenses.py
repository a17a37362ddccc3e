"""Translate Flink SQL into Lenses SQL.

DDL of tables stays unchanged, in Flink's dialect. Each query over one table or view becomes a
SELECT of Lenses SQL, and a view becomes a WITH.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import GroupAggregate, Plan
from everfold.plan.topic_storage import KEY, META
from everfold.plan.walk import walk_plan
from everfold.secrets import redact_script
from everfold.sql import syntax
from everfold.sql.binder.lenses.functions import ON_TABLES
from everfold.sql.binder.lenses.keys import WINDOW, WINDOW_BOUNDS, WINDOW_VALUE
from everfold.sql.binder.lenses.sources import is_facet
from everfold.sql.binder.lenses.targets import Path
from everfold.sql.binder.names import LEGACY_WINDOWS, is_aggregate
from everfold.sql.catalog import CatalogTable
from everfold.sql.dialects.lenses_names import format_duration
from everfold.sql.dialects.literals import interval_value
from everfold.sql.dialects.render import quote_name, render
from everfold.sql.planner import Session, Submit
from everfold.sql.script import parse_script, sets_dialect
from everfold.sql.settings import Settings
from everfold.sql.statements import CreateView, Insert, Query, Statement, StatementSet
from everfold.types import RowType

_FUNCTIONS = {
    "FIRST_VALUE": "FIRST", "LAST_VALUE": "LAST", "MAX": "MAXK", "MIN": "MINK", "LEAST": "MIN", "GREATEST": "MAX",
    "COUNT": "COUNT", "SUM": "SUM", "AVG": "AVG",
}  # fmt: skip


def to_lenses(text: str, source: str, session: Session) -> tuple[str, tuple[Submit, ...]]:
    """Return the script with its queries in Lenses SQL, and the work that the script submits.

    `session` is a new one for the dialect that the script begins with; its statements in Lenses SQL
    are unchanged. Raises the errors of the script itself; UnsupportedFeature `not-in-lenses` for
    what Lenses SQL cannot express.
    """
    statements = parse_script(text, source, session.settings.dialect)
    ddl: list[str] = []
    queries: list[str] = ["SET 'everfold.dialect' = 'lenses'"]
    submits: list[Submit] = []
    translated: list[Submit] = []
    for statement in statements:
        is_lenses = session.settings.dialect == "lenses"
        done = session.execute(statement)
        if isinstance(done, Submit):
            submits.append(done)
        if sets_dialect(statement):
            continue
        if is_lenses:
            parts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
            queries += (redact_script(each.sql) for each in parts)
        elif isinstance(done, Submit):
            translated.append(done)
            queries += _queries(statement, done, session)
        elif isinstance(statement, CreateView):
            name = statement.name[-1]
            body = _Select(statement.query, session).to_sql(session.catalog.get((name,)).schema.names)
            queries.append(f"WITH {quote_name(name)} AS (\n{body}\n)")
        else:
            ddl.append(redact_script(statement.sql))
    if any(_keeps_all(node) for each in translated for root in each.roots for node in walk_plan(root.input)):
        queries.insert(1, "SET 'everfold.lenses.exact-tables' = 'true'")
    return ";\n\n".join([*ddl, *queries]) + ";\n", tuple(submits)


def _keeps_all(node: Plan) -> bool:
    """Return whether a node is an aggregate that needs all values of a table."""
    return (
        isinstance(node, GroupAggregate)
        and is_updating(node.input)
        and any(call.function not in ON_TABLES for call in node.calls)
    )


def _queries(statement: Statement, done: Submit, session: Session) -> list[str]:
    match statement:
        case Query(query=query):
            return [_Select(query, session).to_sql(done.names, keyed=True)]
        case StatementSet(inserts=inserts):
            return [_insert(each, session) for each in inserts]
        case _:
            assert isinstance(statement, Insert)
            return [_insert(statement, session)]


def _insert(statement: Insert, session: Session) -> str:
    into = session.catalog.get(statement.target)
    assert isinstance(into, CatalogTable)
    columns = statement.columns or tuple(column.name for column in into.columns if column.kind == "physical")
    body = _Select(statement.query, session).to_sql(columns, keyed=KEY in into.schema.names)
    return f"INSERT INTO {quote_name(statement.target[-1])}\n{body}"


# --- queries --------------------------------------------------------------------------------------


class _Select:
    """A query of Flink SQL over one table or view."""

    def __init__(self, query: syntax.Query, session: Session) -> None:
        if not isinstance(query, syntax.Select) or not isinstance(query.source, syntax.Table):
            raise _unsupported("a query over anything but one table")
        self.query, self.settings = query, session.settings
        clauses = {
            "HINTS": query.hints,
            "DISTINCT": query.distinct,
            "JOINS": query.joins,
            "WINDOWS": query.windows,
            "QUALIFY": query.qualify,
            "WITH": query.ctes,
            "ORDER": query.order,
            "LIMIT": query.limit,
            "OFFSET": query.offset,
            "OF THE TABLE": query.source.hints or query.source.system_time,
        }
        other = next((word for word, clause in clauses.items() if clause), None)
        if other is not None:
            raise _unsupported(f"the clause {other}")
        self.table = query.source.names[-1]
        self.alias = query.source.alias.name.name if query.source.alias is not None else ""
        entry = session.catalog.get((self.table,))
        self.kind = ""
        if isinstance(entry, CatalogTable):
            self.kind = "TABLE " if is_updating(entry.plan(streaming=True)) else "STREAM "

    def to_sql(self, columns: Sequence[str], *, keyed: bool = False) -> str:
        """Return the SELECT with columns of these names.

        `keyed`: it is written to a table that has a key in addition to its fields.
        """
        query = self.query
        items = [each.value for each in query.items]
        if len(items) != len(columns):
            raise _unsupported("a query whose columns are not those of its table")
        by_name = dict(zip(columns, items, strict=True))
        group = query.group.elements if query.group is not None else ()
        window = next(
            (each for each in group if isinstance(each, syntax.FunctionCall) and each.name in LEGACY_WINDOWS), None
        )
        keys = [self._text(each) for each in group if each is not window]
        labels: list[str | None] = [None] * len(keys)
        if group and KEY in by_name:
            labels = self._labels(by_name[KEY], keys, windowed=window is not None)
        elif group and keyed:
            raise _unsupported("a result without its `_key`")
        implied = (
            {KEY} if group else {name for name, item in by_name.items() if is_facet(name) and _names(item) == [name]}
        )
        if window is not None:
            implied |= set(WINDOW_BOUNDS)
        projections = [
            projection
            for name, item in by_name.items()
            if name not in implied
            for projection in self._projections((name,), item)
        ]
        shown = [f"{self._text(item)} AS {'.'.join(map(quote_name, path))}" for path, item in projections]
        return "\n".join([f"SELECT {self.kind}{', '.join(shown)}", *self._clauses(keys, labels, window, projections)])

    def _projections(self, path: Path, item: syntax.Expression) -> Iterator[tuple[Path, syntax.Expression]]:
        """Yield a column, or the fields of a ROW, which HAVING can name then."""
        fields = _fields(item) if self.query.having is not None else {}
        if not fields:
            yield path, item
        for name, field in fields.items():
            yield from self._projections((*path, name), field)

    def _clauses(
        self,
        keys: list[str],
        labels: list[str | None],
        window: syntax.FunctionCall | None,
        projections: Sequence[tuple[Path, syntax.Expression]],
    ) -> Iterator[str]:
        yield f"FROM {quote_name(self.table)}" + (f" AS {quote_name(self.alias)}" if self.alias else "")
        if self.query.where is not None:
            yield f"WHERE {self._text(self.query.where.condition)}"
        if window is not None:
            yield _window_by(window, self.settings)
        if keys:
            labeled = zip(keys, labels, strict=True)
            yield "GROUP BY " + ", ".join(
                key if name is None else f"{key} AS {quote_name(name)}" for key, name in labeled
            )
        if self.query.having is not None:
            yield f"HAVING {_having(self.query.having.condition, {item: path for path, item in projections})}"

    def _labels(self, key: syntax.Expression, keys: list[str], *, windowed: bool) -> list[str | None]:
        """Return the names of the key's fields; [None] if the only field is the key itself."""
        if windowed:
            parts = _fields(key)
            if list(parts) != [WINDOW_VALUE, WINDOW]:
                raise _unsupported("a `_key` that is not the expressions of GROUP BY and their window")
            key = parts[WINDOW_VALUE]
        if [self._text(key)] == keys:
            return [None]
        parts = _fields(key)
        if [self._text(each) for each in parts.values()] != keys:
            raise _unsupported("a `_key` that is not the expressions of GROUP BY")
        return list(parts)

    def _text(self, node: syntax.Expression) -> str:
        return _to_sql(node, self.alias or self.table)


def _fields(node: syntax.Expression) -> dict[str, syntax.Expression]:
    """Return the fields of CAST(ROW(…) AS ROW<…>); empty for any other expression."""
    match node:
        case syntax.Cast(operand=syntax.FunctionCall(name="ROW", arguments=values), type=RowType(fields=names)):
            return dict(zip((field.name for field in names), values, strict=True))
        case _:
            return {}


def _window_by(window: syntax.FunctionCall, settings: Settings) -> str:
    if not settings.early_fire or settings.early_delay_ms:
        raise _unsupported("windows that do not emit every change of their results")
    sizes = [interval_value(each)[0] for each in window.arguments[1:] if isinstance(each, syntax.IntervalLiteral)]
    text = f"WINDOW BY {window.name} {' '.join(map(format_duration, reversed(sizes)))}"
    if settings.late_fire and settings.lateness_ms:
        text += f" GRACE BY {format_duration(settings.lateness_ms)}"
    return text


def _having(node: syntax.Expression, paths: Mapping[syntax.Expression, Path]) -> str:
    """Return HAVING over the column names of SELECT."""

    def change(each: syntax.Node) -> syntax.Node | None:
        if isinstance(each, syntax.Expression) and each in paths and any(syntax.find_all(each, syntax.FunctionCall)):
            return _path(*paths[each])
        if isinstance(each, syntax.FunctionCall) and is_aggregate(each.name):
            raise _unsupported(f"HAVING over `{render(each)}`, which SELECT does not have")
        return None

    return render(syntax.transform(node, change))


def _to_sql(node: syntax.Expression, source: str) -> str:
    def change(each: syntax.Node) -> syntax.Node | None:
        match each:
            case syntax.ColumnPath(names=[name, *others]) if name == KEY or (name == source and others[:1] == [KEY]):
                return _path(source, KEY, *(others if name == KEY else others[1:]))
            case syntax.ColumnPath(names=[name]) if name.startswith(f"{META}."):
                return _path(*name.split("."))
            case syntax.FunctionCall(special=False):
                return syntax.map_children(_function(each), partial(syntax.transform, change=change))
            case _:
                return None

    return render(syntax.transform(node, change))


def _function(node: syntax.FunctionCall) -> syntax.FunctionCall:
    if is_aggregate(node.name) and (node.name not in _FUNCTIONS or node.distinct or node.filter is not None):
        raise _unsupported(f"`{render(node)}`")
    return replace(node, name=_FUNCTIONS.get(node.name, node.name))


def _names(node: syntax.Expression) -> list[str]:
    return list(node.names) if isinstance(node, syntax.ColumnPath) else []


def _path(*names: str) -> syntax.ColumnPath:
    return syntax.ColumnPath(tuple(map(syntax.Identifier, names)))


def _unsupported(what: str) -> SqlError:
    return UnsupportedFeature.of("not-in-lenses", f"Lenses SQL cannot express {what}")
