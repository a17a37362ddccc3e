"""Nodes of the syntax tree, and how to walk and rewrite them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import is_not
from typing import TypeVar

from everfold.errors import Span

N = TypeVar("N", bound="Node")


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a script. `span` is its location; None for a node that a rewrite created.

    Other fields are nodes, tuples of nodes, or values that contain no nodes and no tuples.
    """

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """A node that may stand where a value is expected."""


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A query of any dialect."""


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """One name, without its backticks."""

    name: str


_FIELDS: dict[type[Node], tuple[str, ...]] = {}
"""The fields of each class that may contain nodes."""


def _fields(kind: type[Node]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(each.name for each in fields(kind) if each.name != "span")
    return _FIELDS[kind]


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below a node, in the order of its fields."""
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from value


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, each before those below it."""
    stack = [node]
    while stack:
        each = stack.pop()
        yield each
        stack += reversed([*children(each)])


def find_all(node: Node, kind: type[N]) -> Iterator[N]:
    """Yield the nodes of a class, from a node downwards."""
    return (each for each in walk(node) if isinstance(each, kind))


def map_children(node: N, change: Callable[[Node], Node]) -> N:
    """Return a node with the result of a function for each of its children."""
    changed: dict[str, object] = {}
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            if (new := change(value)) is not value:
                changed[name] = new
        elif isinstance(value, tuple):
            news = tuple(map(change, value))
            if any(map(is_not, news, value)):
                changed[name] = news
    return replace(node, **changed) if changed else node  # type: ignore[arg-type]


def transform(node: Node, change: Callable[[Node], Node | None]) -> Node:
    """Return a tree with nodes replaced, from the top downwards.

    `change` returns what replaces a node, which is not searched again; None to search below it.
    """
    changed = change(node)
    return map_children(node, partial(transform, change=change)) if changed is None else changed
