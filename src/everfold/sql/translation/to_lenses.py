"""Flink SQL in the words of Lenses SQL. DDL of tables stays as it is, in Flink's dialect; each query over one table or view becomes a SELECT of Lenses SQL, and a
view a WITH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import is_updating
from everfold.plan.nodes import GroupAggregate, Plan, walk_plan
from everfold.secrets import without_secrets
from everfold.sql.binder.lenses.functions import ON_TABLES
from everfold.sql.binder.lenses.keys import WINDOW, WINDOW_BOUNDS, WINDOW_VALUE
from everfold.sql.binder.lenses.sources import is_facet
from everfold.sql.binder.names import LEGACY_WINDOWS, is_aggregate
from everfold.sql.catalog import CatalogTable
from everfold.sql.dialects.lenses import KEY, META
from everfold.sql.dialects.lenses_names import duration_text
from everfold.sql.dialects.literals import interval_value
from everfold.sql.dialects.nodes import ColumnPath, FlinkCast, FunctionCall, IntervalLiteral
from everfold.sql.dialects.render import quoted_name, render
from everfold.sql.planner import Session, Submit
from everfold.sql.script import parse_script
from everfold.sql.settings import Settings
from everfold.sql.statements import CreateView, Insert, Query, Statement, StatementSet
from everfold.types import RowType

_FUNCTIONS = {
    "FIRST_VALUE": "FIRST", "LAST_VALUE": "LAST", "MAX": "MAXK", "MIN": "MINK", "LEAST": "MIN", "GREATEST": "MAX", "COUNT": "COUNT", "SUM": "SUM",
    "AVG": "AVG",
}  # fmt: skip
_CLAUSES = {"expressions", "from_", "where", "group", "having"}


def to_lenses(text: str, source: str, session: Session) -> tuple[str, tuple[Submit, ...]]:
    """The script with its queries in Lenses SQL, and what the script runs. session: one for Flink SQL, which has run nothing yet.

    Raises what the script itself raises; UnsupportedFeature `not-in-lenses` for what cannot be said.
    """
    statements = parse_script(text, source, session.settings.dialect)
    kept: list[str] = []
    queries: list[str] = ["SET 'everfold.dialect' = 'lenses'"]
    submits: list[Submit] = []
    for statement in statements:
        done = session.execute(statement)
        if isinstance(done, Submit):
            submits.append(done)
            queries += _queries(statement, done, session)
        elif isinstance(statement, CreateView):
            name = statement.name[-1]
            body = _Select(statement.query, session).said(session.catalog.get((name,)).schema.names)
            queries.append(f"WITH {quoted_name(name)} AS (\n{body}\n)")
        else:
            kept.append(without_secrets(statement.sql))
    if any(_keeps_all(node) for each in submits for root in each.roots for node in walk_plan(root.input)):
        queries.insert(1, "SET 'everfold.lenses.exact-tables' = 'true'")
    return ";\n\n".join([*kept, *queries]) + ";\n", tuple(submits)


def _keeps_all(node: Plan) -> bool:
    """Whether it is an aggregate that needs all values of a table."""
    return (
        isinstance(node, GroupAggregate)
        and is_updating(node.input)
        and any(call.function not in ON_TABLES for call in node.calls)
    )


def _queries(statement: Statement, done: Submit, session: Session) -> list[str]:
    match statement:
        case Query(query=query):
            return [_Select(query, session).said(done.names, keyed=True)]
        case StatementSet(inserts=inserts):
            return [_insert(each, session) for each in inserts]
        case _:
            assert isinstance(statement, Insert)
            return [_insert(statement, session)]


def _insert(statement: Insert, session: Session) -> str:
    into = session.catalog.get(statement.target)
    assert isinstance(into, CatalogTable)
    columns = statement.columns or tuple(column.name for column in into.columns if column.kind == "physical")
    body = _Select(statement.query, session).said(columns, keyed=KEY in into.schema.names)
    return f"INSERT INTO {quoted_name(statement.target[-1])}\n{body}"


# --- queries --------------------------------------------------------------------------------------


class _Select:
    """A query of Flink's over one table or view."""

    def __init__(self, query: exp.Expression, session: Session) -> None:
        self.query, self.settings = query, session.settings
        source = query.args.get("from_")
        if not isinstance(query, exp.Select) or source is None or not isinstance(source.this, exp.Table):
            raise _unsaid("a query over other things than one table")
        other = [name for name, value in query.args.items() if value and name not in _CLAUSES]
        if other or source.this.args.get("hints") or source.this.args.get("version"):
            raise _unsaid(f"the clause {(other or ['of the table'])[0].rstrip('_').upper()}")
        self.table: str = source.this.this.name
        self.alias: str = source.this.alias
        entry = session.catalog.get((self.table,))
        self.kind = ""
        if isinstance(entry, CatalogTable):
            self.kind = "TABLE " if is_updating(entry.plan(streaming=True)) else "STREAM "

    def said(self, columns: Sequence[str], *, keyed: bool = False) -> str:
        """SELECT for columns of these names. keyed: they go into a table that has a key beside its fields."""
        query = self.query
        items = [each.this if isinstance(each, exp.Alias) else each for each in query.expressions]
        if len(items) != len(columns):
            raise _unsaid("a query whose columns are not those of its table")
        made = dict(zip(columns, items, strict=True))
        group = query.args["group"].expressions if query.args.get("group") is not None else []
        window = next((each for each in group if isinstance(each, FunctionCall) and each.name in LEGACY_WINDOWS), None)
        keys = [self._text(each) for each in group if each is not window]
        labels: list[str | None] = [None] * len(keys)
        if group and KEY in made:
            labels = self._labels(made[KEY], keys, windowed=window is not None)
        elif group and keyed:
            raise _unsaid("a result without its `_key`")
        implied = {KEY} if group else {name for name, item in made.items() if is_facet(name) and _names(item) == [name]}
        if window is not None:
            implied |= set(WINDOW_BOUNDS)
        shown = [f"{self._text(item)} AS {quoted_name(name)}" for name, item in made.items() if name not in implied]
        return "\n".join([f"SELECT {self.kind}{', '.join(shown)}", *self._clauses(keys, labels, window, made)])

    def _clauses(
        self, keys: list[str], labels: list[str | None], window: FunctionCall | None, made: Mapping[str, exp.Expression]
    ) -> Iterator[str]:
        args = self.query.args
        yield f"FROM {quoted_name(self.table)}" + (f" AS {quoted_name(self.alias)}" if self.alias else "")
        if args.get("where") is not None:
            yield f"WHERE {self._text(args['where'].this)}"
        if window is not None:
            yield _window_by(window, self.settings)
        if keys:
            named = zip(keys, labels, strict=True)
            yield "GROUP BY " + ", ".join(
                key if name is None else f"{key} AS {quoted_name(name)}" for key, name in named
            )
        if args.get("having") is not None:
            yield f"HAVING {_having(args['having'].this, {item: name for name, item in made.items()})}"

    def _labels(self, key: exp.Expression, keys: list[str], *, windowed: bool) -> list[str | None]:
        """What the fields of the key are called; [None] if the only one is the key itself."""
        if windowed:
            parts = _fields(key)
            if list(parts) != [WINDOW_VALUE, WINDOW]:
                raise _unsaid("a `_key` that is not the expressions of GROUP BY and their window")
            key = parts[WINDOW_VALUE]
        if [self._text(key)] == keys:
            return [None]
        parts = _fields(key)
        if [self._text(each) for each in parts.values()] != keys:
            raise _unsaid("a `_key` that is not the expressions of GROUP BY")
        return list(parts)

    def _text(self, node: exp.Expression) -> str:
        return _said(node, self.alias or self.table)


