"""Queries of Lenses SQL; their expressions are those of Flink SQL."""

from __future__ import annotations

from dataclasses import dataclass

from everfold.sql.syntax.expressions import ColumnPath
from everfold.sql.syntax.node import Expression, Identifier, Node, Query


@dataclass(frozen=True, slots=True)
class Duration(Node):
    """`10m`: a duration as written, and in milliseconds."""

    text: str
    ms: int


@dataclass(frozen=True, slots=True)
class WindowBy(Node):
    """WINDOW BY kind (`TUMBLE`, `HOP`, `SESSION`), GRACE BY.

    `sizes` are, for TUMBLE: the size; HOP: the size and the hop; SESSION: the gap. `grace` is how
    long a window accepts records after its end.
    """

    kind: str
    sizes: tuple[Duration, ...]
    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class Projection(Node):
    """One item of SELECT: an expression or `*`, and the field after AS that receives the value."""

    value: Expression
    target: ColumnPath | None = None


@dataclass(frozen=True, slots=True)
class GroupKey(Node):
    """One item of GROUP BY: an expression and its alias."""

    value: Expression
    alias: Identifier | None = None


@dataclass(frozen=True, slots=True)
class TopicQuery(Query):
    """SELECT of Lenses SQL, over one source.

    `kind` is `STREAM`, `TABLE` or None if neither is written.
    """

    kind: str | None
    items: tuple[Projection, ...]
    source: Identifier
    alias: Identifier | None = None
    eventtime: ColumnPath | None = None
    where: Expression | None = None
    window: WindowBy | None = None
    group: tuple[GroupKey, ...] = ()
    having: Expression | None = None

    @property
    def source_name(self) -> str:
        """The name of the source in expressions: its alias, or else its own name."""
        return (self.alias or self.source).name
