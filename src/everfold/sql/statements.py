"""Statements of a script as data: what the author wrote, with nothing resolved.

Names are tuples of one to three parts (`catalog`, `database`, `table`). Expressions and queries are
trees of `syntax`. `text` fields are exact slices of the script.
Statements with the same meaning are equal wherever they are: `span` does not compare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from everfold.errors import Span
from everfold.sql import syntax
from everfold.types import DataType

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A part of a script, with its location."""

    span: Span = field(compare=False, repr=False)

    @property
    def sql(self) -> str:
        """The exact SQL text of this part."""
        return self.span.text[self.span.start : self.span.end]


# --- the parts of CREATE TABLE --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDef(_Placed):
    """One entry of WITH (…). `span` covers `'key' = 'value'`.

    The value is raw: it still contains `${name}`, which `script.resolve_variables` substitutes.
    """

    key: str
    value: str = field(repr=False)
    key_span: Span = field(compare=False, repr=False)
    value_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalColumn(_Placed):
    """A column that the connector reads or writes.

    `type` includes NOT NULL; columns of a PRIMARY KEY are not yet marked NOT NULL.
    """

    name: str
    type: DataType
    comment: str | None = None
    type_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedColumn(_Placed):
    """`name AS expression`: computed when rows are read, never written."""

    name: str
    expression: syntax.Expression
    text: str
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataColumn(_Placed):
    """`name type METADATA [FROM 'key'] [VIRTUAL]`.

    Without FROM (`key` is None) the column name is the key.
    """

    name: str
    type: DataType
    key: str | None = None
    virtual: bool = False
    comment: str | None = None
    type_span: Span = field(compare=False, repr=False)


ColumnDef: TypeAlias = PhysicalColumn | ComputedColumn | MetadataColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkDef(_Placed):
    """`WATERMARK FOR column AS expression`; `column` has several parts for a field of a ROW."""

    column: Name
    expression: syntax.Expression
    text: str
    column_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDef(_Placed):
    """`PRIMARY KEY (a, b) NOT ENFORCED`, of the table or of one column.

    `name` is that of the constraint, if it has one.
    """

    columns: Name
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeFeature(_Placed):
    """`EXCLUDING WATERMARKS` and the like: how LIKE treats one feature of the table.

    Both fields are in capitals.
    """

    strategy: Literal["INCLUDING", "EXCLUDING", "OVERWRITING"]
    feature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Like(_Placed):
    """`LIKE source (features)`."""

    source: Name
    features: tuple[LikeFeature, ...] = ()
    source_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsQuery(_Placed):
    """`AS query`; `span` is that of the query, `text` its exact SQL.

    `columns` is the column order of the table; None: as in the query.
    """

    query: syntax.Query
    text: str
    columns: Name | None = None


# --- statements -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption(_Placed):
    """`SET 'key' = 'value'`; `SET` alone (`key` is None) lists the options.

    The value is raw: it still contains `${name}`.
    """

    key: str | None = None
    value: str | None = field(default=None, repr=False)
    key_span: Span | None = field(default=None, compare=False, repr=False)
    value_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOption(_Placed):
    """`RESET 'key'`; `RESET` alone (`key` is None) resets all options."""

    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(_Placed):
    """CREATE TABLE.

    With `like` or `as_query`, the rest of the declaration comes from another table or from a query.
    """

    name: Name
    columns: tuple[ColumnDef, ...]
    like: Like | None = None
    as_query: AsQuery | None = None
    watermark: WatermarkDef | None = None
    key: KeyDef | None = None
    options: tuple[OptionDef, ...] = ()
    partitioned_by: Name = ()
    temporary: bool = False
    if_not_exists: bool = False
    comment: str | None = None
    name_span: Span = field(compare=False, repr=False)

    @property
    def primary_key(self) -> Name:
        """The columns of the primary key; empty without a key."""
        return self.key.columns if self.key else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(CreateTable):
    """CREATE TABLE of Lenses SQL, which declares a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(_Placed):
    """CREATE VIEW; `text` is the exact SQL of the query."""

    name: Name
    columns: Name | None = None
    query: syntax.Query
    text: str
    temporary: bool = False
    if_not_exists: bool = False
    comment: str | None = None
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(_Placed):
    """CREATE FUNCTION.

    `identifier` is the string after AS; for Python, module and attribute. Without LANGUAGE the
    language is Java.
    """

    name: Name
    identifier: str
    language: Literal["JAVA", "SCALA", "PYTHON"] = "JAVA"
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False
    name_span: Span = field(compare=False, repr=False)
    identifier_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFunction(_Placed):
    """DROP FUNCTION."""

    name: Name
    temporary: bool = False
    system: bool = False
    if_exists: bool = False
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable(_Placed):
    """DROP TABLE."""

    name: Name
    temporary: bool = False
    if_exists: bool = False
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView(_Placed):
    """DROP VIEW."""

    name: Name
    temporary: bool = False
    if_exists: bool = False
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert(_Placed):
    """INSERT INTO target [(columns)] query.

    If `columns` is None, all columns in order. `text` is the exact SQL of the query.
    """

    target: Name
    columns: Name | None = None
    query: syntax.Query
    text: str
    overwrite: bool = False
    target_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSet(_Placed):
    """INSERT statements that run as one job."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(_Placed):
    """A bare query, whose rows are shown. `text` is its exact SQL."""

    query: syntax.Query
    text: str


