"""Translate Flink SQL into Lenses SQL.

DDL of tables stays unchanged, in Flink's dialect. Each query over one table or view becomes a
SELECT of Lenses SQL, and a view becomes a WITH.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import GroupAggregate, Plan
from everfold.plan.walk import walk_plan
from everfold.secrets import redact_script
from everfold.sql.binder.lenses.functions import ON_TABLES
from everfold.sql.binder.lenses.keys import WINDOW, WINDOW_BOUNDS, WINDOW_VALUE
from everfold.sql.binder.lenses.sources import is_facet
from everfold.sql.binder.names import LEGACY_WINDOWS, is_aggregate
from everfold.sql.catalog import CatalogTable
from everfold.sql.dialects.lenses import KEY, META
from everfold.sql.dialects.lenses_names import format_duration
from everfold.sql.dialects.literals import interval_value
from everfold.sql.dialects.nodes import ColumnPath, FlinkCast, FunctionCall, IntervalLiteral
from everfold.sql.dialects.render import quote_name, render
from everfold.sql.planner import Session, Submit
from everfold.sql.script import parse_script
from everfold.sql.settings import Settings
from everfold.sql.statements import CreateView, Insert, Query, Statement, StatementSet
from everfold.types import RowType

_FUNCTIONS = {
    "FIRST_VALUE": "FIRST", "LAST_VALUE": "LAST", "MAX": "MAXK", "MIN": "MINK", "LEAST": "MIN", "GREATEST": "MAX",
    "COUNT": "COUNT", "SUM": "SUM", "AVG": "AVG",
}  # fmt: skip
_CLAUSES = {"expressions", "from_", "where", "group", "having"}


def to_lenses(text: str, source: str, session: Session) -> tuple[str, tuple[Submit, ...]]:
    """Return the script with its queries in Lenses SQL, and the work that the script submits.

    `session` is a new one for Flink SQL. Raises the errors of the script itself; UnsupportedFeature
    `not-in-lenses` for what Lenses SQL cannot express.
    """
    statements = parse_script(text, source, session.settings.dialect)
    ddl: list[str] = []
    queries: list[str] = ["SET 'everfold.dialect' = 'lenses'"]
    submits: list[Submit] = []
    for statement in statements:
        done = session.execute(statement)
        if isinstance(done, Submit):
            submits.append(done)
            queries += _queries(statement, done, session)
        elif isinstance(statement, CreateView):
            name = statement.name[-1]
            body = _Select(statement.query, session).to_sql(session.catalog.get((name,)).schema.names)
            queries.append(f"WITH {quote_name(name)} AS (\n{body}\n)")
        else:
            ddl.append(redact_script(statement.sql))
    if any(_keeps_all(node) for each in submits for root in each.roots for node in walk_plan(root.input)):
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

    def __init__(self, query: exp.Expression, session: Session) -> None:
        self.query, self.settings = query, session.settings
        source = query.args.get("from_")
        if not isinstance(query, exp.Select) or source is None or not isinstance(source.this, exp.Table):
            raise _unsupported("a query over anything but one table")
        other = [name for name, value in query.args.items() if value and name not in _CLAUSES]
        if other or source.this.args.get("hints") or source.this.args.get("version"):
            raise _unsupported(f"the clause {(other or ['of the table'])[0].rstrip('_').upper()}")
        self.table: str = source.this.this.name
        self.alias: str = source.this.alias
        entry = session.catalog.get((self.table,))
        self.kind = ""
        if isinstance(entry, CatalogTable):
            self.kind = "TABLE " if is_updating(entry.plan(streaming=True)) else "STREAM "

    def to_sql(self, columns: Sequence[str], *, keyed: bool = False) -> str:
        """Return the SELECT with columns of these names.

        `keyed`: it is written to a table that has a key in addition to its fields.
        """
        query = self.query
        items = [each.this if isinstance(each, exp.Alias) else each for each in query.expressions]
        if len(items) != len(columns):
            raise _unsupported("a query whose columns are not those of its table")
        by_name = dict(zip(columns, items, strict=True))
        group = query.args["group"].expressions if query.args.get("group") is not None else []
        window = next((each for each in group if isinstance(each, FunctionCall) and each.name in LEGACY_WINDOWS), None)
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
        shown = [f"{self._text(item)} AS {quote_name(name)}" for name, item in by_name.items() if name not in implied]
        return "\n".join([f"SELECT {self.kind}{', '.join(shown)}", *self._clauses(keys, labels, window, by_name)])

    def _clauses(
        self,
        keys: list[str],
        labels: list[str | None],
        window: FunctionCall | None,
        by_name: Mapping[str, exp.Expression],
    ) -> Iterator[str]:
        args = self.query.args
        yield f"FROM {quote_name(self.table)}" + (f" AS {quote_name(self.alias)}" if self.alias else "")
        if args.get("where") is not None:
            yield f"WHERE {self._text(args['where'].this)}"
        if window is not None:
            yield _window_by(window, self.settings)
        if keys:
            labeled = zip(keys, labels, strict=True)
            yield "GROUP BY " + ", ".join(
                key if name is None else f"{key} AS {quote_name(name)}" for key, name in labeled
            )
        if args.get("having") is not None:
            yield f"HAVING {_having(args['having'].this, {item: name for name, item in by_name.items()})}"

    def _labels(self, key: exp.Expression, keys: list[str], *, windowed: bool) -> list[str | None]:
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

    def _text(self, node: exp.Expression) -> str:
        return _to_sql(node, self.alias or self.table)


def _fields(node: exp.Expression) -> dict[str, exp.Expression]:
    """Return the fields of CAST(ROW(…) AS ROW<…>); empty for any other expression."""
    if not isinstance(node, FlinkCast) or not isinstance(node.args["to"], RowType):
        return {}
    row = node.this
    if not isinstance(row, FunctionCall) or row.name != "ROW":
        return {}
    return dict(zip((field.name for field in node.args["to"].fields), row.expressions, strict=True))


def _window_by(window: FunctionCall, settings: Settings) -> str:
    if not settings.early_fire or settings.early_delay_ms:
        raise _unsupported("windows that do not emit every change of their results")
    sizes = [interval_value(each)[0] for each in window.expressions[1:] if isinstance(each, IntervalLiteral)]
    text = f"WINDOW BY {window.name} {' '.join(map(format_duration, reversed(sizes)))}"
    if settings.late_fire and settings.lateness_ms:
        text += f" GRACE BY {format_duration(settings.lateness_ms)}"
    return text


def _having(node: exp.Expression, names: Mapping[exp.Expression, str]) -> str:
    """Return HAVING over the column names of SELECT."""

    def change(each: exp.Expression) -> exp.Expression:
        if each in names and each.find(FunctionCall) is not None:
            return ColumnPath(parts=_parts(names[each]))
        if isinstance(each, FunctionCall) and is_aggregate(each.name):
            raise _unsupported(f"HAVING over `{render(each)}`, which SELECT does not have")
        return each

    return render(node.copy().transform(change, copy=False))


def _to_sql(node: exp.Expression, source: str) -> str:
    def change(each: exp.Expression) -> exp.Expression:
        match each:
            case ColumnPath(names=[name, *others]) if name == KEY or (name == source and others[:1] == [KEY]):
                return ColumnPath(parts=_parts(source, KEY, *(others if name == KEY else others[1:])))
            case ColumnPath(names=[name]) if name.startswith(f"{META}."):
                return ColumnPath(parts=_parts(*name.split(".")))
            case FunctionCall() if not each.special:
                return _function(each)
            case _:
                return each

    return render(node.copy().transform(change, copy=False))


def _function(node: FunctionCall) -> FunctionCall:
    if is_aggregate(node.name) and (node.name not in _FUNCTIONS or node.distinct or node.filter is not None):
        raise _unsupported(f"`{render(node)}`")
    node.set("this", _FUNCTIONS.get(node.name, node.name))
    return node


def _names(node: exp.Expression) -> list[str]:
    return list(node.names) if isinstance(node, ColumnPath) else []


def _parts(*names: str) -> list[exp.Identifier]:
    return [exp.Identifier(this=name, quoted=True) for name in names]


def _unsupported(what: str) -> SqlError:
    return UnsupportedFeature.of("not-in-lenses", f"Lenses SQL cannot express {what}")
