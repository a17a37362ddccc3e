"""The catalog of a session: its tables, views, functions and options.

There is one database, `default_catalog.default_database`. Names are case-sensitive, as in Flink. A temporary table or view hides a
permanent one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlglot import exp

from everfold.errors import Diagnostic, Span, SqlError, nearest, nearest_or_all
from everfold.plan.changelog import ChangelogMode
from everfold.plan.expressions import Call, Expr, InputRef
from everfold.plan.nodes import ChangelogNormalize, Plan, Project, Scan, Table, WatermarkAssigner, time_attribute
from everfold.plan.size import Work
from everfold.sql.settings import Note, Settings, check_option
from everfold.sql.user_functions import UserFunctions
from everfold.types import DataType, Field, Schema, TimestampType

CATALOG, DATABASE = "default_catalog", "default_database"
ROWTIME_PRECISION = 3
"""Digits of a second that a time attribute has in a stream."""
Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column as declared: `expression` computes it over what the connector delivers; `extras` is what DESCRIBE says about it."""

    name: str
    expression: Expr
    kind: Literal["physical", "computed", "metadata"] = "physical"
    extras: str = ""
    comment: str | None = None

    @property
    def type(self) -> DataType:
        """Its type."""
        return self.expression.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """WATERMARK FOR the column at `column` AS `expression`, over the declared columns; `text` is its SQL."""

    column: int
    expression: Expr
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table: what its connector reads and writes (`table`), and what is made of it."""

    table: Table
    columns: tuple[Column, ...]
    watermark: Watermark | None = None
    primary_key_name: str | None = None
    comment: str | None = None
    temporary: bool = False

    @classmethod
    def of(cls, table: Table, *, rowtime: Watermark | None = None, temporary: bool = False) -> CatalogTable:
        """A table without computed columns, as code (not DDL) declares it."""
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
        """The table's name."""
        return self.table.name

    def plan(self, *, streaming: bool, table: Table | None = None, span: Span | None = None) -> Plan:
        """How it is read: scan, computed columns, watermark. In batch nothing waits for a watermark, so there is none.

        `table` replaces the table where a query overrides its options.
        """
        plan: Plan = Scan(table=table or self.table, span=span)
        expressions = self.stream_expressions if streaming else tuple(of.expression for of in self.columns)
        plain = all(isinstance(each, InputRef) and each.position == at for at, each in enumerate(expressions))
        if not plain or len(expressions) != len(self.table.columns):
            plan = Project(input=plan, expressions=expressions, names=tuple(of.name for of in self.columns))
        if self.watermark is not None and streaming:
            plan = WatermarkAssigner(input=plan, column=self.watermark.column, watermark=self.watermark.expression)
        if streaming and self.table.changelog is ChangelogMode.UPSERT:
            names = [of.name for of in self.columns]
            plan = ChangelogNormalize(input=plan, keys=tuple(map(names.index, self.table.primary_key)), span=span)
        return plan

    @property
    def stream_expressions(self) -> tuple[Expr, ...]:
        """What each column is in a stream: a time attribute has milliseconds there, whatever its declared precision."""
        expressions = [of.expression for of in self.columns]
        if self.watermark is not None:
            at = self.watermark.column
            expressions[at] = rowtime_of(expressions[at])
        return tuple(expressions)

    @property
    def schema(self) -> Schema:
        """All columns, with their time attributes."""
        fields = [
            Field(name=of.name, type=of.type, time=time_attribute(of.expression, self.table.schema))
            for of in self.columns
        ]
        if self.watermark is not None:
            at = self.watermark.column
            fields[at] = Field(name=fields[at].name, type=fields[at].type, time="rowtime")
        return Schema(tuple(fields))


