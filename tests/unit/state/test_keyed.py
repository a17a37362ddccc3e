"""The keyed table behaves like a dict, and its reads and writes stay within bounds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everfold.errors import StateError
from everfold.state import keyed, pages, segments
from everfold.state.cache import FrameCache
from everfold.state.keyed import KeyedTable
from everfold.state.pages import decode_head, encode
from everfold.state.store import MemoryStore, PageKey

KEYS = ("key n", "key f", "key l", "key s", "key d")
KEY_TYPES = {
    "key n": pl.Int64(),
    "key f": pl.Float64(),
    "key l": pl.List(pl.String()),
    "key s": pl.Struct({"x": pl.Float64(), "y": pl.String()}),
    "key d": pl.Decimal(38, 2),
}
KEY_ROWS = [
    (n, f, tags, row, amount)
    for n in (1, None)
    for f, tags in ((math.nan, ["a", None]), (None, []), (1.5, None))
    for row, amount in (({"x": math.nan, "y": None}, Decimal("1.50")), (None, None))
]
POSITIONS = [-(1 << 63), -1, 0, 1 << 40, (1 << 63) - 1]
"""Fewer than keys, so that several keys share a position."""


def keys_of(numbers: Iterable[int]) -> pl.DataFrame:
    chosen = list(numbers)
    columns = {name: [KEY_ROWS[number][at] for number in chosen] for at, name in enumerate(KEYS)}
    positions = pl.Series("h", [POSITIONS[number % len(POSITIONS)] for number in chosen], dtype=pl.Int64)
    return pl.DataFrame(columns, schema=KEY_TYPES).insert_column(0, positions)


def identity(row: dict[str, Any]) -> str:
    return repr([row["h"], *(row[name] for name in KEYS)])


NUMBERS = {identity(row): number for number, row in enumerate(keys_of(range(len(KEY_ROWS))).to_dicts())}


def set_sizes(monkeypatch: pytest.MonkeyPatch, page: int, segment: int) -> None:
    monkeypatch.setattr(segments, "PAGE_BYTES", page)
    monkeypatch.setattr(keyed, "SMALL_BYTES", page)
    for module in (keyed, segments):
        monkeypatch.setattr(module, "SEGMENT_BYTES", segment)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set small sizes, so that a few rows make many pages, segments, ranks and foldings."""
    set_sizes(monkeypatch, page=200, segment=600)
    monkeypatch.setattr(keyed, "RANK_RUNS", 3)
    monkeypatch.setattr(keyed, "MANY_RUNS", 4)
    monkeypatch.setattr(keyed, "MAX_MERGED_BYTES", 20_000)


numbers = st.sets(st.integers(0, len(KEY_ROWS) - 1), min_size=1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), numbers, numbers),
        st.tuples(st.just("write"), numbers, st.just(set())),
        st.tuples(st.just("find"), numbers),
        st.tuples(st.just("scan"), st.sampled_from(POSITIONS), st.sampled_from(POSITIONS)),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("retry"), numbers),
        st.tuples(st.just("change")),
    ),
    max_size=25,
)
times = st.lists(st.one_of(st.none(), st.integers(1, 400)), min_size=25, max_size=25)


