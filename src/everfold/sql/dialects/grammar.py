"""Grammar of statements; the first word decides the kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypedDict

from everfold.errors import EverfoldError, Span, suggest_name
from everfold.sql.dialects.ddl import Definitions
from everfold.sql.dialects.token_stream import NAME_TOKENS
from everfold.sql.dialects.tokens import TokenKind
from everfold.sql.statements import (
    CreateTable,
    Describe,
    DescribeJob,
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

_REFUSED = {
    "ALTER": 2,
    "ANALYZE": 2,
    "CALL": 1,
    "COMPILE": 2,
    "DELETE": 1,
    "KILL": 1,
    "LOAD": 2,
    "MERGE": 1,
    "STOP": 2,
    "USE": 2,
    "TRUNCATE": 2,
    "UNLOAD": 2,
    "UPDATE": 1,
    "UPSERT": 1,
    "ADD": 2,
    "REMOVE": 2,
    "REFRESH": 2,
    "GRANT": 1,
    "REVOKE": 1,
    "CACHE": 1,
    "COMMENT": 1,
    "HELP": 1,
    "QUIT": 1,
    "EXIT": 1,
    "CLEAR": 1,
}
"""Known statements that are not supported, and the number of words in their names."""

_STARTS = [
    "SELECT",
    "WITH",
    "VALUES",
    "INSERT",
    "CREATE",
    "DROP",
    "SET",
    "RESET",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "EXPLAIN",
    "EXECUTE",
    "BEGIN",
    "USE",
    "STOP",
]
_DESTRUCTIVE = ("DROP", "RESET", "STOP")
"""Statements that are listed, but never suggested for a misspelled word."""
_CURRENT: tuple[Literal["CATALOG"], Literal["DATABASE"]] = ("CATALOG", "DATABASE")
_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


class _ShowFilter(TypedDict):
    database: Name | None
    database_span: Span | None
    pattern: NamePattern | None
    span: Span


class Grammar(Definitions):
    """Grammar of a script."""

    def script(self) -> tuple[Statement, ...]:
        """Parse all statements, without empty ones."""
        found: list[Statement] = []
        while not self.is_at_end:
            if self.accept(";"):
                continue
            found.append(self.statement())
            self._end()
        return tuple(found)

    def _end(self) -> None:
        if not self.is_at_end and self.key() != ";":
            raise self.expected_error("`;` or the rest of the statement")

    def statement(self) -> Statement:
        """Parse one statement, without the `;` after it."""
        match self.key():
            case "SELECT" | "WITH" | "VALUES" | "(" | "TABLE":
                return self._query()
            case "INSERT":
                return self._insert()
            case "CREATE":
                return self.create()
            case "DROP":
                return self.drop()
            case "SET":
                return self._set()
            case "RESET":
                return self._reset()
            case "SHOW":
                return self._show()
            case "DESCRIBE" | "DESC":
                return self._describe()
            case "EXPLAIN":
                return self._explain()
            case "EXECUTE":
                return self._execute()
            case "BEGIN":
                return self._statement_set(self.at)
            case "USE" if self.key(1) != "MODULES":
                return self._use()
            case "STOP" if self.key(1) == "JOB":
                return self._stop_job()
            case word:
                raise self._unknown_statement(word)

    def _unknown_statement(self, word: str) -> EverfoldError:
        if word in _REFUSED:
            first = self.at
            self.at += 1
            for _ in range(_REFUSED[word] - 1):
                if self.kind() is TokenKind.WORD:
                    self.at += 1
            return self.unsupported_error("unsupported-statement", " ".join(self.keys[first : self.at]), first)
        known = f"statements begin with {', '.join(_STARTS[:-1])} or {_STARTS[-1]}"
        return self.expected_error(
            "a statement", (suggest_name(word, _STARTS, never=_DESTRUCTIVE) or known) if word else None
        )

    def _query(self) -> Query:
        first = self.at
        query, text = self.whole_query()
        return Query(query=query, text=text, span=self.span(first))

    # --- INSERT -----------------------------------------------------------------------------------

    def _insert(self) -> Insert:
        first = self.at
        self.expect("INSERT")
        overwrite = self.expect_one_of("INTO", "OVERWRITE") == "OVERWRITE"
        self.accept("TABLE")
        target, target_span = self.object_name("a table")
        if self.key() == "/*+":
            at = self.at
            self.hints()
            raise self.unsupported_error(
                "unsupported-clause",
                "a hint after the target of INSERT",
                at,
                "put the options into the table's WITH (…)",
            )
        if self.sees("PARTITION", "("):
            self.at += 1
            raise self.unsupported_error(
                "unsupported-clause", "INSERT … PARTITION (…)", self.at - 1, "select the partition's value as a column"
            )
        columns = None
        if self.key() == "(" and not self.starts_query():
            columns = self.column_names()
        query, text = self.whole_query()
        return Insert(
            target=target,
            columns=columns,
            query=query,
            text=text,
            overwrite=overwrite,
            target_span=target_span,
            span=self.span(first),
        )

    def _execute(self) -> Query | Insert | StatementSet:
        first = self.at
        self.expect("EXECUTE")
        match self.key():
            case "STATEMENT":
                return self._statement_set(first)
            case "INSERT":
                return replace(self._insert(), span=self.span(first))
            case "SELECT" | "WITH" | "VALUES":
                return replace(self._query(), span=self.span(first))
            case "PLAN":
                self.at += 1
                raise self.unsupported_error("unsupported-statement", "EXECUTE PLAN", first)
            case _:
                raise self.expected_error("`STATEMENT SET`, `INSERT` or a query")

    def _statement_set(self, first: int) -> StatementSet:
        if self.accept("BEGIN"):
            self.expect("STATEMENT", "SET")
            self.expect(";")
        else:
            self.expect("STATEMENT", "SET", "BEGIN")
        inserts: list[Insert] = []
        while True:
            while self.accept(";"):
                pass
            if inserts and self.accept("END"):
                return StatementSet(inserts=tuple(inserts), span=self.span(first))
            if self.key() != "INSERT":
                raise self.expected_error(
                    "`INSERT` or `END`" if inserts else "`INSERT`: a statement set contains only INSERTs"
                )
            inserts.append(self._insert())
            if self.key() not in (";", "END"):
                raise self.expected_error("`;` or the rest of the INSERT")

    # --- options, SHOW, DESCRIBE, EXPLAIN ---------------------------------------------------------

    def _set(self) -> SetOption:
        first = self.at
        self.expect("SET")
        if self.is_at_end or self.key() == ";":
            return SetOption(span=self.span(first))
        at = self.at
        if self.kind() is not TokenKind.STRING:
            raise self.expected_error("an option's name, in single quotes", "write SET 'key' = 'value'")
        key = self.take().text
        key_span = self.span(at)
        self.expect("=")
        value = self.string("the option's value")
        return SetOption(
            key=key, value=value, key_span=key_span, value_span=self.span(self.at - 1), span=self.span(first)
        )

    def _reset(self) -> ResetOption:
        first = self.at
        self.expect("RESET")
        key = None if self.is_at_end or self.key() == ";" else self.string("an option's name")
        return ResetOption(key=key, span=self.span(first))

    def _show(self) -> Statement:
        first = self.at
        self.expect("SHOW")
        if self.accept("CREATE"):
            if self.key() not in ("TABLE", "VIEW"):
                raise self._refuse_show(first)
            of: Literal["TABLE", "VIEW"] = "TABLE" if self.take().text.upper() == "TABLE" else "VIEW"
            name, name_span = self.object_name(f"a {of.lower()}")
            return ShowCreate(kind=of, name=name, name_span=name_span, span=self.span(first))
        user = self.sees("USER", "FUNCTIONS")
        if user or self.key() == "FUNCTIONS":
            self.at += 2 if user else 1
            return ShowFunctions(user=user, **self._show_filter(first))
        if self.accept("COLUMNS"):
            self.expect_one_of("FROM", "IN")
            name, name_span = self.object_name("a table")
            pattern = self._name_pattern()
            return ShowColumns(name=name, pattern=pattern, name_span=name_span, span=self.span(first))
        if self.accept("JOBS"):
            return ShowJobs(span=self.span(first))
        if self.accept("CATALOGS"):
            pattern = self._name_pattern()
            return ShowCatalogs(pattern=pattern, span=self.span(first))
        if self.accept("DATABASES"):
            found = self._show_filter(first, "a catalog")
            return ShowDatabases(
                catalog=found["database"],
                catalog_span=found["database_span"],
                pattern=found["pattern"],
                span=found["span"],
            )
        for kind in _CURRENT:
            if self.accept("CURRENT", kind):
                return ShowCurrent(kind=kind, span=self.span(first))
        if self.key() not in ("TABLES", "VIEWS"):
            raise self._refuse_show(first)
        made = ShowTables if self.take().text.upper() == "TABLES" else ShowViews
        return made(**self._show_filter(first))

    def _show_filter(self, first: int, what: str = "a database") -> _ShowFilter:
        database, database_span = self.object_name(what) if self.one_of("FROM", "IN") else (None, None)
        pattern = self._name_pattern()
        return {"database": database, "database_span": database_span, "pattern": pattern, "span": self.span(first)}

    def _name_pattern(self) -> NamePattern | None:
        if self.key() not in ("NOT", "LIKE", "ILIKE"):
            return None
        negated = self.accept("NOT")
        ignore_case = self.expect_one_of("LIKE", "ILIKE") == "ILIKE"
        return NamePattern(text=self.string("the pattern"), negated=negated, ignore_case=ignore_case)

    def _refuse_show(self, first: int) -> EverfoldError:
        if self.kind() is not TokenKind.WORD:
            return self.expected_error(
                "`TABLES`, `VIEWS`, `FUNCTIONS`, `COLUMNS`, `CATALOGS`, `DATABASES`, `JOBS`, `CREATE TABLE` or"
                " `CREATE VIEW`"
            )
        self.one_of("CURRENT", "FULL", "MATERIALIZED", "USER")
        if self.kind() is TokenKind.WORD:
            self.at += 1
        return self.unsupported_error("unsupported-statement", " ".join(self.keys[first : self.at]), first)

    def _use(self) -> Use:
        first = self.at
        self.expect("USE")
        is_catalog = self.key() == "CATALOG" and self.kind(1) in NAME_TOKENS
        self.at += is_catalog
        name, name_span = self.object_name("a catalog" if is_catalog else "a database")
        return Use(kind="CATALOG" if is_catalog else "DATABASE", name=name, name_span=name_span, span=self.span(first))

    def _stop_job(self) -> StopJob:
        first = self.at
        self.expect("STOP", "JOB")
        job = self.string("the job's ID or name")
        job_span = self.span(self.at - 1)
        savepoint = self.accept("WITH", "SAVEPOINT")
        at = self.at
        drain = self.accept("WITH", "DRAIN")
        return StopJob(
            job=job,
            savepoint=savepoint,
            drain=drain,
            job_span=job_span,
            drain_span=self.span(at) if drain else None,
            span=self.span(first),
        )

    def _describe(self) -> Describe | DescribeJob:
        first = self.at
        self.take()
        if self.key() == "JOB" and self.kind(1) is TokenKind.STRING:
            self.at += 1
            job = self.string("the job's ID or name")
            return DescribeJob(job=job, job_span=self.span(self.at - 1), span=self.span(first))
        if self.key() in ("CATALOG", "DATABASE", "FUNCTION", "JOB", "MODEL") and self.kind(1) in NAME_TOKENS:
            self.at += 1
            raise self.unsupported_error("unsupported-statement", f"DESCRIBE {self.keys[self.at - 1]}", first)
        if self.key() == "EXTENDED" and self.kind(1) in NAME_TOKENS:
            self.at += 1
        name, name_span = self.object_name("a table")
        return Describe(name=name, name_span=name_span, span=self.span(first))

    def _explain(self) -> Explain:
        first = self.at
        self.expect("EXPLAIN")
        details: tuple[str, ...] = ()
        if self.key() in ("PLAN", "AST") and self.key(1) == "FOR":
            self.at += 2
        elif self.key() in _DETAILS:
            details = self.parse_list(lambda: self.expect_one_of(*_DETAILS))
        match self.key():
            case "INSERT":
                statement: JobStatement = self._insert()
            case "STATEMENT" | "BEGIN":
                statement = self._statement_set(self.at)
            case "EXECUTE":
                statement = self._execute()
            case "CREATE":
                statement = self._explained_create(first)
            case "SELECT" | "WITH" | "VALUES" | "(" | "TABLE":
                statement = self._query()
            case _:
                raise self.expected_error("a query, `INSERT`, `CREATE TABLE … AS` or a statement set")
        return Explain(statement=statement, details=details, span=self.span(first))

    def _explained_create(self, first: int) -> CreateTable:
        statement = self.create()
        if isinstance(statement, CreateTable) and statement.as_query is not None:
            return statement
        raise self.unsupported_error(
            "unsupported-statement",
            "EXPLAIN of a CREATE statement without a job",
            first,
            "it accepts a query, INSERT, CREATE TABLE … AS or a statement set",
        )
