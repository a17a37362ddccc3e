"""Translate Lenses SQL into Flink SQL.

A topic becomes one table of the connector `topic` for each way of reading it: as a stream or, with
a PRIMARY KEY, as a table, and by each time column. What Flink SQL cannot express is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.nodes import Sink, Table, TableColumn
from everfold.plan.topic_storage import KEY, META, VALUE
from everfold.secrets import redact_script, redact_value
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.lenses.functions import AGGREGATES, ON_TABLES, has_aggregate
from everfold.sql.binder.lenses.queries import bind_topic_query
from everfold.sql.binder.lenses.sources import is_facet
from everfold.sql.binder.lenses.targets import Path, target_path
from everfold.sql.binder.queries import create_context
from everfold.sql.binder.show import serialize_type
from everfold.sql.catalog import CatalogTable, CatalogView
from everfold.sql.dialects.render import quote_name, render
from everfold.sql.planner import Session, Submit
from everfold.sql.script import parse_script, sets_dialect
from everfold.sql.statements import CreateTable, CreateView, Insert, Query, Statement, StatementSet
from everfold.types import DataType, IntegerType, RowType

_TIMESTAMP = f"{META}.timestamp"
_FUNCTIONS = {
    "FIRST": "FIRST_VALUE", "LAST": "LAST_VALUE", "MAXK": "MAX", "MAXK_UNIQUE": "MAX",
    "MINK": "MIN", "MINK_UNIQUE": "MIN", "MIN": "LEAST", "MAX": "GREATEST",
}  # fmt: skip
_OF_ONE = ("MAXK", "MAXK_UNIQUE", "MINK", "MINK_UNIQUE")
_EARLY = {"table.exec.emit.early-fire.enabled": "true", "table.exec.emit.early-fire.delay": "0 ms"}
_LATE = {"table.exec.emit.late-fire.enabled": "true", "table.exec.emit.late-fire.delay": "0 ms"}
"""The behavior of windows in Lenses SQL: every change is emitted, including those by late records.
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way of reading a topic.

    It tells whether the topic is read as a table, by which time of EVENTTIME BY, and whether with a
    watermark.
    """

    topic: str
    table: bool = False
    time: str | None = None
    windowed: bool = False


def _reading_of(entry: CatalogTable) -> _Reading:
    """Return the way in which a table is read as it is declared."""
    return _Reading(entry.name, bool(entry.table.primary_key), None, entry.watermark is not None)


def to_flink(text: str, source: str, session: Session) -> tuple[str, tuple[Submit, ...]]:
    """Return the script in Flink SQL, and the work that the script submits.

    `session` is a new one for the dialect that the script begins with; its statements in Flink SQL
    are unchanged. Raises the errors of the script itself; UnsupportedFeature `not-in-flink` for
    what Flink SQL cannot express.
    """
    statements = parse_script(text, source, session.settings.dialect)
    actions: list[tuple[Statement, bool]] = []
    submits: list[Submit] = []
    for statement in statements:
        actions.append((statement, session.settings.dialect == "flink"))
        if isinstance(done := session.execute(statement), Submit):
            submits.append(done)
    writer = _Writer(session)
    for statement, is_flink in actions:
        if is_flink and not sets_dialect(statement):
            writer.keep(statement)
            continue
        match statement:
            case CreateView(query=syntax.TopicQuery() as query):
                body = writer.query(query)
                writer.statements.append(f"CREATE TEMPORARY VIEW {quote_name(statement.name[-1])} AS\n{body}")
            case Insert():
                writer.statements.append(writer.insert(statement, submits))
            case StatementSet(inserts=inserts):
                body = ";\n".join(writer.insert(each, submits) for each in inserts)
                writer.statements.append(f"EXECUTE STATEMENT SET BEGIN\n{body};\nEND")
            case Query(query=syntax.TopicQuery() as query):
                writer.statements.append(writer.query(query))
    return writer.text, tuple(submits)


@dataclass(slots=True)
class _Writer:
    """Builds a script.

    `readings` maps the ways in which topics are read or written to the names of their tables;
    `declared` has those that the script itself declares in Flink SQL.
    """

    session: Session
    statements: list[str] = field(default_factory=list)
    readings: dict[_Reading, str] = field(default_factory=dict)
    declared: dict[_Reading, str] = field(default_factory=dict)
    lateness_ms: set[int] = field(default_factory=set)

    @property
    def context(self) -> Context:
        """The context in which the script's queries are bound."""
        return create_context(self.session.catalog)

    @property
    def text(self) -> str:
        """The script."""
        if len(self.lateness_ms) > 1:
            raise _unsupported("windows with different GRACE BY in one script")
        options: dict[str, str] = {}
        for lateness in self.lateness_ms:
            options = {"table.local-time-zone": "UTC", **_EARLY}
            options |= {**_LATE, "table.exec.emit.allow-lateness": f"{lateness} ms"} if lateness else {}
        parts = [f"SET '{key}' = '{value}'" for key, value in options.items()]
        parts += [self._table(reading, name) for reading, name in self.readings.items()]
        return ";\n\n".join([*parts, *self.statements]) + ";\n"

    def keep(self, statement: Statement) -> None:
        """Add a statement in Flink SQL, and declare the topics of Lenses SQL that it names."""
        self.statements.append(redact_script(statement.sql))
        entry = self.session.catalog.find(statement.name) if isinstance(statement, CreateTable) else None
        if isinstance(entry, CatalogTable):
            self.declared[_reading_of(entry)] = entry.name
        if isinstance(statement, Query | Insert | StatementSet | CreateView):
            inserts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
            for each in inserts:
                named = [table.names for table in syntax.find_all(each.query, syntax.Table)]
                for name in [*named, *([each.target] if isinstance(each, Insert) else [])]:
                    entry = self.session.catalog.find(name)
                    if isinstance(entry, CatalogTable) and entry.declared is None:
                        self.table_name(_reading_of(entry))

    # --- tables -----------------------------------------------------------------------------------

    def table_name(self, reading: _Reading) -> str:
        """Return the table name for a way of reading: that of the topic, unless it is taken."""
        if reading in self.declared:
            return self.declared[reading]
        if reading not in self.readings:
            views = (each.name for each in self.session.catalog.entries() if isinstance(each, CatalogView))
            taken = {*self.readings.values(), *self.declared.values(), *views}
            name, number = reading.topic, 2
            while name in taken:
                name, number = f"{reading.topic}-{number}", number + 1
            self.readings[reading] = name
        return self.readings[reading]

    def _table(self, reading: _Reading, name: str) -> str:
        entry = self.session.catalog.find((reading.topic,))
        assert isinstance(entry, CatalogTable)
        table = entry.table
        lines = [self._column(column, reading, table) for column in table.columns]
        if reading.windowed:
            lines.append(
                f"WATERMARK FOR {quote_name(_TIMESTAMP)} AS {quote_name(_TIMESTAMP)} - INTERVAL '0.001' SECOND"
            )
        if reading.table:
            lines.append(f"PRIMARY KEY ({quote_name(KEY)}) NOT ENFORCED")
        options = {"connector": "topic", **({"topic": table.name} if name != table.name else {}), **dict(table.options)}
        entries = [f"'{key}' = '{redact_value(key, value)}'" for key, value in options.items()]
        return f"CREATE TABLE {quote_name(name)} (\n  {_lines(lines)}\n) WITH (\n  {_lines(entries)}\n)"

    @staticmethod
    def _column(column: TableColumn, reading: _Reading, table: Table) -> str:
        if column.name == _TIMESTAMP and reading.time is not None:
            return f"{quote_name(column.name)} AS {reading.time}"
        extras = f" METADATA FROM '{column.metadata_key}' VIRTUAL" if column.metadata_key is not None else ""
        return f"{quote_name(column.name)} {serialize_type(column.type)}{extras}"

    # --- queries ----------------------------------------------------------------------------------

    def insert(self, statement: Insert, submits: Sequence[Submit]) -> str:
        """Return an INSERT."""
        query, name = statement.query, statement.target[-1]
        assert isinstance(query, syntax.TopicQuery)
        sink = next(
            root for each in submits for root in each.roots if isinstance(root, Sink) and root.table.name == name
        )
        of_topic = KEY in sink.table.schema.names
        target = self.table_name(_Reading(name, bool(sink.table.primary_key))) if of_topic else name
        body = self.query(query, target=sink.table)
        return f"INSERT INTO {quote_name(target)} {body}"

    def query(self, node: syntax.TopicQuery, target: Table | None = None) -> str:
        """Return a SELECT.

        `target` is the table that it is written to, whose column names precede it.
        """
        columns = None if target is None else [column.name for column in target.columns if not column.virtual]
        keyless = columns is not None and KEY not in columns
        bound = bind_topic_query(node, self.context, target=None if target is None else target.schema)
        types = {each.name: each.type for each in bound.plan.schema}
        aggregation = bool(node.group) or any(has_aggregate(each.value) for each in node.items)
        items = self._aggregation_columns(node, types, keyless) if aggregation else self._record_columns(node, types)
        names = [
            name
            for name in types
            if name in items and (columns is None or name in columns) and (columns is None or not _is_meta(name))
        ]
        source = self._source(node)
        text = "SELECT " + ", ".join(f"{items[name]} AS {quote_name(name)}" for name in names) + f"\nFROM {source}"
        if node.where is not None:
            text += f"\nWHERE {self._to_sql(node.where, node)}"
        if aggregation:
            keys = [self._to_sql(each.value, node) for each in node.group]
            text += "\nGROUP BY " + ", ".join([*keys, *self._window(node)])
        if node.having is not None:
            text += f"\nHAVING {self._having(node, node.having)}"
        prefix = "" if columns is None else "(" + ", ".join(map(quote_name, names)) + ")\n"
        return prefix + text

    def _record_columns(self, node: syntax.TopicQuery, types: Mapping[str, DataType]) -> dict[str, str]:
        """Return the columns of each record. Those that no item computes are the source's."""
        items = {name: quote_name(name) for name in types if is_facet(name)}
        if any(isinstance(item.value, syntax.Star) for item in node.items):
            items |= {name: quote_name(name) for name in types}
        return items | self._projected_columns(node, types)

    def _projected_columns(self, node: syntax.TopicQuery, types: Mapping[str, DataType]) -> dict[str, str]:
        """Return the columns that projections write; those within one column form a ROW."""
        values = {path: self._to_sql(value, node) for path, value in _projections(node).items()}
        if (VALUE,) in values and VALUE not in types:
            raise _unsupported("a structure as the whole value of a record")
        names = dict.fromkeys(path[0] for path in values)
        return {name: _nest((name,), values, types[name]) for name in names if name in types}

    def _aggregation_columns(
        self, node: syntax.TopicQuery, types: Mapping[str, DataType], keyless: bool
    ) -> dict[str, str]:
        """Return the columns of an aggregation, including the key."""
        values = self._projected_columns(node, types)
        keys = [self._to_sql(each.value, node) for each in node.group]
        bounds: list[str] = []
        if node.window:
            bounds = [f"{node.window.kind}_{part}({self._window_args(node)})" for part in ("START", "END")]
        if keyless:
            labels = [_label(each) for each in node.group]
            of_window = zip(("window_start", "window_end"), bounds, strict=False)
            return {**dict(zip(labels, keys, strict=True)), **dict(of_window), **values}
        key = types[KEY]
        if bounds:
            assert isinstance(key, RowType)
            alone, window = (each.type for each in key.fields)
            return {KEY: _row([_key(keys, alone, node), _row(bounds, window)], key), **values}
        return {KEY: _key(keys, key, node), **values}

    def _source(self, node: syntax.TopicQuery) -> str:
        name = node.source.name
        entry = self.session.catalog.find((name,))
        if isinstance(entry, CatalogView):
            found = bind_topic_query(entry.query, self.context) if isinstance(entry.query, syntax.TopicQuery) else None
            wanted = node.kind == "TABLE"
            if (
                found is None
                or node.window is not None
                or node.eventtime is not None
                or (wanted and not found.is_table)
            ):
                raise _unsupported(f"reading the query `{name}` with another time or as a table")
            return quote_name(name)
        assert entry is not None
        if KEY not in entry.table.schema.names:
            raise _unsupported(f"`{name}`, which is not a topic")
        time = None if node.eventtime is None else self._time(node.eventtime, node, entry)
        return quote_name(self.table_name(_Reading(name, node.kind == "TABLE", time, node.window is not None)))

    def _time(self, path: syntax.ColumnPath, node: syntax.TopicQuery, entry: CatalogTable) -> str:
        text = self._to_sql(path, node)
        column = next((each for each in entry.table.columns if quote_name(each.name) == text), None)
        if column is None:
            raise _unsupported(f"EVENTTIME BY {text}, which is not a column")
        if isinstance(column.type, IntegerType):
            return f"TO_TIMESTAMP_LTZ({text}, 3)"
        return f"CAST({text} AS {serialize_type(replace(column.type, precision=3))})"  # type: ignore[call-arg]

    def _window(self, node: syntax.TopicQuery) -> Iterator[str]:
        if node.window is not None:
            self.lateness_ms.add(node.window.grace.ms if node.window.grace is not None else 0)
            yield f"{node.window.kind}({self._window_args(node)})"

    @staticmethod
    def _window_args(node: syntax.TopicQuery) -> str:
        assert node.window is not None
        sizes = [f"INTERVAL '{each.ms / 1000:.3f}' SECOND({len(str(each.ms // 1000))})" for each in node.window.sizes]
        return ", ".join([quote_name(_TIMESTAMP), *reversed(sizes)])

    # --- expressions ------------------------------------------------------------------------------

    def _to_sql(self, node: syntax.Node, query: syntax.TopicQuery) -> str:
        """Return an expression over the source."""

        def change(each: syntax.Node) -> syntax.Node | None:
            match each:
                case syntax.ColumnPath():
                    return self._path(each, query)
                case syntax.FunctionCall(special=False):
                    return syntax.map_children(_function(each), partial(syntax.transform, change=change))
                case _:
                    return None

        return render(syntax.transform(node, change))

    def _having(self, node: syntax.TopicQuery, condition: syntax.Expression) -> str:
        """Return HAVING with the names of projections replaced by their expressions."""
        values = _projections(node)

        def change(part: syntax.Node) -> syntax.Node | None:
            if not isinstance(part, syntax.ColumnPath):
                return None
            names = part.names[1:] if part.names[0] == VALUE and len(part.names) > 1 else part.names
            length = next(length for length in range(1, len(names) + 1) if names[:length] in values)
            value = values[names[:length]]
            for name in names[length:]:
                value = syntax.FieldAccess(value, syntax.Identifier(name))
            return value

        return self._to_sql(syntax.transform(condition, change), node)

    def _path(self, node: syntax.ColumnPath, query: syntax.TopicQuery) -> syntax.ColumnPath:
        names = list(node.names)
        if len(names) > 1 and names[0] == query.source_name:
            names = names[1:]
        if names[0] == VALUE:
            entry = self.session.catalog.find((query.source.name,))
            fields = entry.schema.names if entry is not None else ()
            if VALUE not in fields:
                if len(names) == 1:
                    raise _unsupported("the whole value of a record, `_value`")
                names = names[1:]
        if names[0] == META:
            names = [".".join(names)]
        return syntax.ColumnPath(tuple(map(syntax.Identifier, names)))