def _fields(node: exp.Expression) -> dict[str, exp.Expression]:
    """The fields of CAST(ROW(…) AS ROW<…>); none of what is something else."""
    if not isinstance(node, FlinkCast) or not isinstance(node.args["to"], RowType):
        return {}
    made = node.this
    if not isinstance(made, FunctionCall) or made.name != "ROW":
        return {}
    return dict(zip((field.name for field in node.args["to"].fields), made.expressions, strict=True))


def _window_by(window: FunctionCall, settings: Settings) -> str:
    if not settings.early_fire or settings.early_delay_ms:
        raise _unsaid("windows that do not give each change of their results")
    sizes = [interval_value(each)[0] for each in window.expressions[1:] if isinstance(each, IntervalLiteral)]
    text = f"WINDOW BY {window.name} {' '.join(map(duration_text, reversed(sizes)))}"
    if settings.late_fire and settings.lateness_ms:
        text += f" GRACE BY {duration_text(settings.lateness_ms)}"
    return text


def _having(node: exp.Expression, names: Mapping[exp.Expression, str]) -> str:
    """HAVING by the names of SELECT."""

    def change(each: exp.Expression) -> exp.Expression:
        if each in names and each.find(FunctionCall) is not None:
            return ColumnPath(parts=_parts(names[each]))
        if isinstance(each, FunctionCall) and is_aggregate(each.name):
            raise _unsaid(f"HAVING over `{render(each)}`, which SELECT does not have")
        return each

    return render(node.copy().transform(change, copy=False))


def _said(node: exp.Expression, source: str) -> str:
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
        raise _unsaid(f"`{render(node)}`")
    node.set("this", _FUNCTIONS.get(node.name, node.name))
    return node


def _names(node: exp.Expression) -> list[str]:
    return list(node.names) if isinstance(node, ColumnPath) else []


def _parts(*names: str) -> list[exp.Identifier]:
    return [exp.Identifier(this=name, quoted=True) for name in names]


def _unsaid(what: str) -> SqlError:
    return UnsupportedFeature.of("not-in-lenses", f"Lenses SQL has no words for {what}")
