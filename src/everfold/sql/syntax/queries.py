"""Queries of Flink SQL, and their clauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from everfold.sql.syntax.calls import OrderBy, WindowSpec
from everfold.sql.syntax.expressions import Keyword, Tuple
from everfold.sql.syntax.node import Expression, Identifier, Node, Query
from everfold.sql.syntax.relations import Hint, Join, Relation, TableAlias


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """An item of the SELECT list: `value [AS alias]`, `*` or `t.*`."""

    value: Expression
    alias: Identifier | None = None


@dataclass(frozen=True, slots=True)
class Clause(Node):
    """WHERE, HAVING or QUALIFY with its condition."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class GroupingSets(Expression):
    """GROUPING SETS (…), ROLLUP (…) or CUBE (…).

    The elements of GROUPING SETS are Tuples or GroupingSets.
    """

    kind: Literal["GROUPING SETS", "ROLLUP", "CUBE"]
    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class GroupBy(Node):
    """GROUP BY with its elements in the order written: expressions and GroupingSets."""

    elements: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class NamedWindow(Node):
    """An item of WINDOW: `name AS (…)`."""

    name: Identifier
    window: WindowSpec


@dataclass(frozen=True, slots=True)
class RowCount(Node):
    """LIMIT, FETCH FIRST or OFFSET."""

    rows: int


@dataclass(frozen=True, slots=True)
class CommonTable(Node):
    """An item of WITH: `alias AS (query)`."""

    alias: TableAlias
    query: Query


@dataclass(frozen=True, slots=True)
class FlinkQuery(Query):
    """A query with the clauses that any query may have: WITH, ORDER BY, LIMIT, OFFSET."""

    ctes: tuple[CommonTable, ...] = field(default=(), kw_only=True)
    order: OrderBy | None = field(default=None, kw_only=True)
    limit: RowCount | None = field(default=None, kw_only=True)
    offset: RowCount | None = field(default=None, kw_only=True)

    @property
    def has_own_clauses(self) -> bool:
        """Whether the query has any of these clauses."""
        return bool(self.ctes or self.order or self.limit or self.offset)


@dataclass(frozen=True, slots=True)
class Select(FlinkQuery):
    """SELECT. `TABLE t` is `SELECT * FROM t`. `distinct` is the word, with its position."""

    items: tuple[SelectItem, ...]
    source: Relation | None = None
    joins: tuple[Join, ...] = ()
    hints: tuple[Hint, ...] = ()
    distinct: Keyword | None = None
    where: Clause | None = None
    group: GroupBy | None = None
    having: Clause | None = None
    windows: tuple[NamedWindow, ...] = ()
    qualify: Clause | None = None


@dataclass(frozen=True, slots=True)
class SetOperation(FlinkQuery):
    """UNION, INTERSECT or EXCEPT of two queries; with ALL unless `distinct`."""

    operator: Literal["UNION", "INTERSECT", "EXCEPT"]
    distinct: bool
    left: Query
    right: Query


@dataclass(frozen=True, slots=True)
class Values(FlinkQuery):
    """VALUES (1, 'a'), (2, 'b')."""

    rows: tuple[Tuple, ...]


@dataclass(frozen=True, slots=True)
class NestedQuery(FlinkQuery):
    """A query in parentheses with its own WITH, ORDER BY or LIMIT.

    It is an operand of a set operation, or has an ORDER BY or LIMIT around it. Other parentheses
    around queries are dropped.
    """

    query: Query
