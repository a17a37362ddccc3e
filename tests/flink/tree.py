"""Queries as trees, so that a query that shows a difference can be shrunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

HOLE = "§"
"""Stands for a child in the string of a node."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a query: a string with a hole for each child, or with one hole for a list if there
    is a separator.

    An expression has a type and may be replaced by an expression of that type. An optional node may
    be removed, and so may children of a list while at least `least` of them remain.
    """

    text: str
    children: tuple[Node, ...] = ()
    type: str | None = None
    optional: bool = False
    separator: str | None = None
    least: int = 1

    @property
    def sql(self) -> str:
        """Return the SQL with the children filled in."""
        parts = [child.sql for child in self.children]
        if self.separator is not None:
            parts = [self.separator.join(part for part in parts if part)]
        pieces = self.text.split(HOLE)
        assert len(pieces) == len(parts) + 1, (self.text, parts)
        return "".join(piece + part for piece, part in zip(pieces, [*parts, ""], strict=True))

    def walk(self) -> Iterator[Node]:
        """Yield the node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def smaller(self) -> Iterator[Node]:
        """Yield trees with one part less, large cuts first."""
        if self.optional and self.text:
            yield Node("", optional=True)
        if self.separator is not None and len(self.children) > self.least:
            for at in range(len(self.children)):
                yield replace(self, children=self.children[:at] + self.children[at + 1 :])
        if self.type is not None and self.children:
            yield from (node for node in self.walk() if node is not self and node.type == self.type)
            if (leaf := SIMPLEST.get(self.type)) is not None and leaf != self.sql:
                yield Node(leaf, type=self.type)
        for at, child in enumerate(self.children):
            for made in child.smaller():
                yield replace(self, children=(*self.children[:at], made, *self.children[at + 1 :]))


SIMPLEST = {
    "INT": "1",
    "BIGINT": "CAST(1 AS BIGINT)",
    "DECIMAL": "1.5",
    "DOUBLE": "1e0",
    "STRING": "'a'",
    "BOOLEAN": "TRUE",
    "DATE": "DATE '2020-01-01'",
    "TIME": "TIME '08:00:00'",
    "TIMESTAMP": "TIMESTAMP '2020-01-01 08:00:00'",
}
"""The simplest expression of each type."""


def make_list(text: str, *children: Node, separator: str = ", ", least: int = 1, optional: bool = False) -> Node:
    """Return a node with a list of nodes."""
    return Node(text, children, separator=separator, least=least, optional=optional)