class TableWithModel:
    """A table together with a dict of its expected rows: key number → column values.

    `ttl_ms` None: rows never expire.
    """

    def __init__(self, cache: FrameCache, ttl_ms: int | None) -> None:
        self.store = MemoryStore()
        self.cache, self.ttl_ms = cache, ttl_ms
        self.head = "null"
        self.rows: dict[int, dict[str, int]] = {}
        self.now = 1000
        self.value = 0
        self.columns = ["v"]
        self.open()

    def open(self) -> None:
        self.table = KeyedTable.decode(self.store, 3, "groups", KEYS, json.loads(self.head), self.cache)

    def close(self) -> None:
        self.head = json.dumps(self.table.encode())

    @property
    def before(self) -> int | None:
        return None if self.ttl_ms is None else self.now - self.ttl_ms

    def live(self) -> set[int]:
        return {at for at, row in self.rows.items() if self.before is None or row["touched"] >= self.before}

    def write(self, chosen: set[int], dead: set[int]) -> None:
        gone = (dead - chosen) & self.live()
        known = self.live()
        self.value += 1
        touched = {"touched": self.now} if self.ttl_ms is not None else {}
        values = dict.fromkeys(self.columns, self.value) | touched
        frame = keys_of(chosen).with_columns(**{name: pl.lit(value, pl.Int64) for name, value in values.items()})
        leaving = keys_of(gone).with_columns(**{name: pl.lit(value, pl.Int64) for name, value in touched.items()})
        self.table.write(frame, leaving, added=len(chosen - known) - len(gone), expired_before=self.before)
        self.rows |= {at: dict(values) for at in chosen}
        for at in gone:
            del self.rows[at]

    def compare(self, found: pl.DataFrame, wanted: set[int]) -> None:
        got = {NUMBERS[identity(row)]: row for row in found.to_dicts()}
        assert len(got) == found.height
        assert set(got) == wanted & self.live()
        for at, row in got.items():
            values = {name: row[name] for name in row if name not in (*KEYS, "h") and row[name] is not None}
            assert values == self.rows[at]

    def check(self) -> None:
        every = set(range(len(KEY_ROWS)))
        self.compare(self.table.find(keys_of(every), expired_before=self.before), every)
        if self.ttl_ms is None:
            assert self.table.rows == len(self.rows)
        table = self.table
        pages = {
            PageKey(3, "groups", segment.page + at, 0)
            for level in [table.base, *(run.segments for run in table.runs)]
            for segment in level
            for at in range(segment.pages)
        }
        assert {key for key in self.store.pages if key.part == 0} == pages


def run(checked: TableWithModel, chosen: list[tuple[Any, ...]], pauses: list[int | None]) -> None:
    for operation, pause in zip(chosen, pauses, strict=False):
        match operation:
            case ("write", rows, dead):
                checked.write(rows, dead)
            case ("find", wanted):
                found = checked.table.find(keys_of(wanted), expired_before=checked.before)
                checked.compare(found, wanted)
            case ("scan", low, high):
                ranges = np.array([low, 1]), np.array([high, 5])
                inside = {at for at in range(len(KEY_ROWS)) if low <= POSITIONS[at % len(POSITIONS)] <= high}
                checked.compare(checked.table.scan(ranges, expired_before=checked.before), inside)
            case ("reopen",):
                checked.close()
                checked.open()
            case ("retry", rows):
                # A failed batch: the store is unchanged, but the cache has seen new pages.
                checked.close()
                pages, known, value = dict(checked.store.pages), dict(checked.rows), checked.value
                checked.write(rows, set())
                checked.check()
                checked.store.pages, checked.rows, checked.value = pages, known, value + 1000
                checked.open()
            case ("change",):
                checked.columns = ["w"] if checked.columns == ["v"] else ["v"]
        checked.check()
        if pause is not None and checked.ttl_ms is not None:
            checked.now += pause
            before = checked.before
            assert before is not None
            checked.table.sweep(before, 2)
            checked.check()


@pytest.fixture(params=["no cache", "process", "folder"])
def new_cache(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], FrameCache]:
    if request.param == "no cache":
        return lambda: FrameCache(0)
    return lambda: FrameCache(folder=tmp_path if request.param == "folder" else None)


@pytest.mark.usefixtures("small")
@given(chosen=operations)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_a_table_behaves_like_a_dict(new_cache: Callable[[], FrameCache], chosen: list[tuple[Any, ...]]) -> None:
    run(TableWithModel(new_cache(), None), chosen, [None] * len(chosen))


@pytest.mark.usefixtures("small")
@given(chosen=operations, pauses=times)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_a_table_with_ttl_behaves_like_a_dict_with_expiry(
    new_cache: Callable[[], FrameCache], chosen: list[tuple[Any, ...]], pauses: list[int | None]
) -> None:
    run(TableWithModel(new_cache(), 500), chosen, pauses)


GOLDEN = Path(__file__).parents[2] / "golden" / "state" / "keyed-v1"


