"""Flink SQL in the words of Lenses SQL. DDL stays as it is, in Flink's dialect; each query over one table becomes a SELECT of Lenses SQL."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.changelog import is_updating
from everfold.secrets import without_secrets
from everfold.sql.binder.names import is_aggregate
from everfold.sql.catalog import CatalogTable, CatalogView
from everfold.sql.dialects.lenses import KEY
from everfold.sql.dialects.nodes import ColumnPath, FunctionCall
from everfold.sql.dialects.render import render
from everfold.sql.planner import Session, Submit
from everfold.sql.script import parse_script
from everfold.sql.statements import CreateView, Insert, Statement, StatementSet

_FUNCTIONS = {
    "FIRST_VALUE": "FIRST", "LAST_VALUE": "LAST", "MAX": "MAXK", "MIN": "MINK", "LEAST": "MIN", "GREATEST": "MAX", "COUNT": "COUNT", "SUM": "SUM",
    "AVG": "AVG",
}  # fmt: skip
_CLAUSES = {"expressions", "from_", "where", "group", "having"}


def to_lenses(text: str, source: str, session: Session) -> tuple[str, tuple[Submit, ...]]:
    """The script with its INSERTs in Lenses SQL, and what the script runs. session: one for Flink SQL, which has run nothing yet.

    Raises what the script itself raises; UnsupportedFeature `not-in-lenses` for what cannot be said.
    """
    statements = parse_script(text, source, session.settings.dialect)
    kept: list[str] = []
    inserts: list[str] = []
    submits: list[Submit] = []
    for statement in statements:
        done = session.execute(statement)
        if not isinstance(done, Submit):
            if isinstance(statement, CreateView):
                raise _unsaid("a view")
            kept.append(without_secrets(statement.sql))
            continue
        submits.append(done)
        inserts += [_insert(each, session) for each in _inserts(statement)]
    return ";\n\n".join([*kept, "SET 'everfold.dialect' = 'lenses'", *inserts]) + ";\n", tuple(submits)


def _inserts(statement: Statement) -> tuple[Insert, ...]:
    match statement:
        case Insert():
            return (statement,)
        case StatementSet(inserts=inserts):
            return inserts
        case _:
            raise _unsaid("a query that writes nothing")


def _insert(statement: Insert, session: Session) -> str:
    query = statement.query
    source = query.args.get("from_")
    if not isinstance(query, exp.Select) or source is None or not isinstance(source.this, exp.Table):
        raise _unsaid("a query over other things than one table")
    other = [name for name, value in query.args.items() if value and name not in _CLAUSES]
    if other or source.this.args.get("hints") or source.this.args.get("version"):
        raise _unsaid(f"the clause {(other or ['of the table'])[0].rstrip('_').upper()}")
    table = source.this.this.name
    called = source.this.alias or table
    into, entry = session.catalog.get(statement.target), session.catalog.get((table,))
    assert isinstance(into, CatalogTable)
    if isinstance(entry, CatalogView):
        raise _unsaid("a view")
    target = into.schema.names
    columns = statement.columns or tuple(column.name for column in into.columns if column.kind == "physical")
    kind = "TABLE" if is_updating(entry.plan(streaming=True)) else "STREAM"
    group = query.args["group"].expressions if query.args.get("group") is not None else []
    if not group:
        raise _unsaid("a query without GROUP BY")
    items = [each.this if isinstance(each, exp.Alias) else each for each in query.expressions]
    if len(items) != len(columns):
        raise _unsaid("a query whose columns are not those of its table")
    keys = [_said(each, called) for each in group]
    key = dict(zip(columns, items, strict=True)).get(KEY)
    if KEY in target and (key is None or [_said(key, called)] != keys):
        raise _unsaid("a `_key` that is not the only expression of GROUP BY")
    shown = [
        f"{_said(item, called)} AS {_quoted(name)}" for name, item in zip(columns, items, strict=True) if name != KEY
    ]
    text = f"INSERT INTO {_quoted(statement.target[-1])}\nSELECT {kind} {', '.join(shown)}\nFROM {_quoted(table)}"
    if source.this.alias:
        text += f" AS {_quoted(called)}"
    if query.args.get("where") is not None:
        text += f"\nWHERE {_said(query.args['where'].this, called)}"
    text += f"\nGROUP BY {', '.join(keys)}"
    if query.args.get("having") is not None:
        text += f"\nHAVING {_having(query.args['having'].this, dict(zip(items, columns, strict=True)))}"
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


def _parts(*names: str) -> list[exp.Identifier]:
    return [exp.Identifier(this=name, quoted=True) for name in names]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unsaid(what: str) -> SqlError:
    return UnsupportedFeature.of("not-in-lenses", f"Lenses SQL has no words for {what}")
