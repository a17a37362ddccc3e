"""A session: executes the statements of a script one by one, without any engine.

Statements that only concern the catalog are executed at once. Work for an engine is returned as an
action.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, assert_never

from everfold.errors import Span, SqlError, UnsupportedFeature, UsageError
from everfold.hidden_values import HiddenValues, activate
from everfold.plan.execution_plan import format_execution_plan
from everfold.plan.explain import explain
from everfold.plan.naming import number_operators
from everfold.plan.nodes import Collect, Root, Sink, Table
from everfold.plan.rewrites import rewrite
from everfold.plan.size import count_cells
from everfold.plan.topic_storage import check_topics
from everfold.plan.walk import tables_read
from everfold.sql import syntax
from everfold.sql.binder import bind_create_table, bind_create_view, bind_insert, bind_open_insert, bind_query, show
from everfold.sql.binder.derived_tables import build_insert, complete_as, complete_like
from everfold.sql.binder.lenses.inserts import bind_topic_insert
from everfold.sql.binder.lenses.topics import bind_topic, check_late_option
from everfold.sql.catalog import CATALOG, DATABASE, Catalog, ConnectTable, keep_table, local_name
from everfold.sql.python_modules import load_object, read_object
from everfold.sql.script import keep_variables, parse_script, resolve_variables
from everfold.sql.settings import Note, Settings
from everfold.sql.statements import (
    AsQuery,
    CreateFunction,
    CreateTable,
    CreateTopic,
    CreateView,
    Describe,
    DescribeJob,
    DropFunction,
    DropTable,
    DropView,
    Explain,
    Insert,
    JobStatement,
    Name,
    NamePattern,
    Query,
    ResetOption,
    SetOption,
    ShowCatalogs,
    ShowColumns,
    ShowCreate,
    ShowCurrent,
    ShowDatabases,
    ShowFunctions,
    ShowJobs,
    ShowTables,
    ShowViews,
    Statement,
    StatementSet,
    StopJob,
    Use,
)
from everfold.sql.stream_checks import check_retractions
from everfold.sql.user_functions import Kind, build_user_function, qualified_name
from everfold.udf.reading import FunctionReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Work for an engine: a Collect, a Sink, or the Sinks of a statement set, which run as one job.

    `names` are the result columns of a Collect, or the tables that Sinks write. `settings` are
    those in effect at this statement. `bind` binds another statement in the same session.
    """

    roots: tuple[Root, ...]
    names: tuple[str, ...]
    settings: Settings
    span: Span
    text: str
    bind: Callable[[str], Sequence[Root]] = field(compare=False, repr=False)

    @property
    def sources(self) -> tuple[Table, ...]:
        """The tables read, with the columns left after pruning.

        A table has the same columns wherever it is read.
        """
        return tables_read(self.roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """A table to show: the result of DESCRIBE, SHOW, EXPLAIN or SET without arguments."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A statement that has been executed; `message` reports what it did."""

    message: str


Action: TypeAlias = Submit | Show | Done


class Jobs(Protocol):
    """The jobs that SHOW JOBS, DESCRIBE JOB and STOP JOB are about."""

    def show(self) -> Show:
        """Return the jobs."""

    def describe(self, statement: DescribeJob) -> Show:
        """Return one job. Raises SqlError `unknown-job`."""

    def stop(self, statement: StopJob) -> Show | Done:
        """Stop a job. Raises SqlError `unknown-job`, EverfoldError if it has failed."""


_EMPTY_DETAILS = {
    "ESTIMATED_COST": "everfold plans without statistics",
    "PLAN_ADVICE": "everfold gives no advice",
}
"""The details of EXPLAIN that are accepted with a note."""
_JSON_TITLE = "== Physical Execution Plan =="
"""What Flink writes before the plan of JSON_EXECUTION_PLAN."""
DescribeScans: TypeAlias = Callable[[Sequence[Root], Settings], str]
"""Describes how the engine reads the tables of plans under some options."""


class Session:
    """An interpreter of scripts.

    `options` are set before the first statement (`--conf`). `variables` and `environment` replace
    `${name}` and `${env:NAME}` in option values. `notes` receives messages for the user, such as
    options without effect. `connected` adds what connectors know about a table. Modules of Python
    functions are searched for in `folder` first, which is the script's. They are imported only if
    `import_functions`, which queries that run need; otherwise they are read.

    `describe_scans` adds to EXPLAIN how the engine reads the tables. `jobs` are those that
    statements can show and stop; a session without them refuses such statements.

    If `lenient`, scripts are checked and never run: undeclared tables and functions are inferred
    from their use, features that no stream could run are only noted, and variables without a value
    are kept.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        notes: Note | None = None,
        connected: ConnectTable = keep_table,
        folder: Path = Path(),
        *,
        import_functions: bool = False,
        lenient: bool = False,
        describe_scans: DescribeScans = lambda *_: "",
        jobs: Jobs | None = None,
    ) -> None:
        self.folder = folder
        self._import_functions = import_functions
        self._reader = FunctionReader(folder)
        self.lenient = lenient
        self.variables = dict(variables or {})
        self.environment = dict(environment or {})
        self.hidden_values = HiddenValues()
        activate(self.hidden_values)
        note: Note = notes or (lambda _: None)
        self._note: Note = lambda text: note(self.hidden_values.hide(text))
        self.catalog = Catalog(options, self._note, self._resolve, connected)
        self._describe_scans = describe_scans
        self._jobs = jobs
        if lenient:
            self.catalog.tolerated_errors = []

    @property
    def settings(self) -> Settings:
        """The options currently in effect."""
        return self.catalog.settings

    def run(self, text: str, source: str = "<sql>") -> Iterator[Action]:
        """Yield the actions of a script.

        The next statement is read only after the last action was handled.
        """
        yield from self.run_statements(parse_script(text, source, self.settings.dialect))

    def run_statements(self, statements: tuple[Statement, ...]) -> Iterator[Action]:
        """Yield the actions of a script that was parsed, see `run`."""
        for script in {statement.span.text for statement in statements}:
            self.hidden_values.add_script(script, self.environment)
        if self.lenient:
            statements = self._complete(statements)
        for statement in statements:
            yield self.execute(statement)

    def execute(self, statement: Statement) -> Action:
        """Execute one statement and return its action."""
        try:
            return self._execute(statement)
        except RecursionError:
            # The caller was already close to the limit, or those of `everfold.limits` are too lax.
            raise SqlError.of("too-complex", "the statement is nested too deeply", statement.span) from None

    def _execute(self, statement: Statement) -> Action:
        match statement:
            case SetOption() | ResetOption():
                return self._option(statement)
            case CreateTable():
                return self._create_table(statement)
            case CreateView():
                return self._create_view(statement)
            case CreateFunction():
                return self._create_function(statement)
            case DropFunction():
                return self._drop_function(statement)
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
            case ShowCatalogs():
                return _show_names("catalog name", (CATALOG,), statement.pattern)
            case ShowDatabases():
                if statement.catalog is not None:
                    self.catalog.check_catalog(statement.catalog, statement.catalog_span)
                return _show_names("database name", (DATABASE,), statement.pattern)
            case ShowCurrent():
                current = {"CATALOG": CATALOG, "DATABASE": DATABASE}[statement.kind]
                return _show_names(f"current {statement.kind.lower()} name", (current,), None)
            case Use():
                is_catalog = statement.kind == "CATALOG"
                check = self.catalog.check_catalog if is_catalog else self.catalog.check_database
                check(statement.name, statement.name_span)
                return Done(message=f"{statement.kind.capitalize()} {statement.name[-1]} is in use.")
            case ShowJobs():
                return self._require_jobs(statement).show()
            case DescribeJob():
                return self._require_jobs(statement).describe(statement)
            case StopJob():
                return self._require_jobs(statement).stop(statement)
            case ShowTables():
                return self._names("table name", (entry.name for entry in self.catalog.entries()), statement)
            case ShowViews():
                return self._names("view name", show.view_names(self.catalog), statement)
            case ShowFunctions():
                shown = show.function_names(self.catalog, user=statement.user)
                return self._names("function name", shown, statement)
            case ShowColumns():
                entry = self.catalog.get(statement.name, statement.name_span)
                rows = show.describe(entry)
                if statement.pattern is not None:
                    rows = tuple(row for row in rows if statement.pattern.matches(row[0]))
                return Show(columns=show.describe_columns(entry), rows=rows)
            case ShowCreate():
                entry = self.catalog.get(statement.name, statement.name_span)
                option = self.hidden_values.show_option
                created = show.show_create(entry, statement.kind, statement.name_span, option)
                return Show(columns=("result",), rows=((created,),))
            case _:
                assert_never(statement)

    def _names(self, title: str, names: Iterable[str], statement: ShowTables | ShowViews | ShowFunctions) -> Show:
        """Return a table of one column, with the names that match the pattern of the statement."""
        if statement.database is not None and local_name((*statement.database, "")) is None:
            raise self.catalog.unknown_database(statement.database, statement.database_span)
        return _show_names(title, names, statement.pattern)

    def _require_jobs(self, statement: ShowJobs | DescribeJob | StopJob) -> Jobs:
        if self._jobs is None:
            raise UnsupportedFeature.of(
                "unsupported-statement",
                f"{statement.sql.split(chr(39))[0].strip()} is a statement of the shell",
                statement.span,
                "use it in `everfold sql`; a script waits for its jobs, and Ctrl-C stops them",
            )
        return self._jobs

    def register_function(self, name: Name, function: object, kind: Kind) -> None:
        """Register a Python function object.

        Raises SqlError if it is not a function, does not declare its types, or the name is taken.
        """
        local = self._function_name(name, None)
        self.catalog.functions.add(build_user_function(function, local, qualified_name(function), None), kind)

    def forget_function(self, name: Name, kind: Kind) -> bool:
        """Remove a function; return whether there was one."""
        return self.catalog.functions.drop(self._function_name(name, None), kind, if_exists=True)

    def explain(self, text: str) -> str:
        """Return what EXPLAIN of the only statement of a script shows.

        Raises SqlError; UsageError `not-a-query` if the script is anything else than one statement
        that EXPLAIN accepts.
        """
        statements = parse_script(text, dialect=self.settings.dialect)
        if len(statements) == 1:
            match statements[0]:
                case Query() | Insert() | StatementSet() | CreateTable(as_query=AsQuery()) as statement:
                    shown = self.execute(Explain(statement=statement, span=statement.span))
                    assert isinstance(shown, Show)
                    return shown.rows[0][0]
        raise UsageError.of(
            "not-a-query", "only one query, INSERT, CREATE TABLE … AS or statement set can be explained at a time"
        )

    # --- statements ---

    def _complete(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Declare what a script uses without declaring it; return the completed statements."""
        from everfold.sql.undeclared import infer_undeclared

        loadable: list[str] = []
        for statement in statements:
            if isinstance(statement, CreateFunction):
                error = self._find_load_error(statement)
                if error is None:
                    loadable.append(statement.name[-1])
                elif error.code == "unreadable-function":
                    self._note(error.diagnostics[0].message)
        tables = (entry.name for entry in self.catalog.entries())
        found = infer_undeclared(statements, tables, [*loadable, *(each.name for each in self.catalog.functions)])
        for entry in found.entries():
            self.catalog.add(entry)
        for function in found.functions():
            self.catalog.functions.add(function, Kind.TEMPORARY)
        for each in found.notes:
            self._note(each)
        return found.statements

    def _find_load_error(self, statement: CreateFunction) -> SqlError | None:
        """Return why a function cannot be loaded: then only its use is known."""
        try:
            self._find_object(statement)
        except SqlError as error:
            return error
        return None

    def _find_object(self, statement: CreateFunction) -> object:
        """Return the object that a function runs, or its stand-in."""
        if self._import_functions:
            return load_object(statement.identifier, self.folder, statement.identifier_span)
        return read_object(statement.identifier, self._reader, statement.identifier_span)

    def _resolve(self, value: str, span: Span | None) -> str:
        if not self.lenient:
            return resolve_variables(value, self.variables, self.environment, span)
        variables, environment = keep_variables(value)
        return resolve_variables(value, variables | self.variables, environment | self.environment, span)

    def _option(self, statement: SetOption | ResetOption) -> Action:
        if isinstance(statement, ResetOption):
            self.catalog.reset_option(statement.key, statement.span)
            return Done(message=f"Option {statement.key} reset." if statement.key else "All options reset.")
        if statement.key is None:
            return Show(columns=("key", "value"), rows=show.list_options(self.settings, self.hidden_values.show_option))
        assert statement.value is not None
        check_late_option(statement.key, self.catalog, statement.key_span)
        value = self._resolve(statement.value, statement.value_span)
        self.catalog.set_option(statement.key, value, statement.key_span, statement.value_span)
        return Done(message=f"Option {statement.key} set.")

    def _create_table(self, statement: CreateTable) -> Action:
        if statement.as_query is not None:
            return self._create_table_as(statement, statement.as_query)
        if statement.if_not_exists and self.catalog.exists(statement.name, temporary=statement.temporary):
            return Done(message=f"Table {statement.name[-1]} exists already.")
        statement = complete_like(statement, self.catalog)
        self.catalog.work.add(len(statement.columns), statement.span)
        if isinstance(statement, CreateTopic):
            self.catalog.add(bind_topic(statement, self.catalog))
        else:
            self.catalog.add(bind_create_table(statement, self.catalog))
        return Done(message=f"Table {statement.name[-1]} created.")

    def _create_table_as(self, statement: CreateTable, query: AsQuery) -> Submit:
        """Create a table and return the job that fills it: CREATE TABLE and INSERT INTO in one."""
        created = self._create_target(statement, query)
        try:
            return self._submit(build_insert(statement, query, self.catalog))
        except SqlError:
            self._drop_target(statement, created)
            raise

    def _create_target(self, statement: CreateTable, query: AsQuery) -> bool:
        """Create the table of CREATE TABLE … AS; return False if it existed and may."""
        if statement.if_not_exists and self.catalog.exists(statement.name, temporary=False):
            return False
        self.catalog.add(bind_create_table(complete_as(statement, query, self.catalog), self.catalog))
        return True

    def _drop_target(self, statement: CreateTable, created: bool) -> None:
        if created:
            self.catalog.drop(statement.name, view=False, temporary=False, if_exists=True)

    def _create_view(self, statement: CreateView) -> Action:
        if statement.if_not_exists and self.catalog.exists(statement.name, temporary=statement.temporary):
            return Done(message=f"View {statement.name[-1]} exists already.")
        self.catalog.add(bind_create_view(statement, self.catalog))
        return Done(message=f"View {statement.name[-1]} created.")

    def _create_function(self, statement: CreateFunction) -> Action:
        if statement.language != "PYTHON":
            raise UnsupportedFeature.of(
                "function-language",
                f"a function in {statement.language.capitalize()} cannot be called: everfold runs functions in Python",
                statement.span,
                "write it in Python and add LANGUAGE PYTHON; the default is JAVA",
            )
        name = self._function_name(statement.name, statement.name_span)
        if self.lenient and self._find_load_error(statement) is not None:
            return Done(message=f"Function {name} cannot be loaded.")
        kind = Kind.of(temporary=statement.temporary, system=statement.system)
        if statement.if_not_exists and self.catalog.functions.has(name, kind):
            return Done(message=f"Function {name} exists already.")
        found = self._find_object(statement)
        function = build_user_function(found, name, statement.identifier, statement.identifier_span)
        self.catalog.functions.add(function, kind, statement.name_span)
        if not function.is_argument_count_known:
            self._note(
                f"the parameters of the Python function `{statement.identifier}` are only known when its module is "
                "imported: the number of arguments in calls is not checked"
            )
        return Done(message=f"Function {name} created.")

    def _drop_function(self, statement: DropFunction) -> Action:
        name = self._function_name(statement.name, statement.name_span)
        kind = Kind.of(temporary=statement.temporary, system=statement.system)
        self.catalog.functions.drop(name, kind, if_exists=statement.if_exists, span=statement.name_span)
        return Done(message=f"Function {name} dropped.")

    def _function_name(self, name: Name, span: Span | None) -> str:
        local = local_name(name)
        if local is None:
            raise self.catalog.unknown_database(name, span)
        return local

    def _submit(self, statement: Query | Insert | StatementSet) -> Submit:
        roots = self._plan(statement)
        names: tuple[str, ...] = ()
        for root in roots:
            names += root.schema.names if isinstance(root, Collect) else (root.table.name,)
        text = statement.text if isinstance(statement, Query) else statement.sql
        return Submit(
            roots=roots,
            names=names,
            settings=self.settings,
            span=statement.span,
            text=text,
            bind=self._bind_statement,
        )

    def _bind_statement(self, text: str) -> tuple[Root, ...]:
        """Return the plans of a query, an INSERT or a statement set. Raises SqlError."""
        self.hidden_values.add_script(text, self.environment)
        (statement,) = parse_script(text, dialect=self.settings.dialect)
        if not isinstance(statement, Query | Insert | StatementSet):
            raise UsageError.of("not-a-query", "only a query, an INSERT or a statement set has a plan")
        return self._plan(statement)

    def _plan(self, statement: Query | Insert | StatementSet) -> tuple[Root, ...]:
        bound = self._bind(statement)
        for root in bound:
            self.catalog.work.add(count_cells(root.input), statement.span)
        roots = number_operators(rewrite(bound))
        check_topics(roots)
        if self.settings.streaming and not self.lenient:
            check_retractions(roots)
        return roots

    def _bind(self, statement: Query | Insert | StatementSet) -> tuple[Root, ...]:
        match statement:
            case Query():
                return (bind_query(statement.query, self.catalog),)
            case Insert():
                return (self._insert(statement),)
            case StatementSet():
                return tuple(map(self._insert, statement.inserts))

    def _insert(self, statement: Insert) -> Sink:
        if isinstance(statement.query, syntax.TopicQuery):
            return bind_topic_insert(statement, self.catalog)
        open_ = self.lenient and self.catalog.find(statement.target) is None
        return (bind_open_insert if open_ else bind_insert)(statement, self.catalog)

    def _explain(self, statement: Explain) -> Show:
        for detail in statement.details:
            if detail in _EMPTY_DETAILS:
                self._note(f"EXPLAIN {detail} adds nothing to the plan: {_EMPTY_DETAILS[detail]}")
        roots = self._plan_explained(statement.statement)
        streaming = self.settings.streaming
        parts = [explain(root, streaming=streaming) for root in roots]
        parts.append(self._describe_scans(roots, self.settings))
        if "JSON_EXECUTION_PLAN" in statement.details:
            parts.append(f"{_JSON_TITLE}\n{format_execution_plan(roots, streaming=streaming)}")
        plan = self.hidden_values.hide_connectors("\n\n".join(filter(None, parts)))
        return Show(columns=("result",), rows=((plan,),))

    def _plan_explained(self, statement: JobStatement) -> tuple[Root, ...]:
        """Return the plans of a statement. That of CREATE TABLE … AS leaves no table behind."""
        if not isinstance(statement, CreateTable):
            return self._plan(statement)
        query = statement.as_query
        assert query is not None
        created = self._create_target(statement, query)
        try:
            return self._plan(build_insert(statement, query, self.catalog))
        finally:
            self._drop_target(statement, created)


def _show_names(title: str, names: Iterable[str], pattern: NamePattern | None) -> Show:
    """Return a table of one column, with the names that match a pattern."""
    return Show(columns=(title,), rows=tuple((name,) for name in names if pattern is None or pattern.matches(name)))
