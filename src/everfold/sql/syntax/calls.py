"""Function calls, and the windows of OVER.

A call with special syntax is a `FunctionCall` too:

| SQL | name and arguments |
| --- | --- |
| `EXTRACT(unit FROM x)` | EXTRACT, (Keyword unit, x) |
| `FLOOR(x TO unit)`, `CEIL(x TO unit)` | FLOOR, (x, Keyword unit); without TO only (x) |
| `TIMESTAMPADD(unit, n, x)`, `TIMESTAMPDIFF(unit, a, b)` | (Keyword unit, n, x); (Keyword unit, a, b) |
| `TRIM([BOTH] ['c'] FROM x)`, `TRIM(x)` | TRIM, (Keyword BOTH, LEADING or TRAILING; the characters, `' '` by default; x) |
| `SUBSTRING(x FROM a [FOR b])` | SUBSTRING, (x, a[, b]), the same as with commas |
| `POSITION(a IN b)` | POSITION, (a, b) |
| `OVERLAY(x PLACING y FROM a [FOR b])` | OVERLAY, (x, y, a[, b]) |
| `CURRENT_TIMESTAMP`, `CURRENT_DATE`, `CURRENT_TIME`, `LOCALTIME`, `LOCALTIMESTAMP` | that name, (), special |
| `ROW(a, b)`, `ARRAY[a, b]`, `MAP[k, v]`, `x[i]` | ROW (a, b); ARRAY (a, b); MAP (k, v, …); ITEM (x, i); all special |
| `JSON_VALUE(j, p [RETURNING t] [NULL, ERROR, DEFAULT d ON EMPTY] […ON ERROR])` | JSON_VALUE (j, p); options RETURNING (`type`), ON EMPTY, ON ERROR (`value` NULL, ERROR or DEFAULT with `default`) |
| `JSON_QUERY(j, p [RETURNING t] [… WRAPPER] [… ON EMPTY] [… ON ERROR])` | options as above (`value` also EMPTY ARRAY, EMPTY OBJECT) and WRAPPER (WITHOUT, CONDITIONAL, UNCONDITIONAL) |
| `JSON_EXISTS(j, p [TRUE, FALSE, UNKNOWN, ERROR ON ERROR])` | option ON ERROR |
| `JSON_OBJECT([KEY] k VALUE v, … [NULL, ABSENT ON NULL])`, `JSON_OBJECTAGG` | (k, v, …), option ON NULL |
| `JSON_ARRAY(a, … [… ON NULL])`, `JSON_ARRAYAGG` | (a, …), option ON NULL |
| `x IS [NOT] JSON [VALUE, SCALAR, ARRAY, OBJECT]` | IS_JSON (x, Keyword kind), special; NOT around |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from everfold.sql.syntax.node import Expression, Identifier, Node
from everfold.types import DataType


@dataclass(frozen=True, slots=True)
class SortKey(Node):
    """A key of ORDER BY. `nulls_first` is None if the place of NULLs is unspecified."""

    value: Expression
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class OrderBy(Node):
    """ORDER BY."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class CallOption(Node):
    """A clause inside a call's parentheses, such as `NULL ON EMPTY`.

    `name` is that of the clause (`ON EMPTY`), `value` its word (`NULL`, `ERROR`, …), `type` the
    type that it names, `default` the expression after DEFAULT; each is set only if the clause has
    one.
    """

    name: str
    value: str | None = None
    type: DataType | None = None
    default: Expression | None = None


@dataclass(frozen=True, slots=True)
class NamedArgument(Expression):
    """`name => value`."""

    name: Identifier
    value: Expression


@dataclass(frozen=True, slots=True)
class FunctionCall(Expression):
    """Any function call; the registry of functions defines its meaning.

    `name` is in capitals, `original_name` as written. `special`: the call is not written as
    NAME(arguments), like `x[1]`, `ARRAY[1]`, `CURRENT_DATE`. `order` is that of WITHIN GROUP.
    `nulls` is IGNORE or RESPECT if IGNORE NULLS or RESPECT NULLS follows.
    """

    name: str
    arguments: tuple[Expression, ...] = ()
    special: bool = False
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    filter: Expression | None = None
    nulls: str | None = None
    options: tuple[CallOption, ...] = ()
    original_name: str = field(default="", compare=False, kw_only=True)

    def option(self, name: str) -> CallOption | None:
        """Return a clause inside the parentheses, if the call has it."""
        return next((each for each in self.options if each.name == name), None)


@dataclass(frozen=True, slots=True)
class FrameBound(Node):
    """A bound of a frame: PRECEDING or FOLLOWING by a distance, or UNBOUNDED without one.

    CURRENT ROW has neither.
    """

    side: str | None = None
    distance: Expression | None = None


@dataclass(frozen=True, slots=True)
class Frame(Node):
    """ROWS or RANGE BETWEEN start AND end. Without BETWEEN, the end is CURRENT ROW."""

    unit: Literal["ROWS", "RANGE"]
    start: FrameBound
    end: FrameBound


@dataclass(frozen=True, slots=True)
class WindowSpec(Node):
    """A window of OVER: `(PARTITION BY a ORDER BY b ROWS …)`.

    `base` is the named window that it refers to; `OVER w` is `OVER (w)`.
    """

    base: Identifier | None = None
    partition_by: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Over(Expression):
    """A call over a window: `SUM(a) OVER (ORDER BY ts)`."""

    call: FunctionCall
    window: WindowSpec
