"""A session: runs a script's statements one by one, without any engine.

What only concerns the catalog is done at once; what an engine has to do comes out as an action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from everfold.errors import Span, UnsupportedFeature
from everfold.plan.explain import explain
from everfold.plan.nodes import Collect, Root, Table
from everfold.plan.rewrites import rewrite, tables_read
from everfold.sql.binder import bind_create_table, bind_create_view, bind_insert, bind_query, show
from everfold.sql.catalog import Catalog
from everfold.sql.script import parse_script, resolve_variables
from everfold.sql.settings import Note, Settings
from everfold.sql.statements import (
    CreateFunction,
    CreateTable,
    CreateView,
    Describe,
    DropTable,
    DropView,
    Explain,
    Insert,
    Query,
    ResetOption,
    SetOption,
    ShowCreate,
    ShowTables,
    ShowViews,
    Statement,
    StatementSet,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Work for an engine: a Collect, a Sink, or the Sinks of a statement set, which run as one job.

    `names` are the result's columns for a Collect, and the tables written for Sinks. `settings` are those of this moment.
    """

    roots: tuple[Root, ...]
    names: tuple[str, ...]
    settings: Settings
    span: Span
    text: str

    @property
    def sources(self) -> tuple[Table, ...]:
        """The tables read, with the columns that are left after pruning; the same table has the same columns wherever it is read."""
        return tables_read(self.roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """A table to show: DESCRIBE, SHOW, EXPLAIN, SET alone."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A statement that has been carried out; `message` says what."""

    message: str


Action: TypeAlias = Submit | Show | Done


class Session:
    """An interpreter of scripts.

    `options` are set before the first statement (`--conf`), `variables` and `environment` fill `${name}` and `${env:NAME}` in option
    values, `notes` takes sentences about what has no effect.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        notes: Note | None = None,
    ) -> None:
        self.catalog = Catalog(options, notes)
        self.variables = dict(variables or {})
        self.environment = dict(environment or {})

    @property
    def settings(self) -> Settings:
        """The options of this moment."""
        return self.catalog.settings

    def run(self, text: str, source: str = "<sql>") -> Iterator[Action]:
        """The actions of a script, statement by statement: the next one is read when the last has been dealt with."""
        for statement in parse_script(text, source, self.settings.dialect):
            yield self.execute(statement)

    def execute(self, statement: Statement) -> Action:
        """What one statement comes to."""
        match statement:
            case SetOption() | ResetOption():
                return self._option(statement)
            case CreateTable():
                return self._create_table(statement)
            case CreateView():
                return self._create_view(statement)
            case CreateFunction():
                raise UnsupportedFeature.of("create-function", "CREATE FUNCTION is not supported", statement.name_span)
            case DropTable() | DropView():
                view = isinstance(statement, DropView)
                self.catalog.drop(
                    statement.name,
                    view=view,
                    temporary=statement.temporary,
                    if_exists=statement.if_exists,
                    span=statement.name_span,
                )
                return Done(message=f"{'View' if view else 'Table'} {statement.name[-1]} dropped.")
            case Query() | Insert() | StatementSet():
                return self._submit(statement)
            case Explain():
                return self._explain(statement)
            case Describe():
                entry = self.catalog.get(statement.name, statement.name_span)
                return Show(columns=show.describe_columns(entry), rows=show.describe(entry))
            case ShowTables():
                return Show(columns=("table name",), rows=tuple((entry.name,) for entry in self.catalog.entries()))
            case ShowViews():
                names = show.view_names(self.catalog)
                return Show(columns=("view name",), rows=tuple((name,) for name in names))
            case ShowCreate():
                entry = self.catalog.get(statement.name, statement.name_span)
                return Show(
                    columns=("result",), rows=((show.show_create(entry, statement.kind, statement.name_span),),)
                )
            case _:
                assert_never(statement)

    # --- statements ---

    def _resolve(self, value: str, span: Span | None) -> str:
        return resolve_variables(value, self.variables, self.environment, span)

    def _option(self, statement: SetOption | ResetOption) -> Action:
        if isinstance(statement, ResetOption):
            self.catalog.reset_option(statement.key, statement.span)
            return Done(message=f"Option {statement.key} reset." if statement.key else "All options reset.")
        if statement.key is None:
            return Show(columns=("key", "value"), rows=show.options(self.settings))
        assert statement.value is not None
        value = self._resolve(statement.value, statement.value_span)
        self.catalog.set_option(statement.key, value, statement.key_span, statement.value_span)
        return Done(message=f"Option {statement.key} set.")

    def _create_table(self, statement: CreateTable) -> Action:
        if statement.if_not_exists and self.catalog.exists(statement.name, temporary=statement.temporary):
            return Done(message=f"Table {statement.name[-1]} exists already.")
        self.catalog.add(bind_create_table(statement, self.catalog, self._resolve))
        return Done(message=f"Table {statement.name[-1]} created.")

    def _create_view(self, statement: CreateView) -> Action:
        if statement.if_not_exists and self.catalog.exists(statement.name, temporary=statement.temporary):
            return Done(message=f"View {statement.name[-1]} exists already.")
        self.catalog.add(bind_create_view(statement, self.catalog))
        return Done(message=f"View {statement.name[-1]} created.")

    def _submit(self, statement: Query | Insert | StatementSet) -> Submit:
        roots = rewrite(self._bound(statement))
        names: tuple[str, ...] = ()
        for root in roots:
            names += root.schema.names if isinstance(root, Collect) else (root.table.name,)
        text = statement.text if isinstance(statement, Query) else statement.sql
        return Submit(roots=roots, names=names, settings=self.settings, span=statement.span, text=text)

    def _bound(self, statement: Query | Insert | StatementSet) -> tuple[Root, ...]:
        match statement:
            case Query():
                return (bind_query(statement.query, self.catalog, statement.span),)
            case Insert():
                return (bind_insert(statement, self.catalog),)
            case StatementSet():
                return tuple(bind_insert(each, self.catalog) for each in statement.inserts)

    def _explain(self, statement: Explain) -> Show:
        for detail in statement.details:
            if detail != "CHANGELOG_MODE":
                raise UnsupportedFeature.of("unsupported-clause", f"EXPLAIN {detail} is not supported", statement.span)
        roots = rewrite(self._bound(statement.statement))
        text = "\n\n".join(explain(root, streaming=self.settings.streaming) for root in roots)
        return Show(columns=("result",), rows=((text,),))
