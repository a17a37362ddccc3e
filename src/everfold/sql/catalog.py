"""The catalog of a session: its tables, views, functions and options.

There is one database, `default_catalog.default_database`. Names are case-sensitive, as in Flink. A
temporary table or view hides a permanent one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from everfold.errors import Diagnostic, Span, SqlError, suggest_name, suggest_or_list_names
from everfold.plan.changelog import ChangelogMode
from everfold.plan.expressions import Call, Expr, InputRef
from everfold.plan.nodes import ChangelogNormalize, Plan, Project, Scan, Table, WatermarkAssigner, time_attribute
from everfold.plan.size import ScriptSize
from everfold.sql import syntax
from everfold.sql.settings import Note, Settings, check_option
from everfold.sql.statements import CreateTable
from everfold.sql.user_functions import UserFunctions
from everfold.types import DataType, Field, Schema, TimestampType

CATALOG, DATABASE = "default_catalog", "default_database"
ROWTIME_PRECISION = 3
"""Fractional digits of a second in a time attribute of a stream."""
Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A declared column.

    `expression` computes it from the columns that the connector delivers; `extras` is what DESCRIBE
    shows for it.
    """

    name: str
    expression: Expr
    kind: Literal["physical", "computed", "metadata"] = "physical"
    extras: str = ""
    comment: str | None = None

    @property
    def type(self) -> DataType:
        """The data type of the column."""
        return self.expression.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """WATERMARK FOR the column at position `column` AS `expression`.

    `expression` is over the declared columns; `text` is its SQL.
    """

    column: int
    expression: Expr
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table: what its connector reads and writes (`table`), and the columns declared on top."""

    table: Table
    columns: tuple[Column, ...]
    watermark: Watermark | None = None
    primary_key_name: str | None = None
    comment: str | None = None
    temporary: bool = False
    declared: CreateTable | None = field(default=None, compare=False, repr=False)
    """The CREATE TABLE statement, for CREATE TABLE … LIKE; None for a table declared by code."""

    @classmethod
    def of(cls, table: Table, *, rowtime: Watermark | None = None, temporary: bool = False) -> CatalogTable:
        """Build a table without computed columns, as code (not DDL) declares it."""
        columns = tuple(
            Column(
                name=of.name,
                expression=InputRef(type=of.type, position=at, name=of.name),
                kind="metadata" if of.metadata_key is not None else "physical",
            )
            for at, of in enumerate(table.columns)
        )
        return cls(table=table, columns=columns, watermark=rowtime, temporary=temporary)

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.table.name

    def plan(self, *, streaming: bool, table: Table | None = None, span: Span | None = None) -> Plan:
        """Return the plan that reads the table: scan, computed columns, watermark, last row by key.

        In batch there is no watermark, because nothing waits for one. `table` replaces the table if
        a query overrides its options.
        """
        plan: Plan = Scan(table=table or self.table, span=span)
        expressions = self.stream_expressions if streaming else tuple(of.expression for of in self.columns)
        plain = all(isinstance(each, InputRef) and each.position == at for at, each in enumerate(expressions))
        if not plain or len(expressions) != len(self.table.columns):
            plan = Project(input=plan, expressions=expressions, names=tuple(of.name for of in self.columns))
        if self.watermark is not None and streaming:
            plan = WatermarkAssigner(input=plan, column=self.watermark.column, watermark=self.watermark.expression)
        if self.table.changelog is ChangelogMode.UPSERT:
            names = [of.name for of in self.columns]
            plan = ChangelogNormalize(input=plan, keys=tuple(map(names.index, self.table.primary_key)), span=span)
        return plan

    @property
    def stream_expressions(self) -> tuple[Expr, ...]:
        """The expression of each column in a stream.

        A time attribute has milliseconds there, with any declared precision.
        """
        expressions = [of.expression for of in self.columns]
        if self.watermark is not None:
            at = self.watermark.column
            expressions[at] = rowtime_of(expressions[at])
        return tuple(expressions)

    @property
    def schema(self) -> Schema:
        """All columns, including their time attributes."""
        fields = [
            Field(name=of.name, type=of.type, time=time_attribute(of.expression, self.table.schema))
            for of in self.columns
        ]
        if self.watermark is not None:
            at = self.watermark.column
            fields[at] = Field(name=fields[at].name, type=fields[at].type, time="rowtime")
        return Schema(tuple(fields))


def rowtime_of(column: Expr) -> Expr:
    """Return a column cast to the precision of a time attribute in a stream: milliseconds."""
    assert isinstance(column.type, TimestampType)
    if column.type.precision == ROWTIME_PRECISION:
        return column
    of = replace(column.type, precision=ROWTIME_PRECISION)
    return Call(function="CAST", args=(column,), type=of, span=column.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView:
    """A view: its query, bound again wherever it is used.

    `schema` is that of its creation; `span` is the CREATE VIEW statement in its script.
    """

    name: str
    query: syntax.Query
    text: str
    schema: Schema
    span: Span = field(repr=False)
    comment: str | None = None
    temporary: bool = False


Entry: TypeAlias = CatalogTable | CatalogView
Resolve: TypeAlias = Callable[[str, Span | None], str]
"""Substitutes the session's variables in an option value, which is located at the span."""
ConnectTable: TypeAlias = Callable[[Table], Table]
"""Returns a table with the properties that its connector derives from its options.

These are its `changelog` and whether it is `bounded`; this layer does not know them.
"""


