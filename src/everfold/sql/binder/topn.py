"""Top-N: a query that takes the first of its numbered rows becomes a `Rank`.

A stream can follow `ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)` in any order if an outer query
bounds the number from above: `WHERE rn <= 10`. Only the first rows must be kept then. Source:
Flink's pages on Top-N, deduplication, Window Top-N and window deduplication; flink 2.3 through
`tests/cases/rank`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from everfold.errors import SqlError, UnsupportedFeature
from everfold.plan.expressions import Call, Expr, InputRef, Literal, conjunction, conjuncts
from everfold.plan.keys import strip_injective_casts
from everfold.plan.nodes import AggCall, Filter, InWindow, Limit, OverAggregate, Plan, Project, Rank, Sort
from everfold.plan.parts import with_children
from everfold.plan.walk import walk_streamed
from everfold.sql.binder.context import Context
from everfold.sql.binder.windows import END, START, extract_window


def is_row_number(calls: Sequence[AggCall]) -> bool:
    """Return whether the calls over a window are one row number, which a condition can bound."""
    return [call.function for call in calls] == ["ROW_NUMBER"]


def add_top_n_help(refused: SqlError, calls: Sequence[AggCall]) -> SqlError:
    """Return the error with additional help for queries that need only the first rows."""
    if not any(call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK") for call in calls):
        return refused
    how = "bound the row number" if is_row_number(calls) else "use only ROW_NUMBER() and bound it"
    found = refused.diagnostics[0]
    return type(refused)(
        replace(found, help=f"{found.help}; or, for the first rows only, {how}: SELECT … FROM (…) WHERE rn <= n")
    )


def check_top_n(plan: Plan, context: Context) -> None:
    """Raise the error of a window in a stream that has not become a Top-N."""
    for node in walk_streamed(plan):
        if isinstance(node, OverAggregate) and node.stream_error is not None and is_row_number(node.calls):
            context.reject(node.stream_error)


def rewrite_to_rank(plan: Filter) -> Plan:
    """Rewrite a filter over row numbers to a Rank if it selects the first rows."""
    wanted: dict[int, _Numbers] = {}
    rest: list[Expr] = []
    for part in conjuncts(plan.condition):
        bound = _number_range(part)
        if bound is None or not _is_row_number(plan.input, bound[0]):
            rest.append(part)
        else:
            at, numbers = bound
            wanted[at] = wanted.get(at, _Numbers()).intersect(numbers)
    below = plan.input
    for at, numbers in wanted.items():
        if numbers.last is not None and numbers.last < numbers.first:
            what = "no row is selected: row numbers start at 1"
            raise UnsupportedFeature.of("topn-range", what, plan.span, "write WHERE rn <= n, with n at least 1")
        found = None if numbers.last is None else _with_rank(below, at, numbers.first, numbers.last)
        if found is None:
            return plan
        below = found
    if not wanted or not rest:
        return below if wanted else plan
    return replace(plan, input=below, condition=conjunction(rest))


def limit_to_rank(limit: Limit, ttl_ms: int) -> Rank:
    """Return LIMIT in a stream as a Top-N over all rows, by ORDER BY or in order of arrival."""
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
    """A range of row numbers, both ends included; `last` is None if there is no upper bound."""

    first: int = 1
    last: int | None = None

    def intersect(self, other: _Numbers) -> _Numbers:
        ends = [each for each in (self.last, other.last) if each is not None]
        return _Numbers(max(self.first, other.first), min(ends, default=None))


def _number_range(part: Expr) -> tuple[int, _Numbers] | None:
    """Return the column and the numbers that a comparison with a constant selects.

    None for any other condition.
    """
    if not isinstance(part, Call):
        return None
    if part.function == "BETWEEN":
        low, high = (
            _number_range(replace(part, function=name, args=(part.args[0], at)))
            for name, at in zip((">=", "<="), part.args[1:], strict=True)
        )
        return None if low is None or high is None else (low[0], low[1].intersect(high[1]))
    if part.function not in _SWAPPED or len(part.args) != 2:
        return None
    function, (one, other) = part.function, map(strip_injective_casts, part.args)
    if isinstance(one, Literal):
        function, one, other = _SWAPPED[function], other, one
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


_SWAPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons, and their equivalents with the operands swapped."""


def _is_row_number(node: Plan, at: int) -> bool:
    """Return whether a column is the row number of a window in `node`."""
    return _with_rank(node, at, 1, 1) is not None


def _with_rank(node: Plan, at: int, first: int, last: int) -> Plan | None:
    """Return the plan with its window replaced by a Rank, if column `at` is its row number.

    Filters and projections may be in between.
    """
    match node:
        case OverAggregate() if at == len(node.input.schema) and is_row_number(node.calls):
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
    """Return the window of the partitions, if the partition keys include its start and its end."""
    origin = extract_window(node.input)
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
