"""Top-N: a query over numbered rows that takes the first of them becomes a `Rank`.

`ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)` with any order at all can be followed in a stream if the number is bounded from above around it:
`WHERE rn <= 10`. Only the first rows have to be kept then. Source: Flink's pages on Top-N, deduplication, Window Top-N and window
deduplication; flink 2.3 through `tests/cases/rank`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.expressions import Call, Expr, InputRef, Literal, conjunction, conjuncts
from everfold.plan.keys import told_apart
from everfold.plan.nodes import (
    AggCall,
    Filter,
    InWindow,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Sort,
    streamed,
    with_children,
)
from everfold.sql.binder.context import Context
from everfold.sql.binder.windows import END, START, unwind


def can_be_ranked(calls: Sequence[AggCall]) -> bool:
    """Whether calls over a window are a number that a condition around it can bound."""
    return [call.function for call in calls] == ["ROW_NUMBER"]


def for_first_rows(refused: SqlError, calls: Sequence[AggCall]) -> SqlError:
    """The error with the way out for who wants the first rows only."""
    if not any(call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK") for call in calls):
        return refused
    way = "bound the number" if can_be_ranked(calls) else "use ROW_NUMBER() alone and bound it"
    found = refused.diagnostics[0]
    return type(refused)(
        replace(found, help=f"{found.help}; or, for the first rows only, {way}: SELECT … FROM (…) WHERE rn <= n")
    )


def check_ranked(plan: Plan, context: Context) -> None:
    """Refuses what was wrong with a window in a stream that has not become a Top-N."""
    for node in streamed(plan):
        if isinstance(node, OverAggregate) and node.refused is not None and can_be_ranked(node.calls):
            context.refuse(node.refused)


def ranked(plan: Filter) -> Plan:
    """A condition over numbered rows, as far as it says which of the first of them are wanted, becomes a Rank."""
    wanted: dict[int, _Numbers] = {}
    rest: list[Expr] = []
    for part in conjuncts(plan.condition):
        bound = _bound(part)
        if bound is None or not _numbers(plan.input, bound[0]):
            rest.append(part)
        else:
            at, numbers = bound
            wanted[at] = wanted.get(at, _Numbers()).both(numbers)
    made = plan.input
    for at, numbers in wanted.items():
        if numbers.last is not None and numbers.last < numbers.first:
            what = "no row is taken: rows are numbered from 1 on"
            raise UnsupportedFeature.of("topn-range", what, plan.span, "write WHERE rn <= n, with n at least 1")
        found = None if numbers.last is None else _with_rank(made, at, numbers.first, numbers.last)
        if found is None:
            return plan
        made = found
    if not wanted or not rest:
        return made if wanted else plan
    return replace(plan, input=made, condition=conjunction(rest))


def first_rows(limit: Limit, ttl_ms: int) -> Rank:
    """LIMIT in a stream: a Top-N over all rows, by their ORDER BY or as they come."""
    below = limit.input
    assert limit.count is not None
    return Rank(
        input=below.input if isinstance(below, Sort) else below,
        partition=(),
        order=below.keys if isinstance(below, Sort) else (),
        first=limit.offset + 1,
        last=limit.offset + limit.count,
        numbered=False,
        ttl_ms=ttl_ms,
        span=limit.span,
    )


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The numbers from one to another, both included; without an end if there is none."""

    first: int = 1
    last: int | None = None

    def both(self, other: _Numbers) -> _Numbers:
        ends = [each for each in (self.last, other.last) if each is not None]
        return _Numbers(max(self.first, other.first), min(ends, default=None))


def _bound(part: Expr) -> tuple[int, _Numbers] | None:
    """What a condition says of the number in a column, if it is a comparison of one with a constant."""
    if not isinstance(part, Call):
        return None
    if part.function == "BETWEEN":
        low, high = (
            _bound(replace(part, function=name, args=(part.args[0], at)))
            for name, at in zip((">=", "<="), part.args[1:], strict=True)
        )
        return None if low is None or high is None else (low[0], low[1].both(high[1]))
    if part.function not in _TURNED or len(part.args) != 2:
        return None
    function, (one, other) = part.function, map(told_apart, part.args)
    if isinstance(one, Literal):
        function, one, other = _TURNED[function], other, one
    if not isinstance(one, InputRef) or not isinstance(other, Literal) or type(other.value) is not int:
        return None
    value = other.value
    match function:
        case "=":
            return one.position, _Numbers(value, value)
        case "<":
            return one.position, _Numbers(last=value - 1)
        case "<=":
            return one.position, _Numbers(last=value)
        case ">":
            return one.position, _Numbers(value + 1)
        case _:
            return one.position, _Numbers(value)


_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons, and what they are with their sides exchanged."""


def _numbers(node: Plan, at: int) -> bool:
    """Whether a column is the number of the row in a window of `node`."""
    return _with_rank(node, at, 1, 1) is not None


def _with_rank(node: Plan, at: int, first: int, last: int) -> Plan | None:
    """The plan with its window a Rank, if column `at` is its number; conditions over single rows may stand between."""
    match node:
        case OverAggregate() if at == len(node.input.schema) and can_be_ranked(node.calls):
            return _rank(node, first, last)
        case Project():
            of = node.expressions[at]
            below = _with_rank(node.input, of.position, first, last) if isinstance(of, InputRef) else None
        case Filter():
            below = _with_rank(node.input, at, first, last)
        case _:
            return None
    return None if below is None else with_children(node, (below,))


def _rank(node: OverAggregate, first: int, last: int) -> Rank:
    return Rank(
        input=node.input,
        partition=node.partition,
        order=node.order,
        first=max(first, 1),
        last=last,
        window=_window(node),
        ttl_ms=node.ttl_ms,
        span=node.span,
    )


def _window(node: OverAggregate) -> InWindow | None:
    """The windows that the partitions lie in: both their start and their end are among the keys."""
    origin = unwind(node.input)
    if origin is None:
        return None
    kinds = {
        origin.kind_of(origin.columns[key.position]): key.position
        for key in node.partition
        if isinstance(key, InputRef)
    }
    if START not in kinds or END not in kinds:
        return None
    return InWindow(of=origin.source.window, end=kinds[END], time=origin.source.time, zone=origin.source.zone)
