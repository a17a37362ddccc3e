"""All aggregate functions in all windows: rows in random order and batches, inserts and
changes, compared with plain Python row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.aggregate_model import Change, compute_value, distinct_survivors, survivors
from property.harness import KEY, VALUE, Runner, aggregate_of, ms
from property.reference import windows_of

from everfold.aggregates.distinct import OverDistinct
from everfold.aggregates.registry import Signature, lookup
from everfold.plan.expressions import Literal
from everfold.plan.nodes import AggCall
from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window, slice_end
from everfold.types import BIGINT, DOUBLE, STRING, DataType

WINDOWS = [
    Tumble(size_ms=10),
    Hop(slide_ms=5, size_ms=15),
    Hop(slide_ms=1, size_ms=16),
    Cumulate(step_ms=5, size_ms=15),
    Session(gap_ms=4),
]
FUNCTIONS = [
    *(("COUNT", False), ("SUM", False), ("MIN", False), ("MAX", False), ("FIRST_VALUE", False), ("LAST_VALUE", False)),
    *(("ARRAY_AGG", False), ("COLLECT", False), ("PERCENTILE", False), ("VAR_POP", False)),
    *(("ARRAY_AGG", True), ("COUNT", True), ("SUM", True), ("APPROX_COUNT_DISTINCT", False)),
]
NEWEST_FIRST = "ARRAY_AGG"
Row = tuple[int, str, int | None, int]
"""Time, key, value, and 0 for +I or 3 for -D."""


def call_of(name: str, distinct: bool) -> AggCall:
    entry = lookup(name)
    assert entry is not None
    constant: object = 0.25 if name == "PERCENTILE" else entry.default
    of: DataType = DOUBLE if name == "PERCENTILE" else STRING
    constants = () if constant is None else (Literal(type=of, value=constant),)
    result = (OverDistinct(entry) if distinct else entry).result_type(
        Signature((BIGINT,), tuple(each.value for each in constants))
    )
    assert result is not None
    return AggCall(function=name, args=(VALUE,), type=result, constants=constants, distinct=distinct)


def group_by_window(window: Window, rows: Sequence[Row]) -> dict[tuple[str, int, int], list[Row]]:
    """Return the rows of each key's windows, in the order of arrival."""
    found: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    if not isinstance(window, Session):
        for row in rows:
            for start, end in windows_of(window, row[0]):
                found[row[1], start, end].append(row)
        return found
    for key in {row[1] for row in rows}:
        times = sorted({row[0] for row in rows if row[1] == key})
        while times:
            start, end = times[0], times[0] + window.gap_ms
            while times and times[0] <= end:
                end = times.pop(0) + window.gap_ms
            found[key, start, end] = [row for row in rows if row[1] == key and start <= row[0] < end]
    return found


def value_of(name: str, distinct: bool, window: Window, rows: Sequence[Row]) -> Any:
    """Return the value over a window's rows: slice by slice, as Flink merges them."""
    slices: dict[int, list[Change]] = defaultdict(list)
    for at, _, value, kind in rows:
        slice_at = 0 if isinstance(window, Session) else slice_end(window, at)
        slices[slice_at].append((1 if kind == 0 else -1, value))
    newest_first = name == NEWEST_FIRST and isinstance(window, Hop)
    left: list[Change] = []
    for slice_at in sorted(slices, reverse=newest_first):
        left += [(1, value) for value in (distinct_survivors if distinct else survivors)(slices[slice_at])]
    values = distinct_survivors(left) if distinct else [value for _, value in left]
    if name == "APPROX_COUNT_DISTINCT":
        return len({value for value in values if value is not None})
    return compute_value(name, BIGINT, values)


def answers(runner: Runner, batches: Sequence[Sequence[Row]], tasks: int) -> list[tuple[Any, ...]]:
    found = []
    for rows in batches:
        parts = [rows[at * len(rows) // tasks : (at + 1) * len(rows) // tasks] for at in range(tasks)]
        found += runner.batch(parts)
    return found + runner.batch([], flush=True)


def drop_order(value: Any) -> Any:
    """Return a multiset without its order."""
    if isinstance(value, dict):
        return sorted(map(repr, value.items()))
    return sorted(map(repr, value)) if isinstance(value, list) and value and isinstance(value[0], tuple) else value


ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("ab"), st.one_of(st.none(), st.integers(-2, 3)), st.just(0)),
    max_size=24,
)


@st.composite
def changes(draw: st.DrawFn) -> list[Row]:
    """Make rows, some of which are retracted later with their original time."""
    rows: list[Row] = []
    there: list[Row] = []
    for row in draw(ROWS):
        rows.append(row)
        there.append(row)
        if draw(st.integers(0, 2)) == 0:
            back = there.pop(draw(st.integers(0, len(there) - 1)))
            rows.append((*back[:3], 3))
    return rows


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("updating", [False, True])
def test_values(window: Window, updating: bool) -> None:
    functions = [each for each in FUNCTIONS if not (updating and each[0] == "APPROX_COUNT_DISTINCT")]
    node = aggregate_of(window, KEY, calls=tuple(call_of(*each) for each in functions))

    @settings(max_examples=25, deadline=None)
    @given(
        changes() if updating else ROWS,
        st.integers(1, 4),
        st.integers(1, 3),
        st.booleans(),
    )
    def law(rows: list[Row], parts: int, tasks: int, flowing: bool) -> None:
        if isinstance(window, Session) or (flowing and not updating):
            # In the order of time, windows close along the way. Sessions that merge keep the rows
            # of each together.
            rows = sorted(rows, key=lambda row: row[0])
        runner = Runner(
            node, buckets=2, delay_ms=2 if flowing and not updating else 1000, restart=True, updating=updating
        )
        batches = [rows[at * len(rows) // parts : (at + 1) * len(rows) // parts] for at in range(parts)]
        wanted = {}
        for (key, start, end), held in group_by_window(window, rows).items():
            if sum(1 if row[3] == 0 else -1 for row in held):
                wanted[key, start, end] = [drop_order(value_of(*each, window, held)) for each in functions]
        found = {}
        for key, *values, start, end, _ in answers(runner, batches, tasks):
            assert (key, ms(start), ms(end)) not in found
            found[key, ms(start), ms(end)] = [drop_order(value) for value in values]
        assert found == wanted

    law()
