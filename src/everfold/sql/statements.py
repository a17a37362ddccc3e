"""Statements of a script, as data: what the author wrote, nothing resolved yet.

Names are tuples of one to three parts (`catalog`, `database`, `table`). Expressions and queries are trees whose nodes `dialects/flink.py`
lists. Texts are exact slices of the script. Statements are equal when they say the same, wherever they stand: `span` does not compare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from everfold.errors import Span
from everfold.types import DataType

Name: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Something with a place in the script."""

    span: Span = field(compare=False, repr=False)

    @property
    def sql(self) -> str:
        """The exact text of this piece."""
        return self.span.text[self.span.start : self.span.end]


# --- the parts of CREATE TABLE ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDef(_Placed):
    """One entry of WITH (…): raw, `${name}` still in it (`script.resolve_variables` fills it in). `span` is `'key' = 'value'`."""

    key: str
    value: str = field(repr=False)
    key_span: Span = field(compare=False, repr=False)
    value_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalColumn(_Placed):
    """A column that the connector reads or writes. `type` has NOT NULL in it; a PRIMARY KEY's columns are not yet made NOT NULL."""

    name: str
    type: DataType
    comment: str | None = None
    type_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedColumn(_Placed):
    """`name AS expression`: computed when rows are read, never written."""

    name: str
    expression: exp.Expression
    text: str
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataColumn(_Placed):
    """`name type METADATA [FROM 'key'] [VIRTUAL]`; without FROM (`key` None) the column's name is the key."""

    name: str
    type: DataType
    key: str | None = None
    virtual: bool = False
    comment: str | None = None
    type_span: Span = field(compare=False, repr=False)


ColumnDef: TypeAlias = PhysicalColumn | ComputedColumn | MetadataColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkDef(_Placed):
    """`WATERMARK FOR column AS expression`; `column` has more than one part for a field of a ROW."""

    column: Name
    expression: exp.Expression
    text: str
    column_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDef(_Placed):
    """`PRIMARY KEY (a, b) NOT ENFORCED`, of the table or of one column; `name` is the constraint's, if it has one."""

    columns: Name
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeFeature(_Placed):
    """`EXCLUDING WATERMARKS` and the like: what becomes of a feature of the table in LIKE. Both are capitals."""

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
    """`AS query`; `span` is the query's, `text` its exact text. columns: the order of its columns in the table, None: as the query has them."""

    query: exp.Expression
    text: str
    columns: Name | None = None


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOption(_Placed):
    """`SET 'key' = 'value'`; `SET` alone (`key` None) lists the options. The value is raw, `${name}` still in it."""

    key: str | None = None
    value: str | None = field(default=None, repr=False)
    key_span: Span | None = field(default=None, compare=False, repr=False)
    value_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOption(_Placed):
    """`RESET 'key'`; `RESET` alone (`key` None) resets all."""

    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable(_Placed):
    """CREATE TABLE. With `like` or `as_query` the rest of the declaration comes from another table or from a query."""

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
        """The key's columns; empty when there is no key."""
        return self.key.columns if self.key else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(CreateTable):
    """CREATE TABLE of Lenses SQL: it declares a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView(_Placed):
    """CREATE VIEW; `text` is the query's exact text."""

    name: Name
    columns: Name | None = None
    query: exp.Expression
    text: str
    temporary: bool = False
    if_not_exists: bool = False
    comment: str | None = None
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateFunction(_Placed):
    """CREATE FUNCTION. `identifier` is what stands behind AS: of a Python function its module and attribute. Without LANGUAGE it is Java's."""

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
    """INSERT INTO target [(columns)] query; `columns` None means all, in order. `text` is the query's exact text."""

    target: Name
    columns: Name | None = None
    query: exp.Expression
    text: str
    overwrite: bool = False
    target_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSet(_Placed):
    """INSERTs that run as one job."""

    inserts: tuple[Insert, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(_Placed):
    """A bare query; its rows are shown. `text` is its exact text."""

    query: exp.Expression
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(_Placed):
    """DESCRIBE of a table or view."""

    name: Name
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """[NOT] LIKE 'pattern', or ILIKE, which ignores case: `%` is any text, `_` any character, a backslash takes the next one as it is."""

    text: str
    negated: bool = False
    ignore_case: bool = False

    def matches(self, name: str) -> bool:
        """Whether a name is to be shown."""
        parts = re.findall(r"\\.|.", self.text, re.S)
        wild = {"%": ".*", "_": "."}
        found = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
        return bool(re.fullmatch(found, name, re.S | (re.I if self.ignore_case else 0))) != self.negated


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShowNames(_Placed):
    """What lists names: all of them, or those that a pattern has. `database` is that of FROM or IN."""

    pattern: NamePattern | None = None
    database: Name | None = None
    database_span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTables(_ShowNames):
    """SHOW TABLES: views too, as in Flink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowViews(_ShowNames):
    """SHOW VIEWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowFunctions(_ShowNames):
    """SHOW USER FUNCTIONS; without USER the functions of SQL too."""

    user: bool = False


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
    """EXPLAIN [details] statement; details are capitals: `ESTIMATED_COST`, `CHANGELOG_MODE`, `JSON_EXECUTION_PLAN`, `PLAN_ADVICE`."""

    statement: Query | Insert | StatementSet
    details: tuple[str, ...] = ()


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
    | ShowTables
    | ShowViews
    | ShowFunctions
    | ShowColumns
    | ShowCreate
    | Explain
)