def golden_table(store: MemoryStore) -> KeyedTable:
    """Create a table with a base of several pages and two runs.

    The base is being folded with a run that deletes rows; the newer run was written by another
    query.
    """
    table = KeyedTable.decode(store, 3, "groups", KEYS, None, FrameCache(0))
    old = keys_of(range(8)).with_columns(pl.lit(1, pl.Int64).alias("v"), pl.lit(100, pl.Int64).alias("touched"))
    table.write(old, added=8)
    table.credit = -100_000
    table.write(
        old.head(3).with_columns(v=pl.lit(2, pl.Int64)),
        keys_of([7]).with_columns(touched=pl.lit(100, pl.Int64)),
        added=-1,
    )
    table.credit = -1000
    new = old.head(2).drop("v").with_columns(pl.lit("x").alias("w"), touched=pl.lit(200, pl.Int64))
    table.write(new, added=0)
    return table


@pytest.mark.usefixtures("small")
def test_tables_of_the_first_format_are_readable() -> None:
    store = MemoryStore()
    for file in GOLDEN.glob("*-*.page"):
        at, part = map(int, file.stem.split("-"))
        store.pages[PageKey(3, "groups", at, part)] = file.read_bytes()
    state = decode_head((GOLDEN / "head.page").read_bytes())
    table = KeyedTable.decode(store, 3, "groups", KEYS, state, FrameCache(0))
    assert (len(table.runs), table.folding is not None, table.rows) == (2, True, 7)
    found = {NUMBERS[identity(row)]: row for row in table.find(keys_of(range(8))).to_dicts()}
    values = {at: (row["v"], row["w"], row["touched"]) for at, row in found.items()}
    assert values == {0: (None, "x", 200), 1: (None, "x", 200), 2: (2, None, 100)} | dict.fromkeys(
        range(3, 7), (1, None, 100)
    )


