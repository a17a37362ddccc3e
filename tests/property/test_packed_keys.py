"""Properties of packed keys, and of the shortcuts that operators take for groups that rarely
repeat: the results are the same with and without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.harness import Runner, aggregate_of
from property.queries import Query, tuples

from everfold.operators import group, session, window, window_output
from everfold.operators.packed_keys import pack_columns, repeat_rarely
from everfold.plan.windows import Hop, Session, Tumble, Window

LAW = settings(max_examples=30, deadline=None)
COLUMNS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-3, 3), st.integers(-(1 << 40), 1 << 40)),
        st.one_of(st.none(), st.integers(0, 5).map(lambda day: date(1969, 12, 30 + day % 2))),
    ),
    min_size=1,
    max_size=30,
)


@pytest.fixture(params=[False, True], ids=["", "few rows"], scope="module")
def shortcuts(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Take all shortcuts even for few rows and groups that repeat."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            for module in (group, session, window, window_output):
                patch.setattr(module, "FEW_ROWS", -1)
            for module in (group, session, window):
                patch.setattr(module, "_DISTINCT", -1.0)
        yield request.param


@LAW
@given(COLUMNS)
def test_packed_columns_are_equal_and_ordered_like_the_columns(drawn: list[tuple[Any, Any]]) -> None:
    rows = pl.DataFrame(drawn, schema={"a": pl.Int64(), "b": pl.Date()}, orient="row")
    packed = pack_columns(rows, ["a", "b"])
    assert packed is not None
    order = rows.with_row_index("row").sort("a", "b", maintain_order=True)["row"]
    assert packed.gather(order).is_sorted()
    assert packed.n_unique() == rows.n_unique()


@pytest.mark.parametrize("values", [["a"], [1.5], [True], [-(1 << 63), (1 << 63) - 1]])
def test_other_columns_are_not_packed(values: list[Any]) -> None:
    assert pack_columns(pl.DataFrame({"a": values}), ["a"]) is None


def test_the_share_of_groups_is_estimated() -> None:
    numbers = pl.int_range(100_000, eager=True)
    assert repeat_rarely(numbers, 0.9)
    assert not repeat_rarely(numbers // 2, 0.6)
    assert repeat_rarely(numbers // 2, 0.4)
    assert not repeat_rarely(numbers % 10, 0.1)


@pytest.mark.parametrize(
    "of", [Tumble(size_ms=10), Hop(size_ms=30, slide_ms=10), Session(gap_ms=5)], ids=lambda of: type(of).__name__
)
def test_windows_count_every_row_once_with_shortcuts(shortcuts: bool, of: Window) -> None:
    @LAW
    @given(
        st.lists(
            st.tuples(st.integers(0, 60), st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-4, 4))),
            max_size=25,
        )
    )
    def law(rows: list[tuple[int, str | None, int | None]]) -> None:
        runner = Runner(aggregate_of(of), buckets=2, delay_ms=100)
        found = runner.batch([rows[::2], rows[1::2]])
        found += runner.batch([], flush=True)
        if isinstance(of, Tumble):
            wanted = Counter((row[1], row[0] // 10) for row in rows)
            assert sum(row[1] for row in found) == len(rows)
            assert len(found) == len(wanted)
        if isinstance(of, Hop):
            assert sum(row[1] for row in found) == 3 * len(rows)
        if isinstance(of, Session):
            assert sum(row[1] for row in found) == len(rows)

    law()


@pytest.mark.parametrize("values", ["INT", "DATE", "STRING"])
def test_groups_are_those_of_a_loop_with_shortcuts(shortcuts: bool, values: str) -> None:
    query = Query(
        "CREATE TABLE e (k INT, v INT);"
        f"SELECT k, COUNT(*), SUM(v), MIN(v), MAX(v), COUNT(DISTINCT {_cast(values)}) FROM e GROUP BY k"
    )

    @LAW
    @given(
        st.lists(
            st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.integers(0, 5))), max_size=25
        ),
        st.integers(1, 25),
    )
    def law(rows: list[tuple[int | None, int | None]], size: int) -> None:
        pipeline, result = query.pipeline(buckets=2), Counter[tuple[Any, ...]]()
        for start in range(0, len(rows), size):
            batch = [{"k": k, "v": v} for k, v in rows[start : start + size]]
            for *row, kind in tuples(pipeline.feed(query.input(e=batch))):
                result[tuple(row)] += 1 if kind in (0, 2) else -1
        groups: dict[int | None, list[int | None]] = {}
        for k, v in rows:
            groups.setdefault(k, []).append(v)
        assert sorted(+result, key=repr) == sorted((_of_group(k, each) for k, each in groups.items()), key=repr)

    law()


def _cast(type_: str) -> str:
    return {"INT": "v", "STRING": "CAST(v AS STRING)", "DATE": "TIMESTAMPADD(DAY, v, DATE '2020-01-01')"}[type_]


def _of_group(key: int | None, values: list[int | None]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    total = sum(known) if known else None
    return key, len(values), total, min(known, default=None), max(known, default=None), len(set(known))
