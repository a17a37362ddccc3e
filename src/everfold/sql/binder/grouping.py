"""GROUPING SETS, ROLLUP and CUBE: the keys of each set, and one copy of every row per set.

Each row is unnested by the number of the set, and keys that a set leaves out are NULL in its copy.
The number is an additional key, so that a key that was left out differs from one that is NULL.
Source: the seed's tables of equivalences; flink 2.3 through `tests/cases/group` and
`tests/cases/window`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from everfold.errors import Diagnostic, SqlError
from everfold.limits import MAX_SETS, too_complex_error
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.nodes import Plan, Unnest
from everfold.sql import syntax
from everfold.sql.functions import build
from everfold.types import BIGINT, INT, Field

GROUPING = "GROUPING"
"""The function of a bound `GROUPING(…)` or `GROUPING_ID(…)` until the set of a row is known."""
GROUPING_TYPE = BIGINT.as_nullable(False)
SET_TYPE = INT.as_nullable(False)

Set = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys of a GROUP BY in the order written, and its sets as positions of keys.

    A plain GROUP BY has one set of all keys.
    """

    keys: tuple[Expr, ...]
    sets: tuple[Set, ...]

    @property
    def has_several_sets(self) -> bool:
        """Whether the grouping set of a row must be known."""
        return self.sets != (tuple(range(len(self.keys))),)


def bind_grouping(elements: Iterable[syntax.Expression], bind: Callable[[syntax.Expression], Expr]) -> Grouping:
    """Combine the elements of a GROUP BY: each set of one with each set of the others."""
    elements = tuple(elements)
    several = prod(map(_count_sets, elements))
    if several > MAX_SETS:
        raise too_complex_error(
            "GROUP BY has more sets of keys", MAX_SETS, None, "list those that are needed in GROUPING SETS"
        )
    parts = [_sets(each, bind) for each in elements]
    chosen = [tuple(key for part in each for key in part) for each in product(*parts)]
    keys = tuple(dict.fromkeys(key for part in parts for each in part for key in each))
    positions = {key: at for at, key in enumerate(keys)}
    sets = tuple(tuple(sorted({positions[key] for key in each})) for each in chosen)
    return Grouping(keys, sets)


def _count_sets(element: syntax.Expression) -> int:
    """Return how many sets an element stands for."""
    match element:
        case syntax.GroupingSets(kind="GROUPING SETS"):
            return sum(map(_count_sets, element.elements))
        case syntax.GroupingSets(kind="ROLLUP"):
            return len(element.elements) + 1
        case syntax.GroupingSets():
            return int(2 ** min(len(element.elements), 64))
        case _:
            return 1


def _sets(element: syntax.Expression, bind: Callable[[syntax.Expression], Expr]) -> list[tuple[Expr, ...]]:
    if not isinstance(element, syntax.GroupingSets):
        return [_composite(element, bind)]
    if element.kind == "GROUPING SETS":
        return [found for each in element.elements for found in _sets(each, bind)]
    items = [_composite(each, bind) for each in element.elements]
    counts = range(len(items), -1, -1)
    if element.kind == "ROLLUP":
        return [_concatenate(items[:count]) for count in counts]
    return [_concatenate(some) for count in counts for some in combinations(items, count)]


def _composite(element: syntax.Expression, bind: Callable[[syntax.Expression], Expr]) -> tuple[Expr, ...]:
    """Return the keys of one element; several keys in parentheses form one element."""
    return tuple(map(bind, element.items)) if isinstance(element, syntax.Tuple) else (bind(element),)


def _concatenate(items: Iterable[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    return tuple(key for item in items for key in item)


def expand_grouping_sets(plan: Plan, grouping: Grouping) -> tuple[Plan, tuple[Expr, ...]]:
    """Return the rows once per set, and the keys over them, with the number of the set last."""
    numbers = build("ARRAY", tuple(_number(at) for at in range(len(grouping.sets))))
    copied = Unnest(input=plan, collection=numbers, fields=(Field(name="$set", type=SET_TYPE),))
    chosen = InputRef(type=SET_TYPE, position=len(plan.schema), name="$set")
    keys = []
    for at, key in enumerate(grouping.keys):
        holding = [number for number, each in enumerate(grouping.sets) if at in each]
        if len(holding) == len(grouping.sets):
            keys.append(key)
            continue
        condition = build("IN", (chosen, *map(_number, holding)))
        kept = key.type.as_nullable()
        keys.append(Call(type=kept, function="CASE", args=(condition, key, Literal(type=kept, value=None))))
    return copied, (*keys, chosen)


def _number(value: int) -> Expr:
    return Literal(type=SET_TYPE, value=value)


def bind_grouping_value(call: Call, grouping: Grouping, chosen: Expr | None) -> Expr:
    """Return the value of `GROUPING(…)` for the set with the number `chosen`.

    It has one bit per argument, the first one highest, which is 1 if the set leaves the argument
    out. Raises SqlError `not-in-group-by` for an argument that is not a key.
    """
    for arg in call.args:
        if arg not in grouping.keys:
            what = f"`{arg.name}`" if isinstance(arg, InputRef) else "an argument of GROUPING"
            raise SqlError(Diagnostic("not-in-group-by", f"{what} is not in GROUP BY", arg.span or call.span))
    keys = [grouping.keys.index(arg) for arg in call.args]
    values = [_bits(keys, each) for each in grouping.sets]
    if chosen is None or len(set(values)) == 1:
        return Literal(type=GROUPING_TYPE, value=values[0], span=call.span)
    args: list[Expr] = []
    for number, value in enumerate(values[:-1]):
        args += [build("=", (chosen, _number(number))), Literal(type=GROUPING_TYPE, value=value)]
    return Call(
        type=GROUPING_TYPE,
        function="CASE",
        args=(*args, Literal(type=GROUPING_TYPE, value=values[-1])),
        span=call.span,
    )


def _bits(keys: Sequence[int], chosen: Set) -> int:
    value = 0
    for key in keys:
        value = value * 2 + (key not in chosen)
    return value
