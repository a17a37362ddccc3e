"""The base of plan nodes: facts derived from a node, and checks of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from everfold.errors import Span
from everfold.plan.expressions import Expr
from everfold.types import Schema

N = TypeVar("N", bound="PlanNode")
T = TypeVar("T")


class Fact(Generic[N, T]):
    """A property that is derived from a node and its inputs, and computed once.

    A node may be asked often, and may occur several times in a plan.
    """

    def __init__(self, compute: Callable[[N], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[N], name: str) -> None:
        self.name = name

    def __get__(self, node: N, owner: type[N] | None = None) -> T:
        return node.remember(self.name, self.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """The common base of all nodes: their location in the SQL."""

    span: Span | None = field(default=None, compare=False, repr=False)
    _facts: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def remember(self: N, what: str, compute: Callable[[N], T]) -> T:
        """Return a value computed from the node, computing it on first use."""
        if what not in self._facts:
            self._facts[what] = compute(self)
        found: T = self._facts[what]
        return found

    def remembers(self, what: str) -> bool:
        """Return whether a value has been computed from the node."""
        return what in self._facts


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorNode(PlanNode):
    """The common base of the nodes that an operator may run in a stream.

    operator_id: the name of the operator in the job, under which its state is kept (`plan.naming`);
    empty until it is named.
    state_names: the names in its state that an earlier release chose, by today's names
    (`operators.state_names`).
    """

    operator_id: str = field(default="", compare=False, repr=False)
    state_names: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)


class HasSchema(Protocol):
    """An input of a node."""

    @property
    def schema(self) -> Schema:
        """The columns."""


def check_reads(
    node: PlanNode, below: HasSchema, expressions: Iterable[Expr] = (), columns: Iterable[int] = ()
) -> None:
    """Check that a node reads only columns that its input has."""
    check_positions(node, max((each.least_width for each in expressions), default=0), len(below.schema))
    check_positions(node, max(columns, default=-1) + 1, len(below.schema))


def check_positions(node: PlanNode, least: int, width: int) -> None:
    """Check that a node does not read more columns than there are.

    least: the least number of columns that it can read.
    """
    assert least <= width, f"{type(node).__name__} reads column {least - 1} of an input with {width} columns"


def check_widths(node: PlanNode, inputs: Iterable[HasSchema]) -> None:
    """Check that the inputs of a node have the same number of columns."""
    widths = [len(each.schema) for each in inputs]
    assert len(set(widths)) == 1, f"the inputs of {type(node).__name__} have {widths} columns"
