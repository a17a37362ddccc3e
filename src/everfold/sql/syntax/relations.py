"""Items of FROM, and joins."""

from __future__ import annotations

from dataclasses import dataclass, field

from everfold.sql.syntax.calls import FunctionCall, NamedArgument
from everfold.sql.syntax.expressions import ColumnPath
from everfold.sql.syntax.node import Expression, Identifier, Node, Query


@dataclass(frozen=True, slots=True)
class TableAlias(Node):
    """`AS name (columns)`."""

    name: Identifier
    columns: tuple[Identifier, ...] = ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns; empty if they are not listed."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Relation(Node):
    """An item of FROM."""

    alias: TableAlias | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """One of `/*+ OPTIONS('k' = 'v'), STATE_TTL('t' = '1 d') */`; `name` is in capitals."""

    name: str
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class SystemTime(Node):
    """FOR SYSTEM_TIME AS OF moment."""

    moment: Expression


@dataclass(frozen=True, slots=True)
class Table(Relation):
    """A table or view, by a name of up to three parts."""

    parts: tuple[Identifier, ...]
    hints: tuple[Hint, ...] = ()
    system_time: SystemTime | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts: catalog, database and table, or the last of them."""
        return tuple(part.name for part in self.parts)


@dataclass(frozen=True, slots=True)
class DerivedTable(Relation):
    """[LATERAL] (query)."""

    query: Query
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class Unnest(Relation):
    """UNNEST(collections) [WITH ORDINALITY]."""

    collections: tuple[Expression, ...]
    ordinality: bool = False


@dataclass(frozen=True, slots=True)
class WindowTvf(Relation):
    """TUMBLE, HOP, CUMULATE or SESSION, with named or positional arguments.

    `partition_by` are the keys of PARTITION BY in SESSION. `arguments` are in the order of their
    roles, whatever their order in the script: TUMBLE: SIZE, OFFSET; HOP: SLIDE, SIZE, OFFSET;
    CUMULATE: STEP, SIZE, OFFSET; SESSION: GAP. Only OFFSET may be missing.
    """

    kind: str
    table: Relation
    time_column: ColumnPath
    arguments: tuple[NamedArgument, ...]
    partition_by: tuple[ColumnPath, ...] = ()

    @property
    def by_role(self) -> dict[str, Expression]:
        """The arguments by role (in capitals)."""
        return {each.name.name: each.value for each in self.arguments}


@dataclass(frozen=True, slots=True)
class TableFunction(Relation):
    """[LATERAL] TABLE(f(x))."""

    call: FunctionCall
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class Join(Node):
    """A join with an item of FROM.

    `side` is LEFT, RIGHT or FULL for an outer join; `kind` is INNER, CROSS or `,` (a cross join).
    """

    relation: Relation
    kind: str = "INNER"
    side: str | None = None
    natural: bool = False
    on: Expression | None = None
    using: tuple[Identifier, ...] = ()