def rowtime_of(column: Expr) -> Expr:
    """A column as a time attribute of a stream: with milliseconds."""
    assert isinstance(column.type, TimestampType)
    if column.type.precision == ROWTIME_PRECISION:
        return column
    of = replace(column.type, precision=ROWTIME_PRECISION)
    return Call(function="CAST", args=(column,), type=of, span=column.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView:
    """A view: its query, bound anew where it is used. `schema` is that of its creation; `span` is the statement, in its script."""

    name: str
    query: exp.Expression
    text: str
    schema: Schema
    span: Span = field(repr=False)
    comment: str | None = None
    temporary: bool = False


Entry: TypeAlias = CatalogTable | CatalogView
Resolve: TypeAlias = Callable[[str, Span | None], str]
"""Fills the session's variables into an option's value, which stands at that place."""
Connected: TypeAlias = Callable[[Table], Table]
"""The table with what connectors know of it by its options, and this layer does not: its `changelog`, and whether it is `bounded`."""


def unconnected(table: Table) -> Table:
    """What a table is to a session that knows no connectors."""
    return table


class Catalog:
    """Tables, views, functions and options of one session. excused: what no stream could run of a script that is only judged; None: it is run."""

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        note: Note | None = None,
        resolve: Resolve = lambda value, _: value,
        connected: Connected = unconnected,
    ) -> None:
        self._note: Note = note or (lambda _: None)
        self.resolve = resolve
        self.connected = connected
        self.settings = Settings.of(options, self._note)
        self._permanent: dict[str, Entry] = {}
        self._temporary: dict[str, Entry] = {}
        self.functions = UserFunctions()
        self.excused: list[SqlError] | None = None
        self.work = Work()

    # --- options ---

    def set_option(self, key: str, value: str, span: Span | None = None, value_span: Span | None = None) -> None:
        """SET; see `settings.check_option` for what it refuses."""
        said = check_option(key, value, span, value_span)
        self.settings = self.settings.with_option(key, value)
        if said:
            self._note(said)

    def reset_option(self, key: str | None = None, span: Span | None = None) -> None:
        """RESET of one option or all; an option that does not exist is refused."""
        if key is not None and key not in self.settings.options:
            from everfold.sql.settings import FAMILIES, OPTIONS

            if key not in OPTIONS and not key.startswith(tuple(FAMILIES)):
                raise SqlError(Diagnostic("unknown-option", f"no option is named `{key}`", span, nearest(key, OPTIONS)))
        self.settings = self.settings.without(key)

    # --- tables and views ---

    def find(self, name: Name) -> Entry | None:
        """The table or view of that name; temporary ones first."""
        local = local_name(name)
        if local is None:
            return None
        return self._temporary.get(local) or self._permanent.get(local)

    def get(self, name: Name, span: Span | None = None) -> Entry:
        """The table or view of that name; SqlError `unknown-table` if there is none."""
        found = self.find(name)
        if found is None:
            raise SqlError(self.unknown(name, span))
        return found

    def unknown(self, name: Name, span: Span | None = None, also: tuple[str, ...] = ()) -> Diagnostic:
        """The finding that no table has that name; `also` are names that stand beside the catalog's."""
        near = nearest_or_all(name[-1], dict.fromkeys((*also, *self._temporary, *self._permanent)))
        if local_name(name) is None:
            near = f"everfold has one database, `{CATALOG}.{DATABASE}`"
        return Diagnostic("unknown-table", f"no table or view is named `{'.'.join(name)}`", span, near)

    def entries(self) -> Iterator[Entry]:
        """What queries can see, by name."""
        for name in sorted({*self._temporary, *self._permanent}):
            yield self._temporary.get(name) or self._permanent[name]

    def exists(self, name: Name, *, temporary: bool) -> bool:
        """Whether CREATE would meet a table or view of that name."""
        local = local_name(name)
        return local is not None and local in (self._temporary if temporary else self._permanent)

    def check_new(self, name: Name, *, temporary: bool, span: Span | None = None) -> str:
        """The name within the database; SqlError if the database does not exist, or the name is taken."""
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
                    "DROP it first, or write IF NOT EXISTS",
                )
            )
        return local

    @staticmethod
    def unknown_database(name: Name, span: Span | None = None) -> SqlError:
        """The error that a name is in a database that does not exist."""
        message = f"no database holds `{'.'.join(name)}`"
        return SqlError.of("unknown-database", message, span, f"everfold has one, `{CATALOG}.{DATABASE}`")

    def add(self, entry: Entry) -> None:
        """Registers a table or view; the name must be free."""
        under = self._temporary if entry.temporary else self._permanent
        assert entry.name not in under, entry.name
        under[entry.name] = entry

    def replace(self, entry: Entry) -> None:
        """Registers a table or view, in place of one that has its name."""
        (self._temporary if entry.temporary else self._permanent)[entry.name] = entry

    def drop(self, name: Name, *, view: bool, temporary: bool, if_exists: bool, span: Span | None = None) -> bool:
        """DROP TABLE or DROP VIEW; whether there was one."""
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
                Diagnostic(f"not-a-{kind}", f"`{local}` is a {other}", span, f"DROP {other.upper()} {local}")
            )
        if if_exists:
            return False
        way = self.unknown(name, span).help or "write IF EXISTS if it need not be there"
        if temporary and local in self._permanent:
            way = f"`{local}` is not temporary"
        said = "temporary " if temporary else ""
        raise SqlError(Diagnostic(f"unknown-{kind}", f"no {said}{kind} is named `{'.'.join(name)}`", span, way))


def local_name(name: Name) -> str | None:
    """The name within the one database there is; None for a name in another."""
    return name[-1] if name[:-1] in ((), (DATABASE,), (CATALOG, DATABASE)) else None
