"""TUMBLE, HOP, CUMULATE with the seed's six bids and hand-computable numbers."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from property.harness import SCAN, VALUE, Runner, aggregate_of, ms, plain, rows_of

from everfold.errors import StateError, UnsupportedFeature
from everfold.operators.factory import operator_of
from everfold.operators.protocol import ClockSpec, Meta
from everfold.plan.canonical import call_text
from everfold.plan.expressions import Call, InputRef
from everfold.plan.nodes import AggCall, TimeKind, WindowAggregate, is_stateful
from everfold.plan.windows import Cumulate, Hop, Session, Tumble
from everfold.state.pages import decode, encode
from everfold.state.store import PageKey
from everfold.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP_LTZ3

MINUTE = 60_000
START = ms(datetime(2020, 4, 15, 8))
# Time, supplier, price: the seed's bids in hundredths.
BIDS = [(START + minute * MINUTE, who, price) for minute, who, price in (
    (5, "s1", 400), (7, "s1", 200), (9, "s2", 500), (11, "s2", 300), (13, "s1", 100), (17, "s2", 600),
)]  # fmt: skip


def emit_totals(runner: Runner, *, batches: int = 1, rows: Any = BIDS) -> list[tuple[Any, ...]]:
    """Return (window start, window end) as minutes, COUNT and SUM of all bids."""
    size = -(-len(rows) // batches)
    out = [row for at in range(0, len(rows), size) for row in runner.batch([rows[at : at + size]])]
    out += runner.batch([], flush=True)
    found = plain(out, keyed=bool(runner.operator.hash_columns))
    return [
        ((start - START) // MINUTE, (end - START) // MINUTE, n, total)
        for _, start, end, n, total, _ in sorted(found, key=lambda r: (r[2], r[1], str(r[0])))
    ]


@pytest.mark.parametrize("batches", [1, 2, 6])
def test_tumble_windows(batches: int) -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10 * MINUTE), key=None), delay_ms=MINUTE)
    assert emit_totals(runner, batches=batches) == [(0, 10, 3, 1100), (10, 20, 3, 1000)]
    assert (runner.late, runner.state_rows) == (0, 0)


@pytest.mark.parametrize("batches", [1, 3, 6])
def test_hop_windows(batches: int) -> None:
    runner = Runner(aggregate_of(Hop(slide_ms=5 * MINUTE, size_ms=10 * MINUTE), key=None), delay_ms=MINUTE)
    assert emit_totals(runner, batches=batches) == [
        (0, 10, 3, 1100), (5, 15, 5, 1500), (10, 20, 3, 1000), (15, 25, 1, 600),
    ]  # fmt: skip


@pytest.mark.parametrize("batches", [1, 3, 6])
def test_cumulate_windows(batches: int) -> None:
    runner = Runner(aggregate_of(Cumulate(step_ms=2 * MINUTE, size_ms=10 * MINUTE), key=None), delay_ms=MINUTE)
    assert emit_totals(runner, batches=batches) == [
        (0, 6, 1, 400), (0, 8, 2, 600), (0, 10, 3, 1100),
        (10, 12, 1, 300), (10, 14, 2, 400), (10, 16, 2, 400), (10, 18, 3, 1000), (10, 20, 3, 1000),
    ]  # fmt: skip


def test_rows_are_sorted_by_window_and_key() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=MINUTE)))
    rows = [(START + at * 7919 % 600_000, "cab"[at % 3], at) for at in range(300)]
    out = runner.batch([rows], flush=True)
    assert [(row[5], row[0]) for row in out] == sorted((row[5], row[0]) for row in out)


def test_nothing_is_emitted_before_the_watermark_passes() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)))
    assert runner.batch([[(3, "a", 1), (8, "a", 2)]]) == []
    assert plain(runner.batch([[(9, "a", 4)]])) == [("a", 0, 10, 3, 7, 4)]


def test_a_late_row_is_counted_and_dropped() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)), restart=True)
    runner.batch([[(3, "a", 1), (12, "a", 2)]])
    assert runner.batch([[(9, "a", 4), (4, None, 4)]]) == []
    assert runner.late == 2
    assert plain(runner.batch([[(25, "a", 4), (5, "a", 1)]])) == [("a", 10, 20, 1, 2, 2)]
    assert runner.late == 3


def test_a_flush_closes_what_it_emits_and_nothing_else() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)), restart=True)
    runner.batch([[(3, "a", 1)]])
    assert plain(runner.batch([], flush=True)) == [("a", 0, 10, 1, 1, 1)]
    assert runner.batch([[(8, "a", 2), (12, "a", 3)]]) == []
    assert runner.late == 1
    assert runner.watermark == 12
    assert plain(runner.batch([], flush=True)) == [("a", 10, 20, 1, 3, 3)]


def test_a_flush_emits_the_rows_of_its_own_batch() -> None:
    runner = Runner(aggregate_of(Hop(slide_ms=5, size_ms=10)))
    assert plain(runner.batch([[(3, "a", 1)]], flush=True)) == [("a", -5, 5, 1, 1, 1), ("a", 0, 10, 1, 1, 1)]
    assert runner.meta is not None
    assert runner.meta.ended == ("w1",)


def test_a_watermark_without_rows_fires_windows() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)), clock=ClockSpec(splits=("t", "other"), idle_timeout_ms=1000))
    assert runner.batch([[(3, "a", 1), (50, "a", 1)]], now_ms=0) == []
    assert plain(runner.batch([], now_ms=999)) == []
    assert plain(runner.batch([[(51, "a", 1)]], now_ms=1000)) == [("a", 0, 10, 1, 1, 1)]


def test_slices_that_close_in_their_batch_are_never_stored() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)))
    runner.batch([[(at, "a", 1) for at in range(100)]])
    assert {key.table for key in runner.stores[0].pages} == {"head"}
    runner.batch([[(100, "a", 1)]])
    assert [key for key in runner.stores[0].pages if key.table != "head"] == [PageKey(0, "slices", 110, 0)]


def test_a_batch_appends_and_many_runs_are_folded() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=1000)))
    pages = []
    for at in range(30):
        runner.batch([[(at, "a", at), (at, "b", 1)]])
        pages.append(len(runner.stores[0].pages) - 1)
    assert pages[:8] == list(range(1, 9))
    assert max(pages) <= 9
    assert runner.state_rows <= 18
    assert plain(runner.batch([], flush=True)) == [("a", 0, 1000, 30, 435, 29), ("b", 0, 1000, 30, 30, 1)]
    assert len(runner.stores[0].pages) == 1


def test_epochs_do_not_see_each_others_state() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10)))
    runner.batch([[(3, "a", 1)]])
    assert is_stateful(runner.node)
    again = operator_of(runner.node, "w1", runner.clock, epoch=1)
    step = again.step(runner.stores[0], [], [Meta(0, {}, flush=True)])
    assert step.rows.height == 0
    assert again.schema == step_schema(step.rows, again)


def step_schema(rows: pl.DataFrame, operator: Any) -> Any:
    assert rows.columns == [f"c{at}" for at in range(len(operator.schema))]
    return operator.schema


def test_processing_time_windows() -> None:
    node = aggregate_of(Tumble(size_ms=10), time=TimeKind.PROCTIME)
    runner = Runner(node, clock=ClockSpec(splits=(), processing_time=True))
    assert runner.batch([[(100, "a", 1)]], now_ms=100) == []
    assert runner.batch([[(105, "a", 2)]], now_ms=105) == []
    assert plain(runner.batch([], now_ms=110)) == [("a", 100, 110, 2, 3, 2)]
    # A clock that stepped back: no row is lost, it counts in the open window.
    assert runner.batch([[(103, "a", 4)]], now_ms=103) == []
    assert plain(runner.batch([], now_ms=120)) == [("a", 110, 120, 1, 4, 4)]
    assert runner.late == 0


def test_windows_align_in_the_session_time_zone() -> None:
    column = SCAN.table.columns[0].__class__(name="ts", type=TIMESTAMP_LTZ3)
    table = SCAN.table.__class__(name="t", columns=(column, *SCAN.table.columns[1:]))
    node = aggregate_of(Tumble(size_ms=24 * 60 * MINUTE), zone="Asia/Shanghai", input=SCAN.__class__(table=table))
    operator = operator_of(node, "w1", ClockSpec(splits=("t",)))
    assert operator.inputs[0].zone == "Asia/Shanghai"
    runner = Runner(node)
    noon = ms(datetime(2020, 1, 1, 12))  # local
    prepared = operator.prepare(runner.frame([(noon, "a", 1)]))
    store = runner.stores[0]
    midnight = ms(datetime(2020, 1, 1, 16))  # UTC
    assert operator.step(store, [prepared], [Meta(0, {"t": midnight - 2})]).rows.height == 0
    (row,) = operator.step(store, [], [Meta(0, {"t": midnight - 1})]).rows.rows()
    assert row[4:] == (
        datetime(2020, 1, 1),
        datetime(2020, 1, 2),
        datetime(2020, 1, 1, 16, tzinfo=UTC) - timedelta(milliseconds=1),
    )


def test_equal_calls_and_arguments_share_columns() -> None:
    calls = (
        AggCall(function="SUM", args=(VALUE,), type=BIGINT),
        AggCall(function="AVG", args=(VALUE,), type=BIGINT),
        AggCall(function="SUM", args=(VALUE,), type=BIGINT),
        AggCall(function="MAX", args=(VALUE,), type=BIGINT, distinct=True),
    )
    runner = Runner(aggregate_of(Tumble(size_ms=10), calls=calls))
    assert [each.name for each in runner.operator.inputs] == ["ts", "k0", "a0"]
    runner.batch([[(1, "a", 3)]])
    assert runner.batch([[(2, "a", 6)]], flush=True)[0][:5] == ("a", 9, 4, 9, 6)


def test_filters_are_part_of_the_arguments() -> None:
    positive = Call(type=BOOLEAN, function="IS NOT NULL", args=(VALUE,))
    calls = (
        AggCall(function="COUNT", args=(), type=BIGINT, filter=positive),
        AggCall(function="SUM", args=(VALUE,), type=BIGINT, filter=positive),
    )
    operator = operator_of(aggregate_of(Tumble(size_ms=10), calls=calls), "w1", ClockSpec(splits=("t",)))
    counted, summed = operator.inputs[2:]
    assert isinstance(counted.expression, Call)
    assert counted.expression.function == "CASE"
    assert counted.type == BOOLEAN
    assert isinstance(summed.expression, Call)
    assert summed.expression.args[:2] == (positive, VALUE)
    assert summed.expression.type.nullable


def test_windows_without_keys_and_calls() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=10), key=None, calls=()), restart=True)
    for at in range(12):
        runner.batch([[(at // 4, "a", 1)]])
    runner.batch([[(15, "a", 1)]])
    assert [row[0] for row in runner.batch([], flush=True)] == [datetime(1970, 1, 1, 0, 0, 0, 10_000)]


def test_equal_float_keys_form_one_group() -> None:
    column = SCAN.table.columns[1].__class__(name="k", type=DOUBLE)
    table = SCAN.table.__class__(name="t", columns=(SCAN.table.columns[0], column, SCAN.table.columns[2]))
    node = aggregate_of(Tumble(size_ms=10), key=InputRef(type=DOUBLE, position=1), input=SCAN.__class__(table=table))
    runner = Runner(node)
    nan = float("nan")
    out = [operator_row for key in (0.0, -0.0, nan, -nan, None) for operator_row in runner.batch([[(1, key, 1)]])]
    # The engine's hash sends equal keys to the same bucket; here there is only one bucket.
    out += runner.batch([], flush=True)
    assert [(str(row[0]), row[1]) for row in out] == [("None", 1), ("0.0", 2), ("nan", 2)]


def test_operators_can_be_pickled() -> None:
    operator = operator_of(aggregate_of(Tumble(size_ms=10)), "w1", ClockSpec(splits=("t",)), 3)
    again = pickle.loads(pickle.dumps(operator))
    assert (again.name, again.inputs, again.schema) == (operator.name, operator.inputs, operator.schema)


# Pages of other queries, and damaged pages


def write_page(node: WindowAggregate) -> Runner:
    runner = Runner(node)
    runner.batch([[(1, "a", 3), (2, "b", 4)]])
    return runner


def test_slots_are_named_by_their_meaning() -> None:
    runner = write_page(aggregate_of(Tumble(size_ms=10)))
    (page,) = (decode(blob) for key, blob in runner.stores[0].pages.items() if key.table == "slices")
    assert page.columns == ["key t.k", "COUNT()|count", "SUM(t.v)|sum", "SUM(t.v)|nonnull", "MAX(t.v)|value"]
    node = aggregate_of(Tumble(size_ms=10))
    assert call_text(node, node.calls[1]) == "SUM(t.v)"


def test_a_page_of_a_query_with_other_calls_is_readable() -> None:
    calls = aggregate_of(Tumble(size_ms=10)).calls
    old = write_page(aggregate_of(Tumble(size_ms=10), calls=(calls[2], calls[0])))
    new = Runner(aggregate_of(Tumble(size_ms=10)))
    new.stores = old.stores
    out = plain(new.batch([[(5, "a", 1)]], flush=True))
    # COUNT(*) and MAX continue, SUM starts now.
    assert out == [("a", 0, 10, 2, 1, 3), ("b", 0, 10, 1, None, 4)]


def test_a_page_without_the_key_is_refused() -> None:
    old = write_page(aggregate_of(Tumble(size_ms=10), key=None))
    new = Runner(aggregate_of(Tumble(size_ms=10)))
    new.stores = old.stores
    with pytest.raises(StateError, match=r"foreign-state.*`t.k`"):
        new.batch([], flush=True)


def test_a_missing_or_damaged_page_stops_the_job() -> None:
    runner = write_page(aggregate_of(Tumble(size_ms=10)))
    (key,) = (key for key in runner.stores[0].pages if key.table == "slices")
    blob = runner.stores[0].pages.pop(key)
    with pytest.raises(StateError, match="missing"):
        runner.batch([], flush=True)
    runner.stores[0].pages[key] = blob[:-1] + b"?"
    with pytest.raises(StateError, match="damaged-page"):
        runner.batch([], flush=True)


def test_large_runs_are_split_into_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from everfold.state import runs

    monkeypatch.setattr(runs, "MAX_PAGE_BYTES", 4096)
    monkeypatch.setattr(runs, "_PAGE_ROOM", 2048)
    runner = Runner(aggregate_of(Tumble(size_ms=1000)))
    runner.batch([[(at % 100, f"key {at}", at) for at in range(500)]])
    blobs = [blob for key, blob in runner.stores[0].pages.items() if key.table == "slices"]
    assert len(blobs) > 5
    assert max(map(len, blobs)) <= 4096
    assert decode(encode(decode(blobs[0]))).equals(decode(blobs[0]))
    assert len(runner.batch([], flush=True)) == 500


def test_unsupported_operators_are_refused_before_anything_starts() -> None:
    sketch = AggCall(function="APPROX_COUNT_DISTINCT", args=(VALUE,), type=BIGINT)
    with pytest.raises(UnsupportedFeature, match="APPROX_COUNT_DISTINCT"):
        operator_of(aggregate_of(Tumble(size_ms=10), calls=(sketch,)), "w1", ClockSpec(splits=()), updating=True)
    rows = rows_of(Session(gap_ms=10))
    with pytest.raises(UnsupportedFeature, match="rows of SESSION"):
        operator_of(rows, "w1", ClockSpec(splits=()), updating=True)


def test_rows_are_preaggregated_only_if_that_reduces_them() -> None:
    runner = Runner(aggregate_of(Tumble(size_ms=1000)))
    rows = [(at, f"key {at}", at) for at in range(20_000)]
    prepared = runner.operator.prepare(runner.frame(rows))
    assert prepared["n"].max() == 1
    folded = runner.operator.prepare(runner.frame([(at, f"key {at % 10}", 1) for at in range(20_000)]))
    assert folded.height == 200
    assert folded.schema == prepared.schema
