"""Properties of windows. The reference computes them row by row in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from property.harness import Runner, aggregate_of, ms, plain, rows_of
from property.reference import Row, compute_results, fold

from everfold.aggregates import folding
from everfold.operators import session, window
from everfold.plan.windows import Cumulate, Hop, Session, Tumble, Window

LAW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    unit, pieces, offset = draw(st.integers(1, 7)), draw(st.integers(1, 40)), draw(st.integers(-9, 9))
    kind = draw(st.sampled_from(["tumble", "hop", "cumulate", "session"]))
    if kind == "tumble":
        return Tumble(size_ms=unit * 3, offset_ms=offset)
    if kind == "hop":
        return Hop(slide_ms=unit, size_ms=unit * pieces, offset_ms=offset)
    if kind == "cumulate":
        return Cumulate(step_ms=unit, size_ms=unit * pieces, offset_ms=offset)
    return Session(gap_ms=unit * 2)


keys = st.sampled_from(["a", "b", "c", "ä", "", None])
values = st.one_of(st.none(), st.integers(-5, 5))


@st.composite
def ordered(draw: st.DrawFn) -> tuple[list[Row], int]:
    """Make rows whose disorder stays within the delay. Return the rows and the delay.

    Each row is younger than the watermark before it, by 2 ms: a row that is 1 ms younger may touch
    a session that has just been emitted.
    """
    delay = draw(st.integers(2, 12))
    base = draw(st.sampled_from([0, -40, 1_586_937_600_000]))
    rows, high = [], base
    for step, back, key, value in draw(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, delay - 2), keys, values), max_size=30)
    ):
        high += step
        rows.append((high - back, key, value))
    return rows, delay


@st.composite
def any_order(draw: st.DrawFn) -> tuple[list[Row], int]:
    """Make rows in any order."""
    return draw(st.lists(st.tuples(st.integers(-20, 60), keys, values), max_size=15)), draw(st.integers(0, 8))


def batches_of(rows: Sequence[Row], cuts: Sequence[int]) -> list[list[Row]]:
    positions = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    return [list(rows[start:end]) for start, end in pairwise(positions)]


def run(runner: Runner, batches: Sequence[Sequence[Row]], tasks: int = 1) -> list[tuple[object, ...]]:
    out = []
    for rows in batches:
        out += runner.batch([rows[at::tasks] for at in range(tasks)])
    return plain([*out, *runner.batch([], flush=True)])


# The second row is late by the least time: random rows seldom are.
@LAW
@example(Cumulate(step_ms=1, size_ms=2, offset_ms=0), ([(0, "a", 1), (0, "a", 2)], 0))
@example(Tumble(size_ms=10, offset_ms=0), ([(12, "a", 1), (9, "a", 2), (10, "a", 3)], 3))
@given(windows(), any_order())
def test_one_row_per_batch_handles_late_rows_like_flink(window: Window, rows: tuple[list[Row], int]) -> None:
    runner = Runner(aggregate_of(window), delay_ms=rows[1])
    found = run(runner, [[row] for row in rows[0]])
    results, late = compute_results(window, rows[0], rows[1])
    assert found == results
    assert (runner.late, runner.state_rows) == (late, 0)


@LAW
@given(windows(), ordered(), st.lists(st.integers(0, 99), max_size=6), st.integers(1, 3), st.sampled_from([1, 2, 4]))
def test_batches_tasks_buckets_and_restarts_do_not_matter(
    window: Window, rows: tuple[list[Row], int], cuts: list[int], tasks: int, buckets: int
) -> None:
    runner = Runner(aggregate_of(window), buckets=buckets, delay_ms=rows[1], restart=True)
    assert run(runner, batches_of(rows[0], cuts), tasks) == compute_results(window, rows[0], rows[1])[0]
    assert (runner.late, runner.state_rows) == (0, 0)


@LAW
@given(windows(), ordered(), st.lists(st.integers(0, 99), max_size=6))
def test_unfolded_rows_return_the_same_result(window: Window, rows: tuple[list[Row], int], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("everfold.operators.window.FEW_ROWS", -1)
        patch.setattr("everfold.operators.window._DISTINCT", 0.0)
        patch.setattr("everfold.operators.session.PART_ROWS", 2)
        patch.setattr("everfold.aggregates.folding._LARGE", 1)
        runner = Runner(aggregate_of(window), delay_ms=rows[1])
        assert run(runner, batches_of(rows[0], cuts)) == compute_results(window, rows[0], rows[1])[0]


@LAW
@given(st.integers(1, 8), ordered(), st.lists(st.integers(0, 99), max_size=6), st.sampled_from([1, 3]))
def test_rows_of_sessions_fold_into_sessions(
    gap: int, rows: tuple[list[Row], int], cuts: list[int], buckets: int
) -> None:
    runner = Runner(rows_of(Session(gap_ms=gap)), buckets=buckets, delay_ms=rows[1], restart=True)
    out = [row for batch in batches_of(rows[0], cuts) for row in runner.batch([batch])]
    out += runner.batch([], flush=True)
    found: dict[tuple[object, int, int], list[int | None]] = {}
    for _, key, value, start, end, time in out:
        assert ms(time) == ms(end) - 1
        found.setdefault((key, ms(start), ms(end)), []).append(value)
    results = sorted(((*bounds, *fold(each)) for bounds, each in found.items()), key=repr)
    assert results == compute_results(Session(gap_ms=gap), rows[0], rows[1])[0]
    assert len(out) == len(rows[0])


@LAW
@given(any_order(), st.integers(1, 8), st.lists(st.integers(0, 99), max_size=3))
def test_every_row_is_in_a_session_or_late(rows: tuple[list[Row], int], gap: int, cuts: list[int]) -> None:
    runner = Runner(aggregate_of(Session(gap_ms=gap)), buckets=2, delay_ms=rows[1], restart=True)
    found = run(runner, batches_of(rows[0], cuts))
    assert sum(row[3] for row in found) + runner.late == len(rows[0])  # type: ignore[misc]


def test_the_patched_names_exist() -> None:
    assert hasattr(window, "FEW_ROWS")
    assert window._DISTINCT
    assert session.PART_ROWS
    assert folding._LARGE