class CountingStore(MemoryStore):
    """Counts calls and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def get(self, key: PageKey) -> bytes | None:
        self.calls["get"] += 1
        return super().get(key)

    def put(self, key: PageKey, blob: bytes) -> None:
        self.calls["put"] += 1
        self.calls["bytes"] += len(blob)
        super().put(key, blob)


def make_rows(first: int, stop: int, step: int = 1, touched: int | None = None) -> pl.DataFrame:
    """Return rows whose positions are as far apart as their numbers."""
    rows = pl.select(pl.int_range(first, stop, step, dtype=pl.Int64).alias("key n"))
    columns = {"v": pl.lit(7, pl.Int64)} | ({} if touched is None else {"touched": pl.lit(touched, pl.Int64)})
    return rows.select((pl.col("key n") * (1 << 20)).alias("h"), "key n", **columns)


def open_table(store: MemoryStore, state: dict[str, Any] | None = None, cache: FrameCache | None = None) -> KeyedTable:
    return KeyedTable.decode(store, 0, "t", ["key n"], state, cache or FrameCache(0))


def test_a_lookup_reads_at_most_one_page_of_each_run() -> None:
    store = CountingStore()
    table = open_table(store)
    table.write(make_rows(0, 300_000), added=300_000)
    table.write(make_rows(0, 300_000, 300), added=0)
    store.calls.clear()
    assert open_table(store, table.encode()).find(make_rows(77, 78)).height == 1
    assert store.calls["get"] <= 3
    store.calls.clear()
    assert open_table(store, table.encode()).find(make_rows(300, 301))["v"].to_list() == [7]
    assert store.calls["get"] == 1


def test_a_write_to_a_large_table_reads_and_rewrites_none_of_its_pages() -> None:
    store = CountingStore()
    table = open_table(store)
    table.write(make_rows(0, 300_000), added=300_000)
    pages = dict(store.pages)
    store.calls.clear()
    table = open_table(store, table.encode())
    table.write(make_rows(10, 11), added=0)
    assert store.calls["get"] == 0
    assert store.calls["put"] == 1
    assert all(store.pages[key] is blob for key, blob in pages.items())


@pytest.mark.parametrize(("batch", "batches"), [(100, 600), (400, 200), (20_000, 8)])
def test_at_most_four_bytes_are_written_per_changed_byte(
    monkeypatch: pytest.MonkeyPatch, batch: int, batches: int
) -> None:
    set_sizes(monkeypatch, page=4 << 10, segment=64 << 10)
    monkeypatch.setattr(keyed, "MAX_MERGED_BYTES", 256 << 10)
    monkeypatch.setattr(pages, "_compression", lambda: None)
    store, cache, rows = CountingStore(), FrameCache(), 20_000
    table = open_table(store, cache=cache)
    table.write(make_rows(0, rows), added=rows)
    changed = 0
    store.calls.clear()
    for at in range(batches):
        step = rows // batch
        news = make_rows(at * 7 % step, rows, step).with_columns(pl.lit(at, pl.Int64).alias("v"))
        changed += len(encode(news))
        table = open_table(store, table.encode(), cache)
        table.write(news, added=0)
    assert store.calls["bytes"] <= 4 * changed
    assert table.find(make_rows(0, rows)).height == table.rows == rows


@pytest.mark.parametrize("keys", [40_000, 400_000])
def test_folding_never_writes_more_than_the_writes_paid_for(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    set_sizes(monkeypatch, page=4 << 10, segment=64 << 10)
    monkeypatch.setattr(keyed, "MAX_MERGED_BYTES", 256 << 10)
    store, cache, loads = MemoryStore(), FrameCache(), 10
    table = open_table(store, cache=cache)
    for at in range(loads):
        table.write(make_rows(at, keys, loads), added=keys // loads)
    changed, folded = 0, False
    written = table.segments.written
    for at in range(300):
        news = make_rows(at * 7 % 400, keys, 400)
        changed += int(news.estimated_size())
        table.write(news, added=0)
        folded |= table.folding is not None and table.segments.written > written
        assert table.segments.written - written <= 4 * changed
    assert folded
    assert table.find(make_rows(0, keys)).height == table.rows == keys


def test_lookups_pass_few_runs_whatever_the_size_of_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, page=4 << 10, segment=64 << 10)
    monkeypatch.setattr(keyed, "MAX_MERGED_BYTES", 128 << 10)
    for step in (40, 100, 400):
        table, rows = open_table(MemoryStore(), cache=FrameCache()), 40_000
        table.write(make_rows(0, rows), added=rows)
        most, changed, written = 0, 0, table.segments.written
        for at in range(4 * step):
            news = make_rows(at * 7 % step, rows, step)
            changed += int(news.estimated_size())
            table.write(news, added=0)
            most = max(most, len(table.runs))
        assert most < 100
        assert table.segments.written - written <= 4 * changed
        assert table.find(make_rows(0, rows)).height == table.rows == rows


def test_tables_fold_in_different_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, page=4 << 10, segment=64 << 10)
    tables = []
    for number in range(8):
        random = np.random.default_rng(number)
        rows = make_rows(0, 40_000).with_columns(h=np.sort(random.integers(-(1 << 63), (1 << 63) - 1, 40_000)))
        table = open_table(MemoryStore(), cache=FrameCache())
        table.write(rows, added=rows.height)
        tables.append((table, rows))
    first: dict[int, int] = {}
    for at in range(200):
        for number, (table, rows) in enumerate(tables):
            base = list(table.base)
            table.write(rows.gather_every(100, at % 100), added=0)
            if table.base != base:
                first.setdefault(number, at)
    assert len(first) == len(tables)
    assert len(set(first.values())) > len(tables) // 2


def test_folding_starts_although_the_newest_run_has_expired() -> None:
    table = open_table(MemoryStore(), cache=FrameCache())
    table.write(make_rows(0, 100_000), added=100_000)
    table.folding, table.credit = (0, 0), -(1 << 40)
    table.write(make_rows(0, 70_000), added=0)
    table.write(make_rows(0, 100, touched=100), added=0)
    table.sweep(500, 8)
    assert not table.runs[-1].segments
    table.folding = None
    table.write(make_rows(0, 0), added=0)
    assert table.folding is not None
    assert table.find(make_rows(100, 100_000)).height == 99_900


def test_new_rows_are_rewritten_only_when_there_are_many_runs() -> None:
    store, cache, height = MemoryStore(), FrameCache(), 40_000
    table = open_table(store, cache=cache)
    table.write(make_rows(0, height), added=height)
    size, written = table.segments.written, 0
    for at in range(1, 4 * keyed.MANY_RUNS):
        table = open_table(store, table.encode(), cache)
        table.write(make_rows(at * height, (at + 1) * height), added=height)
        written += table.segments.written
        if at < keyed.MANY_RUNS:
            assert written == pytest.approx(at * size)
    assert written <= 4 * at * size
    assert len(table.runs) < 2 * keyed.MANY_RUNS
    assert table.find(make_rows(0, (at + 1) * height, 1000)).height == (at + 1) * height // 1000


def test_many_inserts_into_one_key_range_are_folded_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, page=1 << 10, segment=16 << 10)
    store = CountingStore()
    table = open_table(store)
    table.write(make_rows(0, 20_000, 100), added=200)
    most = 0
    for at in range(40):
        store.calls.clear()
        news = make_rows(5000 + at * 100, 5000 + at * 100 + 99)
        table = open_table(store, table.encode())
        known = table.find(news).height
        table.write(news, added=news.height - known)
        most = max(most, store.calls["bytes"])
    assert most < 10 * (16 << 10)
    assert table.rows == table.find(make_rows(0, 20_000)).height == table.all().height


def test_expired_state_is_removed_without_reading_it() -> None:
    store = CountingStore()
    table = open_table(store)
    table.write(make_rows(0, 50_000, touched=100), added=50_000)
    table.write(make_rows(0, 50_000, 5, touched=200), added=0)
    before = sum(map(len, store.pages.values()))
    for _ in range(100):
        table = open_table(store, table.encode())
        table.sweep(150, 8)
    assert sum(map(len, store.pages.values())) < before / 2
    assert table.find(make_rows(0, 50_000), expired_before=150).height == 10_000
    store.calls.clear()
    table.sweep(201, 8)
    assert not store.pages
    assert store.calls["get"] == 0
    assert table.rows == 0


def test_rows_from_before_a_ttl_was_set_do_not_expire() -> None:
    table = KeyedTable.decode(MemoryStore(), 0, "t", ["key n"], None, FrameCache(1 << 20))
    table.write(make_rows(0, 100), added=100)
    table.write(make_rows(0, 10, touched=100), added=0)
    table.write(make_rows(10, 20, touched=900), added=0)
    table.sweep(500, 100)
    found = table.find(make_rows(0, 100).select("h", "key n"), expired_before=500)
    assert sorted(found["key n"].to_list()) == list(range(10, 100))


def test_sweeping_is_spread_over_batches() -> None:
    store = CountingStore()
    table = open_table(store)
    table.write(pl.concat([make_rows(0, 90_000, touched=100), make_rows(100_000, 101_000, touched=900)]), added=91_000)
    last = table.base[-1]
    assert last.expired_share(500) > 0.25
    calls = 0
    while table.base[-1] is last:
        table.sweep(500, 4)
        calls += 1
    assert calls >= last.pages / 4


def test_a_table_without_keys_holds_one_row() -> None:
    store = MemoryStore()
    table = KeyedTable.decode(store, 0, "all", [], None, FrameCache(0))
    position = pl.DataFrame({"h": [5]})
    assert table.find(position).is_empty()
    for at in range(50):
        table.write(position.with_columns(v=at), added=0 if at else 1)
        table = KeyedTable.decode(store, 0, "all", [], table.encode(), FrameCache(0))
        assert table.find(position)["v"].to_list() == [at]
    assert table.rows == 1
    table.write(position.clear(), position, added=-1)
    assert table.find(position).is_empty()
    assert table.rows == 0


def test_missing_and_foreign_pages_are_reported() -> None:
    store = MemoryStore()
    table = open_table(store)
    table.write(make_rows(0, 10), added=10)
    with pytest.raises(StateError, match="lacks the key `x`") as caught:
        KeyedTable.decode(store, 0, "t", ["key x"], table.encode(), FrameCache(0)).find(
            pl.DataFrame({"h": [0], "key x": [0]})
        )
    assert caught.value.code == "foreign-state"
    store.pages.clear()
    with pytest.raises(StateError, match="page 0 of the state table `t` is missing") as caught:
        open_table(store, table.encode()).find(make_rows(0, 1))
    assert caught.value.code == "damaged-page"