def keep_table(table: Table) -> Table:
    """Return the table unchanged: the default of a session without connectors."""
    return table


class Catalog:
    """Tables, views, functions and options of one session.

    `tolerated_errors` collects errors of statements that no stream could run, in a script that is
    only checked; None: the script runs, so they are raised.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        note: Note | None = None,
        resolve: Resolve = lambda value, _: value,
        connected: ConnectTable = keep_table,
    ) -> None:
        self._note: Note = note or (lambda _: None)
        self.resolve = resolve
        self.connected = connected
        self.settings = Settings.of(options, self._note)
        self._permanent: dict[str, Entry] = {}
        self._temporary: dict[str, Entry] = {}
        self.functions = UserFunctions()
        self.tolerated_errors: list[SqlError] | None = None
        self.work = ScriptSize()

    # --- options ---

    def set_option(self, key: str, value: str, span: Span | None = None, value_span: Span | None = None) -> None:
        """Execute SET; see `settings.check_option` for the errors."""
        note = check_option(key, value, span, value_span)
        self.settings = self.settings.with_option(key, value)
        if note:
            self._note(note)

    def reset_option(self, key: str | None = None, span: Span | None = None) -> None:
        """Execute RESET of one option or of all. Raises SqlError `unknown-option`."""
        if key is not None and key not in self.settings.options:
            from everfold.sql.settings import FAMILIES, OPTIONS

            if key not in OPTIONS and not key.startswith(tuple(FAMILIES)):
                raise SqlError(
                    Diagnostic("unknown-option", f"no option is named `{key}`", span, suggest_name(key, OPTIONS))
                )
        self.settings = self.settings.without(key)

    # --- tables and views ---

    def find(self, name: Name) -> Entry | None:
        """Return the table or view of a name, temporary ones first; None if there is none."""
        local = local_name(name)
        if local is None:
            return None
        return self._temporary.get(local) or self._permanent.get(local)

    def get(self, name: Name, span: Span | None = None) -> Entry:
        """Return the table or view of a name. Raises SqlError `unknown-table` if there is none."""
        found = self.find(name)
        if found is None:
            raise SqlError(self.unknown_table(name, span))
        return found

    def unknown_table(self, name: Name, span: Span | None = None, also: tuple[str, ...] = ()) -> Diagnostic:
        """Return the diagnostic for an unknown table; `also` lists further names to suggest."""
        near = suggest_or_list_names(name[-1], dict.fromkeys((*also, *self._temporary, *self._permanent)))
        if local_name(name) is None:
            near = f"everfold has one database, `{CATALOG}.{DATABASE}`"
        return Diagnostic("unknown-table", f"no table or view is named `{'.'.join(name)}`", span, near)

    def entries(self) -> Iterator[Entry]:
        """Yield the tables and views that queries can see, by name."""
        for name in sorted({*self._temporary, *self._permanent}):
            yield self._temporary.get(name) or self._permanent[name]

    def exists(self, name: Name, *, temporary: bool) -> bool:
        """Return whether CREATE would collide with a table or view of that name."""
        local = local_name(name)
        return local is not None and local in (self._temporary if temporary else self._permanent)

    def check_new(self, name: Name, *, temporary: bool, span: Span | None = None) -> str:
        """Return the name within the database.

        Raises SqlError if the database does not exist or the name is taken.
        """
        local = local_name(name)
        if local is None:
            raise self.unknown_database(name, span)
        if self.exists(name, temporary=temporary):
            taken = (self._temporary if temporary else self._permanent)[local]
            kind = "view" if isinstance(taken, CatalogView) else "table"
            raise SqlError(
                Diagnostic(
                    "table-exists",
                    f"a {kind} named `{local}` exists already",
                    span,
                    "choose another name, or write IF NOT EXISTS to keep the one that exists",
                )
            )
        return local

    @staticmethod
    def check_catalog(name: Name, span: Span | None = None) -> None:
        """Raise SqlError `unknown-database` unless a catalog exists."""
        if name != (CATALOG,):
            message = f"no catalog is named `{'.'.join(name)}`"
            raise SqlError.of("unknown-database", message, span, f"everfold has one, `{CATALOG}`")

    def check_database(self, name: Name, span: Span | None = None) -> None:
        """Raise SqlError `unknown-database` unless a database exists."""
        if local_name((*name, "")) is None:
            raise SqlError.of(
                "unknown-database",
                f"no database is named `{'.'.join(name)}`",
                span,
                f"everfold has one, `{CATALOG}.{DATABASE}`",
            )

    @staticmethod
    def unknown_database(name: Name, span: Span | None = None) -> SqlError:
        """Return the error for a name in a database that does not exist."""
        message = f"no database holds `{'.'.join(name)}`"
        return SqlError.of("unknown-database", message, span, f"everfold has one, `{CATALOG}.{DATABASE}`")

    def add(self, entry: Entry) -> None:
        """Register a table or view; the name must be free."""
        under = self._temporary if entry.temporary else self._permanent
        assert entry.name not in under, entry.name
        under[entry.name] = entry

    def replace(self, entry: Entry) -> None:
        """Register a table or view, replacing one of the same name."""
        (self._temporary if entry.temporary else self._permanent)[entry.name] = entry

    def drop(self, name: Name, *, view: bool, temporary: bool, if_exists: bool, span: Span | None = None) -> bool:
        """Execute DROP TABLE or DROP VIEW; return whether there was one."""
        kind, other = ("view", "table") if view else ("table", "view")
        local = local_name(name)
        if not temporary and local in self._temporary and isinstance(self._temporary[local], CatalogView) == view:
            raise SqlError(
                Diagnostic(
                    "temporary-hides",
                    f"a temporary {kind} named `{local}` hides the permanent one",
                    span,
                    f"DROP TEMPORARY {kind.upper()} {local}",
                )
            )
        under = self._temporary if temporary else self._permanent
        found = under.get(local) if local is not None else None
        if found is not None and isinstance(found, CatalogView) == view:
            del under[found.name]
            return True
        if found is not None:
            raise SqlError(
                Diagnostic(
                    f"not-a-{kind}", f"`{local}` is a {other}", span, f"DROP {kind.upper()} takes the name of a {kind}"
                )
            )
        if if_exists:
            return False
        help_ = self.unknown_table(name, span).help or "write IF EXISTS if it may be missing"
        if temporary and local in self._permanent:
            help_ = f"`{local}` is not temporary"
        prefix = "temporary " if temporary else ""
        raise SqlError(Diagnostic(f"unknown-{kind}", f"no {prefix}{kind} is named `{'.'.join(name)}`", span, help_))


def local_name(name: Name) -> str | None:
    """Return the name within the only database; None for a name in another one."""
    return name[-1] if name[:-1] in ((), (DATABASE,), (CATALOG, DATABASE)) else None