def _function(node: syntax.FunctionCall) -> syntax.FunctionCall:
    name, arguments = node.name, node.arguments
    if name in _OF_ONE and arguments[1:] == (syntax.NumberLiteral("1"),):
        arguments = arguments[:1]
    elif name in AGGREGATES and name not in ON_TABLES and (name not in _FUNCTIONS or len(arguments) > 1):
        raise _unsupported(f"the aggregate `{name}`{' of several values' if name in _OF_ONE else ''}")
    return replace(node, name=_FUNCTIONS.get(name, name), arguments=arguments)


def _key(keys: list[str], of: DataType, node: syntax.TopicQuery) -> str:
    """Return the key of a result: the only field itself, or a structure."""
    alone = len(keys) == 1 and node.group[0].alias is None
    return keys[0] if alone else _row(keys, of)


def _row(values: list[str], of: DataType) -> str:
    return f"CAST(ROW({', '.join(values)}) AS {serialize_type(of.as_nullable())})"


def _projections(node: syntax.TopicQuery) -> dict[Path, syntax.Expression]:
    """Return the expression of each field that a query writes by name."""
    items = (item for item in node.items if not isinstance(item.value, syntax.Star))
    return {target_path(item) or (): item.value for item in items}


def _nest(path: Path, values: Mapping[Path, str], data_type: DataType) -> str:
    """Return the value at a path, or a ROW of the values within it; NULL if there is none."""
    if path in values:
        return values[path]
    if not any(other[: len(path)] == path for other in values):
        return f"CAST(NULL AS {serialize_type(data_type.as_nullable())})"
    assert isinstance(data_type, RowType)
    return _row([_nest((*path, field.name), values, field.type) for field in data_type.fields], data_type)


def _label(node: syntax.GroupKey) -> str:
    return node.alias.name if node.alias is not None else syntax.implicit_name(node.value) or ""


def _is_meta(name: str) -> bool:
    return is_facet(name) and name != KEY


def _lines(parts: list[str]) -> str:
    return ",\n  ".join(parts)


def _unsupported(what: str) -> SqlError:
    return UnsupportedFeature.of("not-in-flink", f"Flink SQL cannot express {what}")