JobStatement: TypeAlias = Query | Insert | StatementSet | CreateTable
"""A statement that is work for an engine; a CREATE TABLE has `as_query`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(_Placed):
    """DESCRIBE of a table or view."""

    name: Name
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """[NOT] LIKE 'pattern', or ILIKE, which ignores case.

    `%` matches any string, `_` any character; a backslash escapes the next character.
    """

    text: str
    negated: bool = False
    ignore_case: bool = False

    def matches(self, name: str) -> bool:
        """Return whether a name matches the pattern."""
        parts = re.findall(r"\\.|.", self.text, re.S)
        wild = {"%": ".*", "_": "."}
        found = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
        return bool(re.fullmatch(found, name, re.S | (re.I if self.ignore_case else 0))) != self.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShowNames(_Placed):
    """A statement that lists all names, or those that match a pattern.

    `database` is that of FROM or IN.
    """

    pattern: NamePattern | None = None
    database: Name | None = None
    database_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables(_ShowNames):
    """SHOW TABLES. Includes views, as in Flink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowViews(_ShowNames):
    """SHOW VIEWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFunctions(_ShowNames):
    """SHOW USER FUNCTIONS, or SHOW FUNCTIONS, which includes built-in functions."""

    user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCatalogs(_Placed):
    """SHOW CATALOGS."""

    pattern: NamePattern | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowDatabases(_Placed):
    """SHOW DATABASES; `catalog` is that of FROM or IN."""

    pattern: NamePattern | None = None
    catalog: Name | None = None
    catalog_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCurrent(_Placed):
    """SHOW CURRENT CATALOG, SHOW CURRENT DATABASE."""

    kind: Literal["CATALOG", "DATABASE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use(_Placed):
    """USE CATALOG name, or USE for a database."""

    kind: Literal["CATALOG", "DATABASE"]
    name: Name
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowColumns(_Placed):
    """SHOW COLUMNS of a table or view."""

    name: Name
    pattern: NamePattern | None = None
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(_Placed):
    """SHOW CREATE TABLE, SHOW CREATE VIEW."""

    kind: Literal["TABLE", "VIEW"]
    name: Name
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(_Placed):
    """EXPLAIN [details] statement.

    Details are in capitals: `ESTIMATED_COST`, `CHANGELOG_MODE`, `JSON_EXECUTION_PLAN`,
    `PLAN_ADVICE`.
    """

    statement: JobStatement
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs(_Placed):
    """SHOW JOBS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeJob(_Placed):
    """DESCRIBE JOB 'job'; the job is an ID or a name."""

    job: str
    job_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob(_Placed):
    """STOP JOB 'job' [WITH SAVEPOINT] [WITH DRAIN]; the job is an ID or a name."""

    job: str
    savepoint: bool = False
    drain: bool = False
    job_span: Span = field(compare=False, repr=False)
    drain_span: Span | None = field(default=None, compare=False, repr=False)


Statement: TypeAlias = (
    SetOption
    | ResetOption
    | CreateTable
    | CreateView
    | CreateFunction
    | DropTable
    | DropView
    | DropFunction
    | Insert
    | StatementSet
    | Query
    | Describe
    | ShowCatalogs
    | ShowDatabases
    | ShowCurrent
    | Use
    | ShowTables
    | ShowViews
    | ShowFunctions
    | ShowColumns
    | ShowCreate
    | Explain
    | ShowJobs
    | DescribeJob
    | StopJob
)
