"""Typed scalar expressions over the columns of one relation.

An expression specifies what is computed, by Flink's rules and types; `sql/functions` writes it for
each engine. Columns are positions, so a plan does not change when a column is renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar, TypeAlias

from everfold.errors import Span
from everfold.types import BOOLEAN, DataType, Schema
from everfold.udf.function import PythonFunction

LONG_CHAIN = 32
"""Chains of AND or OR with more operands become balanced trees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expr:
    """The common base of all expressions: the type of their value and their location in the SQL."""

    type: DataType
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRef(_Expr):
    """The value of the input column at `position`. `name` is only for display."""

    position: int
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        assert self.position >= 0, f"column {self.position} is before the first one"

    @property
    def least_width(self) -> int:
        """The least number of columns of an input that the expression can read."""
        return self.position + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(_Expr):
    """A constant.

    The Python type of `value` depends on the SQL type: None; bool; int (integers; TIME as
    milliseconds of the day; INTERVAL as milliseconds or months); Decimal; float; str; bytes; date;
    datetime (naive; in UTC for TIMESTAMP_LTZ).
    """

    value: object
    least_width: ClassVar = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(_Expr):
    """A registered function applied to arguments.

    Operators are functions too (`+`, `AND`, `CASE`, `CAST`).
    """

    function: str
    args: tuple[Expr, ...]
    least_width: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        assert self.function, "a call without a function"
        object.__setattr__(self, "least_width", max((arg.least_width for arg in self.args), default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonCall(Call):
    """A user's Python function applied to arguments.

    In a submitted plan it is always a whole expression of a projection (`split_python_calls`).
    """

    of: PythonFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class Retyped(Call):
    """The same value in another type: the type of the state, if the expression's type has changed.

    Its canonical text is that of the value.
    """


Expr: TypeAlias = InputRef | Literal | Call


def retype(expr: Expr, type: DataType) -> Retyped:
    """Return the value of an expression in another type."""
    return Retyped(function="CAST", args=(expr,), type=type.as_nullable(expr.type.nullable), span=expr.span)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield the expression and all expressions below it, outermost first."""
    waiting = [expr]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, Call):
            waiting += reversed(each.args)


def calls_python(expr: Expr) -> bool:
    """Return whether an expression calls a Python function."""
    return any(isinstance(part, PythonCall) for part in walk(expr))


def depth(expr: Expr) -> int:
    """Return the greatest nesting depth of calls."""
    return 1 + max(map(depth, expr.args), default=0) if isinstance(expr, Call) else 0


def transform(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace every part of an expression for which `change` returns another one.

    Parts of a replaced part are not visited.
    """
    changed = change(expr)
    if changed is not None:
        return changed
    if isinstance(expr, Call):
        args = tuple(transform(arg, change) for arg in expr.args)
        is_changed = any(new is not old for new, old in zip(args, expr.args, strict=True))
        return replace(expr, args=args) if is_changed else expr
    return expr


def column_references(schema: Schema) -> tuple[InputRef, ...]:
    """Return references to all columns of a schema."""
    return tuple(InputRef(type=of.type, position=at, name=of.name) for at, of in enumerate(schema))


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """Yield the conditions joined by AND, from left to right.

    A chain may be as long as a user's IN list, so this does not recurse.
    """
    waiting = [condition]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Call) and each.function == "AND":
            waiting += reversed(each.args)
        else:
            yield each


def conjunction(conditions: Sequence[Expr]) -> Expr:
    """Join one or more conditions by AND."""
    return join_balanced(conditions, lambda one, other: Call(type=BOOLEAN, function="AND", args=(one, other)))


def join_balanced(parts: Sequence[Expr], join: Callable[[Expr, Expr], Expr]) -> Expr:
    """Join one or more parts from left to right, many of them as a tree of minimal height."""
    if len(parts) <= LONG_CHAIN:
        return reduce(join, parts)
    half = len(parts) // 2
    return join(join_balanced(parts[:half], join), join_balanced(parts[half:], join))


def split_shift(expr: Expr) -> tuple[InputRef, Literal | None] | None:
    """Return the column and the constant interval after it, None for no interval.

    None if the expression is neither a column nor a constant time before or after it.
    """
    match expr:
        case InputRef():
            return expr, None
        case Call(function="SHIFT", args=(InputRef() as column, Literal() as by)):
            return column, by
    return None


def inputs_of(expr: Expr) -> frozenset[int]:
    """Return the positions of the input columns that the expression reads."""
    return frozenset(part.position for part in walk(expr) if isinstance(part, InputRef))


def substitute(expr: Expr, columns: tuple[Expr, ...]) -> Expr:
    """Replace column references by the expressions of the projection that computes the columns.

    columns: the expression of each column of the projection.
    """
    return transform(expr, lambda part: columns[part.position] if isinstance(part, InputRef) else None)


def move_references(expr: Expr, positions: Mapping[int, int]) -> Expr:
    """Return the expression over an input that has the columns it reads at other positions.

    positions: the new position of each column that the expression reads.
    """

    def moved(part: Expr) -> Expr | None:
        if not isinstance(part, InputRef):
            return None
        at = positions[part.position]
        return part if at == part.position else replace(part, position=at)

    return transform(expr, moved)
