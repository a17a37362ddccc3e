"""Scalar expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from everfold.sql.syntax.node import Expression, Identifier, Node, Query
from everfold.types import DataType

# --- names ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnPath(Expression):
    """A dotted name: `a`, `t.a` or `a.b.c`.

    The binder decides which part is a table, a column or a field of a ROW.
    """

    parts: tuple[Identifier, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts, at least one."""
        return tuple(part.name for part in self.parts)


@dataclass(frozen=True, slots=True)
class FieldAccess(Expression):
    """A field of a ROW that is not a plain path: `f(x).city`, `rows[1].city`."""

    value: Expression
    field: Identifier


def implicit_name(node: Expression) -> str | None:
    """Return the name of a column without an alias: the last name of a path, if it is one."""
    match node:
        case ColumnPath(parts=(*_, last)) | FieldAccess(field=last):
            return last.name
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """`*`, in the SELECT list and in COUNT."""


@dataclass(frozen=True, slots=True)
class QualifiedStar(Expression):
    """`t.*`: every column of one relation, or every field of a ROW."""

    parts: tuple[Identifier, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names before the star."""
        return tuple(part.name for part in self.parts)


@dataclass(frozen=True, slots=True)
class Keyword(Expression):
    """A word of the grammar, in capitals and singular: the unit in `EXTRACT(HOUR FROM ts)`."""

    word: str


# --- literals -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StringLiteral(Expression):
    """`'it''s'`, `U&'\\00e9'`, `E'\\n'`: decoded."""

    value: str


@dataclass(frozen=True, slots=True)
class NumberLiteral(Expression):
    """A number in canonical form.

    With an E it is a DOUBLE, else with a point a DECIMAL, else an integer.
    """

    text: str


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Expression):
    """TRUE or FALSE."""

    value: bool


@dataclass(frozen=True, slots=True)
class NullLiteral(Expression):
    """NULL."""


@dataclass(frozen=True, slots=True)
class HexLiteral(Expression):
    """`x'0AFF'`: pairs of digits in capitals."""

    digits: str


@dataclass(frozen=True, slots=True)
class TemporalLiteral(Expression):
    """DATE '…', TIME '…' or TIMESTAMP '…', validated.

    `precision` is the number of digits of the fraction of a second, as in the literal's Flink type.
    """

    kind: str
    text: str
    precision: int = 0


@dataclass(frozen=True, slots=True)
class IntervalLiteral(Expression):
    """INTERVAL 'text' unit [TO last].

    Units are singular and in capitals; `text` includes a sign before the quote. `interval_value`
    computes the value.
    """

    text: str
    unit: str
    last: str | None = None


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BinaryOperation(Expression):
    """An operator of `dialects.operators.POWERS` between two operands.

    The operands of OVERLAPS are Tuples, or calls of ROW or PERIOD.
    """

    operator: str
    left: Expression
    right: Expression


def flatten_chain(node: Expression, operator: str) -> list[Expression]:
    """Return the operands of a chain of AND or OR, from left to right; else the node itself."""
    found: list[Expression] = []
    stack = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, BinaryOperation) and each.operator == operator:
            stack += [each.right, each.left]
        else:
            found.append(each)
    return found


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    """`-x`, also of a number. `+x` is `x`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """NOT x. `x NOT IN (1)` is `NOT x IN (1)`; likewise for IS, LIKE and BETWEEN."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Is(Expression):
    """x IS NULL, TRUE, FALSE or UNKNOWN."""

    operand: Expression
    test: str


@dataclass(frozen=True, slots=True)
class Between(Expression):
    """x BETWEEN [SYMMETRIC] low AND high."""

    operand: Expression
    low: Expression
    high: Expression
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """x LIKE pattern [ESCAPE escape], or SIMILAR TO."""

    operator: Literal["LIKE", "SIMILAR TO"]
    operand: Expression
    pattern: Expression
    escape: Expression | None = None


@dataclass(frozen=True, slots=True)
class In(Expression):
    """x IN (1, 2). `= ANY` and `= SOME` are IN, `<> ALL` is NOT IN."""

    operand: Expression
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class InQuery(Expression):
    """x IN (SELECT …)."""

    operand: Expression
    subquery: Subquery


@dataclass(frozen=True, slots=True)
class QuantifiedComparison(Expression):
    """`x > ANY (SELECT …)` or ALL. With a list, it becomes comparisons joined by OR or AND."""

    operator: str
    operand: Expression
    quantifier: Literal["ANY", "ALL"]
    subquery: Subquery


# --- composites -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """`(SELECT …)` as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class Exists(Expression):
    """EXISTS (SELECT …)."""

    query: Query


@dataclass(frozen=True, slots=True)
class Tuple(Expression):
    """`(a, b)`: a row, or the keys of a grouping set."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class When(Node):
    """WHEN condition THEN result."""

    condition: Expression
    result: Expression


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE [operand] WHEN … ELSE default END."""

    operand: Expression | None
    branches: tuple[When, ...]
    default: Expression | None = None


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """CAST(operand AS type), or TRY_CAST if `safe`: a value that cannot be cast becomes NULL."""

    operand: Expression
    type: DataType
    safe: bool = False
