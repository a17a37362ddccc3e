"""SESSION windows: merging, lateness, flushes, and rows with their session."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl
import pytest
from property.harness import Runner, aggregate_of, ms, plain, rows_of

from everfold.operators import session
from everfold.plan.windows import Session

GAP = Session(gap_ms=10)


def test_touching_sessions_are_merged() -> None:
    runner = Runner(aggregate_of(GAP))
    assert plain(runner.batch([[(0, "a", 1), (10, "a", 2), (21, "a", 4)]], flush=True)) == [
        ("a", 0, 20, 2, 3, 2),
        ("a", 21, 31, 1, 4, 4),
    ]


def test_a_row_merges_two_open_sessions() -> None:
    runner = Runner(aggregate_of(GAP), delay_ms=100, restart=True)
    for at in (0, 18, 9):
        assert runner.batch([[(at, "a", at)]]) == []
    assert runner.state_rows == 1
    assert plain(runner.batch([], flush=True)) == [("a", 0, 28, 3, 27, 18)]


def test_a_session_fires_when_the_watermark_passes_it() -> None:
    runner = Runner(aggregate_of(GAP))
    assert runner.batch([[(0, "a", 1), (8, "b", 2)]]) == []
    assert plain(runner.batch([[(9, "c", 2)]])) == [("a", 0, 10, 1, 1, 1)]
    assert plain(runner.batch([[(18, "c", 2)]])) == [("b", 8, 18, 1, 2, 2)]


def test_lateness_is_checked_after_merging() -> None:
    runner = Runner(aggregate_of(GAP))
    runner.batch([[(20, "a", 1)]])
    # On its own, [5, 15) is complete; [12, 22) is not, and joins the open session.
    runner.batch([[(5, "a", 2), (12, "a", 4)]])
    assert runner.late == 0, "within a batch rows are merged first"
    runner.batch([[(5, "b", 2)]])
    assert runner.late == 1
    assert plain(runner.batch([], flush=True)) == [("a", 5, 30, 3, 7, 4)]


def test_rows_without_a_key_or_with_a_null_key_form_sessions() -> None:
    rows = [(0, "a", 1), (5, None, 2), (12, None, 3)]
    assert plain(Runner(aggregate_of(GAP)).batch([rows], flush=True)) == [("a", 0, 10, 1, 1, 1), (None, 5, 22, 2, 5, 3)]
    assert plain(Runner(aggregate_of(GAP, key=None)).batch([rows], flush=True), keyed=False) == [(None, 0, 22, 3, 6, 3)]


def test_a_flush_closes_the_sessions_that_it_emits() -> None:
    runner = Runner(aggregate_of(GAP))
    runner.batch([[(0, "a", 1)]], flush=True)
    runner.batch([[(0, "a", 1), (1, "b", 1)]])
    assert runner.late == 1, "[0, 10) has been emitted, [1, 11) has not"
    assert plain(runner.batch([], flush=True)) == [("b", 1, 11, 1, 1, 1)]


def test_parts_split_and_untouched_parts_are_not_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PART_ROWS", 4)
    runner = Runner(aggregate_of(GAP), delay_ms=1000, restart=True)
    runner.batch([[(at, f"key {at}", 1) for at in range(64)]])
    pages = {key for key in runner.stores[0].pages if key.table == "sessions"}
    assert len(pages) >= 5
    runner.batch([[(7, "key 7", 1)]])
    after = {key for key in runner.stores[0].pages if key.table == "sessions"}
    assert len(pages - after) == 1, "only the part of the key is rewritten"
    assert len(plain(runner.batch([], flush=True))) == 64
    assert not [key for key in runner.stores[0].pages if key.table == "sessions"]


@pytest.mark.parametrize("keys", [("k0",), ()])
def test_two_keys_with_the_same_hash_stay_separate(keys: tuple[str, ...]) -> None:
    items = pl.DataFrame(
        {"hash": [5] * 6, "k0": ["a", "b"] * 3, "start": [0, 1, 8, 30, 16, 31], "end": [10, 11, 18, 40, 26, 41]}
    )
    numbered = session._number_sessions(items, keys)
    found = numbered.group_by("session").agg(pl.col("start").min(), pl.col("end").max()).sort("session").rows()
    if keys:
        assert found == [(0, 0, 26), (1, 1, 11), (2, 30, 41)]
    else:
        assert found == [(0, 0, 26), (1, 30, 41)]


def test_distant_times_are_separate_sessions() -> None:
    far = 1 << 60
    items = pl.DataFrame(
        {
            "hash": [1, 2, 3, 3],
            "k0": ["a", "b", "c", "c"],
            "start": [-far, far, 0, 5],
            "end": [10 - far, far + 10, 10, 15],
        }
    )
    assert session._number_sessions(items, ("k0",))["session"].to_list() == [0, 1, 2, 2]


def test_rows_of_sessions_are_emitted_with_their_window() -> None:
    runner = Runner(rows_of(GAP), restart=True, delay_ms=5)
    out: list[tuple[Any, ...]] = []
    for row in [(0, "a", 1), (3, "b", None), (8, "a", 2), (40, "a", 3), (2, "a", 9)]:
        out += runner.batch([[row]])
    assert [(ms(row[0]), *row[1:3], ms(row[3]), ms(row[4]), ms(row[5])) for row in out] == [
        (3, "b", None, 3, 13, 12),
        (0, "a", 1, 0, 18, 17),
        (8, "a", 2, 0, 18, 17),
    ]
    assert runner.late == 1
    assert [row[2] for row in runner.batch([], flush=True)] == [3]
    assert runner.operator.schema.names == ("ts", "k", "v", "window_start", "window_end", "window_time")


def test_rows_of_sessions_may_have_no_partition_key() -> None:
    runner = Runner(rows_of(GAP, key=False))
    assert runner.operator.hash_columns == ()
    out = runner.batch([[(5, "a", 1), (0, "b", 2)]], flush=True)
    assert [row[2] for row in out] == [2, 1]
    assert {row[3] for row in out} == {datetime(1970, 1, 1)}
