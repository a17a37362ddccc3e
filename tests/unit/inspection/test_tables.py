"""State as tables: operators run in memory, and their pages are read back with the information of a
manifest only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from property.changelogs import ChangingQuery
from property.queries import Query

from everfold.aggregates.registry import names
from everfold.compat import shape_of
from everfold.compat.serde import from_json, to_json
from everfold.compat.shape import OperatorShape
from everfold.errors import StateError
from everfold.inspection.reader import read_tables
from everfold.inspection.sizes import sizes_of
from everfold.inspection.tables import StateTable, to_state_table
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.changelog import KIND, ChangelogMode, RowKind
from everfold.plan.walk import operators_of
from everfold.sql.catalog import CatalogTable
from everfold.sql.planner import Session, Submit
from everfold.state.store import MemoryStore

FUNCTIONS = Path(__file__).parents[2] / "cases" / "group"
TABLE = "CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);"
START = datetime(2020, 1, 1)
ROWS: list[list[tuple[int, str, int | None]]] = [
    [(0, "a", 1), (3, "b", 5), (4, "a", 2)],
    [(30, "a", 7), (31, "c", None)],
    [(65, "a", 9), (5, "b", 1)],
]
"""Batches of rows: second, key, value."""


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def feed_batches(
    query: Query, batches: Sequence[Sequence[tuple[int, str, int | None]]] = ROWS, buckets: int = 3
) -> MemoryPipeline:
    """Return a pipeline that has processed the batches, one per second."""
    pipeline = query.pipeline(buckets=buckets)
    for number, batch in enumerate(batches):
        rows = [{"ts": at(second), "k": k, "v": v} for second, k, v in batch]
        pipeline.feed(query.input(e=rows), now_ms=number * 1000)
    return pipeline


def shapes(pipeline: MemoryPipeline) -> list[OperatorShape]:
    """Return the operators as a manifest describes them, topmost first."""
    return list(from_json(json.loads(json.dumps(to_json(shape_of(pipeline._root))))).operators)


def tables(pipeline: MemoryPipeline, operator: int = 0) -> dict[str, StateTable]:
    shape = shapes(pipeline)[operator]
    return {each.name: to_state_table(shape, each) for each in read_tables(shape, stores(pipeline, operator), 0)}


def stores(pipeline: MemoryPipeline, operator: int = 0) -> list[MemoryStore]:
    return pipeline._stages[operators_of([pipeline._root])[operator].operator_id].stores


def content(table: StateTable) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    assert table.rows.schema.names == list(table.schema.names)
    assert [of.type for of in table.rows.schema] == [of.type.arrow for of in table.schema]
    return table.schema.names, [tuple(row.values()) for row in table.rows.to_pylist()]


def read_state(
    select: str, operator: int = 0, buckets: int = 3
) -> dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Return the state that an operator keeps of the rows, by table.

    `select` may begin with options.
    """
    *options, query = select.split("; ")
    pipeline = feed_batches(Query("; ".join([*options, TABLE + query])), buckets=buckets)
    return {name: content(table) for name, table in tables(pipeline, operator).items()}


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 3])
def test_groups_have_their_keys_and_slots(buckets: int) -> None:
    select = "SELECT UPPER(k), AVG(v), COUNT(*), COUNT(DISTINCT v) FROM e GROUP BY UPPER(k)"
    found = read_state(select, buckets=buckets)
    header = ("UPPER(k)", "AVG(v) sum", "AVG(v) nonnull", "COUNT(*)", "COUNT(DISTINCT v)")
    assert found["groups"] == (header, [("A", 19, 4, 4, 4), ("B", 6, 2, 2, 2), ("C", 0, 0, 1, 0)])
    values = [("A", 1, 1), ("A", 2, 1), ("A", 7, 1), ("A", 9, 1), ("B", 1, 1), ("B", 5, 1), ("C", None, 1)]
    assert found["values e.v"] == (("UPPER(k)", "v", "count"), values)


def test_a_group_of_all_rows_has_no_key() -> None:
    assert read_state("SELECT COUNT(*), MIN(v) FROM e") == {"groups": (("COUNT(*)", "MIN(v)"), [(7, 1)])}


def test_retracted_groups_are_not_shown() -> None:
    found = read_state("SELECT m, COUNT(*), MIN(m) FROM (SELECT k, MAX(v) AS m FROM e GROUP BY k) GROUP BY m")
    assert found["groups"][0] == ("m", "COUNT(*)", "MIN(m)", "rows")
    # The maximum of a was 2, then 7, then 9.
    assert found["groups"][1] == [(None, 1, None, 1), (5, 1, 5, 1), (9, 1, 9, 1)]
    assert found["values MAX(e.v)"] == (("m", "m #2", "count"), [(None, None, 1), (5, 5, 1), (9, 9, 1)])


def test_the_newest_version_of_each_of_many_groups_is_shown() -> None:
    query = Query(TABLE + "SELECT m, COUNT(*) FROM (SELECT k, MAX(v) AS m FROM e GROUP BY k) GROUP BY m")
    batches = [[(0, f"key {n % 6000}", n % 97 + 1000 * batch) for n in range(batch, 6000, 3)] for batch in range(9)]
    pipeline = feed_batches(query, batches, buckets=2)
    greatest: dict[str, int] = {}
    for batch in batches:
        greatest.update((k, v) for _, k, v in batch)
    assert content(tables(pipeline, 1)["groups"])[1] == sorted(greatest.items())
    wanted = sorted(Counter(greatest.values()).items())
    assert [row[:2] for row in content(tables(pipeline)["groups"])[1]] == wanted


def test_expired_groups_are_not_shown_and_the_last_update_is() -> None:
    (name, key, *_), rows = read_state("SET 'table.exec.state.ttl' = '1 s'; SELECT k, SUM(v) FROM e GROUP BY k")[
        "groups"
    ]
    assert (name, key) == ("k", "SUM(v) sum")
    updated = [datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in (2, 2, 1)]
    assert [(row[0], row[-1]) for row in rows] == list(zip("abc", updated, strict=True))
    header, rows = read_state("SET 'table.exec.state.ttl' = '500 ms'; SELECT k, SUM(v) FROM e GROUP BY k")["groups"]
    assert header[-1] == "last update"
    assert [row[:2] for row in rows] == [("a", 9), ("b", 1)]


def test_groups_of_completed_windows_are_not_shown() -> None:
    options = "SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '1 h'; "
    select = "SELECT window_start, k, MAX(v) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k"
    header, rows = read_state(options + select, operator=1)["groups"]
    assert header == ("window_start", "window_end", "window_time", "k", "MAX(v)")
    window = (at(60), at(120), datetime(2020, 1, 1, 0, 1, 59, 999000))
    assert rows == [(*window, "a", 9)]
    header, rows = read_state(options + select)["waiting"]
    assert header == ("op", "window_start", "window_end", "window_time", "k", "MAX(v)")
    assert rows == [("+I", *window, "a", 9)]


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 3])
def test_slices_are_merged_from_all_batches(buckets: int) -> None:
    select = "SELECT k, SUM(v), LISTAGG(k, ''), COUNT(DISTINCT v), COLLECT(v) FROM HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) GROUP BY window_start, window_end, k"
    found = read_state(select, buckets=buckets)
    assert found.keys() == {"slices"}
    header, rows = found["slices"]
    sums = ("SUM(v) sum", "SUM(v) nonnull")
    assert header == ("slice_start", "slice_end", "k", *sums, "LISTAGG(k, '')", "COUNT(DISTINCT v)", "COLLECT(v)")
    first, second = (at(0), at(60)), (at(60), at(120))

    def bag(*values: int) -> list[dict[str, int]]:
        return [{"value": value, "count": 1} for value in values]

    assert rows == [
        (*first, "a", 10, 3, "aaa", [1, 2, 7], bag(1, 2, 7)),
        (*first, "b", 6, 2, "bb", [5, 1], bag(5, 1)),
        (*first, "c", 0, 0, "c", [], []),
        (*second, "a", 9, 1, "a", [9], bag(9)),
    ]


def test_a_slice_that_is_a_whole_window_is_shown_as_a_window() -> None:
    select = (
        "SELECT window_start FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end"
    )
    assert read_state(select) == {"slices": (("window_start", "window_end"), [(at(0), at(3600))])}


def test_cumulate_has_slices_and_totals() -> None:
    select = "SELECT k, MAX(v) FROM CUMULATE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE) GROUP BY window_start, window_end, k"
    found = read_state(select)
    assert found["slices"] == (("slice_start", "slice_end", "k", "MAX(v)"), [(at(60), at(120), "a", 9)])
    rows = [(at(0), at(600), "a", 7), (at(0), at(600), "b", 5), (at(0), at(600), "c", None)]
    assert found["totals"] == (("window_start", "window_end", "k", "MAX(v)"), rows)


def test_sessions_have_their_bounds() -> None:
    select = "SELECT k, COUNT(v) FROM SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k"
    rows = [(at(0), at(125), "a", 4), (at(3), at(65), "b", 2), (at(31), at(91), "c", 0)]
    assert read_state(select) == {"sessions": (("window_start", "window_end", "k", "COUNT(v)"), rows)}


def test_rows_of_sessions_are_shown_as_rows() -> None:
    select = "SELECT * FROM SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    header, rows = read_state(select)["sessions"]
    assert header == ("ts", "k", "v")
    assert sorted(rows, key=str) == sorted(((at(second), k, v) for batch in ROWS for second, k, v in batch), key=str)


@pytest.mark.parametrize("name", names())
def test_an_aggregate_has_the_same_state_from_many_batches_as_from_one(name: str) -> None:
    of = {"LISTAGG": "k", "JSON_ARRAYAGG": "k", "PERCENTILE": "v, 0.5", "JSON_OBJECTAGG": "KEY k VALUE v"}.get(
        name, "v"
    )
    distinct = "DISTINCT " if name in ("SUM", "AVG", "COUNT", "LISTAGG", "ARRAY_AGG") else ""
    select = f"SELECT k, {name}({of}), {name}({distinct}{of}) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, k"
    batches = [[row] for row in (ROWS[0][0], ROWS[0][1], ROWS[1][1])] if name == "SINGLE_VALUE" else ROWS
    query = Query(TABLE + select)
    one, many = feed_batches(query, [[row for batch in batches for row in batch]]), feed_batches(query, batches)
    found, wanted = (content(tables(each)["slices"]) for each in (many, one))
    assert found == wanted
    assert len(found[1]) == 3


# --- rows -----------------------------------------------------------------------------------------


def test_over_a_range_keeps_waiting_rows_and_those_that_a_frame_reaches() -> None:
    found = read_state("SELECT SUM(v) OVER (PARTITION BY k ORDER BY ts RANGE INTERVAL '25' SECOND PRECEDING) FROM e")
    assert found["waiting"] == (("ts", "k", "v"), [(at(65), "a", 9)])
    # The watermark is at second 64, and rows are kept for one and a half times the frame.
    assert found["rows"][0] == ("k", "ts", "SUM(v) sum", "SUM(v) nonnull")
    assert found["rows"][1] == [("a", at(30), 7, 1), ("c", at(31), 0, 0)]


def test_over_rows_keeps_the_last_rows_of_each_partition() -> None:
    found = read_state("SELECT MAX(v) OVER (PARTITION BY k ORDER BY ts ROWS 2 PRECEDING) FROM e")
    rows = [("a", at(4), 2), ("a", at(30), 7), ("b", at(3), 5), ("b", at(5), 1), ("c", at(31), None)]
    assert found["rows"] == (("k", "ts", "MAX(v)"), rows)


def test_over_by_a_column_keeps_all_rows() -> None:
    for select in ("SUM(v) OVER (PARTITION BY k ORDER BY v DESC)", "RANK() OVER (PARTITION BY k ORDER BY v + 1)"):
        found = read_state(f"SELECT k, v, {select} FROM e")
        assert found.keys() == {"rows"}
        header, rows = found["rows"]
        at_k, at_v = header.index("k"), header.index("v")
        assert sorted((row[at_k], row[at_v]) for row in rows if row[at_v] is not None) == [
            ("a", 1),
            ("a", 2),
            ("a", 7),
            ("a", 9),
            ("b", 1),
            ("b", 5),
        ]


def test_over_without_a_bound_keeps_totals() -> None:
    found = read_state("SELECT COUNT(v) OVER (PARTITION BY k ORDER BY ts) FROM e")
    assert found["totals"] == (("k", "COUNT(v)"), [("a", 3), ("b", 1), ("c", 0)])


def test_top_n_shows_the_rows_that_it_keeps() -> None:
    rank = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n"
    header, rows = read_state(f"SELECT k, v FROM (SELECT *, {rank} FROM e) WHERE n <= 2")["rows"]
    assert header == ("ts", "k", "v")
    kept = [(at(30), "a", 7), (at(65), "a", 9), (at(3), "b", 5), (at(5), "b", 1), (at(31), "c", None)]
    assert sorted(rows, key=str) == sorted(kept, key=str)


def test_rows_ranked_by_arrival_are_kept_as_keys() -> None:
    rank = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY PROCTIME()) AS n"
    found = read_state(f"SELECT k, v FROM (SELECT *, {rank} FROM e) WHERE n = 1")
    assert found == {"rows": (("k",), [("a",), ("b",), ("c",)])}


@pytest.mark.parametrize(("order", "values"), [("v DESC", (9, 5, None)), ("v", (1, 1, None)), ("v * -1", (9, 5, None))])
def test_rows_that_a_window_will_not_emit_are_not_shown(order: str, values: tuple[Any, ...]) -> None:
    rank = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY {order}) AS n"
    window = "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR)"
    header, rows = read_state(f"SELECT k, v FROM (SELECT *, {rank} FROM {window}) WHERE n = 1")["rows"]
    assert header[1:3] == ("k", "v")
    assert sorted((row[1], row[2]) for row in rows) == list(zip("abc", values, strict=True))


def test_retracted_rows_are_not_shown() -> None:
    changing = ChangingQuery("SELECT k, SUM(v) FROM t GROUP BY k", ChangelogMode.ALL)
    insert, back, delete = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.DELETE
    changing.feed([(insert, ("a", 1)), (insert, ("b", 2)), (insert, ("c", 3))])
    changing.feed([(back, ("a", 1)), (RowKind.UPDATE_AFTER, ("a", 7)), (delete, ("c", 3))])
    names_, rows = content(tables(changing.pipeline)["groups"])
    assert names_ == ("k", "SUM(v) sum", "SUM(v) nonnull", "rows")
    assert rows == [("a", 7, 1, 1), ("b", 2, 1, 1)]


@pytest.mark.parametrize(
    ("window", "table"),
    [
        ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "slices"),
        ("SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)", "sessions"),
    ],
)
def test_windows_whose_rows_were_retracted_are_not_shown(window: str, table: str) -> None:
    session = Session()
    list(session.run("CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"))
    entry = session.catalog.find(("t",))
    assert isinstance(entry, CatalogTable)
    session.catalog.replace(replace(entry, table=replace(entry.table, changelog=ChangelogMode.ALL)))
    (submit,) = session.run(f"SELECT k, SUM(v), MAX(v) FROM {window} GROUP BY window_start, window_end, k")
    assert isinstance(submit, Submit)
    pipeline = MemoryPipeline(submit.roots[0], submit.settings)
    for rows in ([("a", 1, 0), ("b", 5, 0), ("a", 7, 0)], [("a", 7, 3), ("b", 5, 3)]):
        keys, values, kinds = zip(*rows, strict=True)
        times = pa.array([START] * len(rows), pa.timestamp("us"))
        columns = [pa.array(keys), pa.array(values, pa.int32()), times, pa.array(kinds, pa.int8())]
        pipeline.feed({"t": pa.table(columns, names=["c0", "c1", "c2", KIND])}, now_ms=0)
    header, rows_ = content(tables(pipeline)[table])
    assert header == ("window_start", "window_end", "k", "SUM(v) sum", "SUM(v) nonnull", "MAX(v)")
    assert rows_ == [(at(0), at(3600), "a", 1, 1, [{"value": 1, "count": 1}])]
    (shape,) = shapes(pipeline)
    pages = [page for store in stores(pipeline) for page in store.pages.items()]
    assert "aggregates that are gone" not in sizes_of(shape, pages).parts


# --- names, types, changes ------------------------------------------------------------------------


def test_types_are_those_of_the_query() -> None:
    query = Query(
        "SET 'table.local-time-zone' = 'Europe/Berlin'; CREATE TABLE e (t TIME, l TIMESTAMP_LTZ(3), d DECIMAL(10, 2), i INT);"
        "SELECT t, l, MAX(l), SUM(d), MIN(t) FROM e GROUP BY t, l"
    )
    pipeline = query.pipeline()
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    pipeline.feed(query.input(e=[{"t": 3_600_000, "l": noon, "d": Decimal("1.50"), "i": 1}]), now_ms=0)
    found = tables(pipeline)["groups"]
    types = dict(zip(found.schema.names, (of.type.sql for of in found.schema), strict=True))
    assert types == {
        "t": "TIME(0)",
        "l": "TIMESTAMP_LTZ(3)",
        "MAX(l)": "TIMESTAMP_LTZ(3)",
        "SUM(d) sum": "DECIMAL(38, 2)",
        "SUM(d) nonnull": "BIGINT",
        "MIN(t)": "TIME(0)",
    }
    assert content(found)[1] == [(3_600_000, noon, noon, Decimal("1.50"), 1, 3_600_000)]


def test_names_that_differ_only_in_case_are_numbered() -> None:
    found = read_state("SELECT x, X, MAX(v) FROM (SELECT k AS x, UPPER(k) AS X, v FROM e) GROUP BY x, X")
    assert found["groups"] == (("x", "X #2", "MAX(v)"), [("a", "A", 9), ("b", "B", 5), ("c", "C", None)])


def test_a_new_aggregate_has_no_state_of_earlier_rows() -> None:
    old = Query(TABLE + "SELECT k, SUM(v), MAX(v) FROM e GROUP BY k")
    new = Query(TABLE + "SELECT k, SUM(v), COUNT(*) FROM e GROUP BY k")
    pipeline = feed_batches(old, ROWS[:2]).change_query(new.root, 1)
    header, rows = content(tables(pipeline)["groups"])
    assert header == ("k", "SUM(v) sum", "SUM(v) nonnull", "COUNT(*)")
    assert rows == [("a", 10, 3, None), ("b", 5, 1, None), ("c", 0, 0, None)]
    pipeline.feed(new.input(e=[{"ts": at(65), "k": "a", "v": 9}]), now_ms=2000)
    header, rows = content(tables(pipeline)["groups"])
    assert header == ("k", "SUM(v) sum", "SUM(v) nonnull", "COUNT(*)")
    assert rows == [("a", 19, 4, 1), ("b", 5, 1, None), ("c", 0, 0, None)]
    (shape,) = shapes(pipeline)
    assert [(call.label, call.since) for call in shape.calls] == [("SUM(v)", 0), ("COUNT(*)", 1)]


@pytest.mark.parametrize(
    "source",
    ["e GROUP BY k", "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, k"],
)
def test_a_derived_aggregate_reuses_the_state_of_another(source: str) -> None:
    old, new = (Query(TABLE + f"SELECT k, {call}(v) FROM {source}") for call in ("SUM", "AVG"))
    extended = Session().settings.with_option("everfold.compat.rules", "extended")
    pipeline = feed_batches(old, ROWS[:2]).change_query(new.root, 1, extended)
    pipeline.feed(new.input(e=[{"ts": at(65), "k": "a", "v": 9}]), now_ms=2000)
    (table,) = tables(pipeline).values()
    header, rows = content(table)
    assert header[-3:] == ("k", "AVG(v) sum", "AVG(v) nonnull")
    assert [row[-3:] for row in rows] == [("a", 19, 4), ("b", 5, 1), ("c", 0, 0)]


@pytest.mark.parametrize(
    "window",
    [
        "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
        "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    ],
)
def test_backfilled_state_is_merged_with_newer_state(window: str) -> None:
    group = f"FROM {window} GROUP BY window_start, window_end, k"
    old, new = (Query(TABLE + f"SELECT k, SUM(v){more} {group}") for more in ("", ", COUNT(*)"))
    history = new.input(e=[{"ts": at(second), "k": k, "v": v} for batch in ROWS[:2] for second, k, v in batch])
    pipeline = feed_batches(old, ROWS[:2]).change_query(new.root, 1, history=history)
    pipeline.feed(new.input(e=[{"ts": at(65), "k": "a", "v": 9}]), now_ms=2000)
    (table,) = tables(pipeline).values()
    header, rows = content(table)
    assert header == ("window_start", "window_end", "k", "SUM(v) sum", "SUM(v) nonnull", "COUNT(*)")
    assert [row[2:] for row in rows] == [("a", 19, 4, 4), ("b", 5, 1, 1), ("c", 0, 0, 1)]


def test_an_aggregate_that_is_dropped_and_added_again_ignores_its_old_state() -> None:
    window = "FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, k"
    with_max, without = (Query(TABLE + f"SELECT k, SUM(v){more} {window}") for more in (", MAX(v)", ""))
    pipeline = feed_batches(with_max, ROWS[:1]).change_query(without.root, 1)
    pipeline.feed(without.input(e=[{"ts": at(30), "k": "a", "v": 7}]), now_ms=1000)
    pipeline = pipeline.change_query(with_max.root, 2)
    pipeline.feed(with_max.input(e=[{"ts": at(31), "k": "a", "v": 3}]), now_ms=2000)
    header, rows = content(tables(pipeline)["slices"])
    assert header == ("window_start", "window_end", "k", "SUM(v) sum", "SUM(v) nonnull", "MAX(v)")
    assert [row[2:] for row in rows] == [("a", 13, 4, 3), ("b", 5, 1, None)]


def test_reading_state_does_not_call_a_python_aggregate() -> None:
    functions = "CREATE FUNCTION mean AS 'functions.weighted_mean' LANGUAGE PYTHON;"
    window = "FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, k"
    query = Query(functions + TABLE + f"SELECT k, mean(v, 1) {window}", folder=FUNCTIONS)
    header, rows = content(tables(feed_batches(query))["slices"])
    assert [name.rpartition(" ")[2] for name in header[2:]] == ["k", "accumulators", "rows"]
    # An accumulator is a sum and a count; those of the batches are in order.
    sums = {row[2]: [tuple(each.values()) for each in row[3]] for row in rows}
    assert sums == {"a": [(3, 2), (7, 1), (9, 1)], "b": [(5, 1), (1, 1)], "c": [(0, 0)]}
    assert [row[4] for row in rows] == [[], [], []]


# --- damage and sizes -----------------------------------------------------------------------------


def test_a_damaged_page_is_reported() -> None:
    pipeline = feed_batches(Query(TABLE + "SELECT k, SUM(v) FROM e GROUP BY k"), buckets=1)
    (store,) = stores(pipeline)
    key = next(key for key in store.pages if key.table == "groups")
    whole = store.pages[key]
    store.pages[key] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(StateError, match="damaged-page"):
        tables(pipeline)
    del store.pages[key]
    with pytest.raises(StateError, match="damaged-page"):
        tables(pipeline)


def test_pages_of_a_discarded_epoch_are_not_read() -> None:
    pipeline = feed_batches(Query(TABLE + "SELECT k, SUM(v) FROM e GROUP BY k"))
    (shape,) = shapes(pipeline)
    assert read_tables(shape, stores(pipeline), 1) == []


def test_an_unknown_aggregate_is_reported() -> None:
    pipeline = feed_batches(
        Query(
            TABLE
            + "SELECT k, SUM(v) FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end, k"
        )
    )
    (shape,) = shapes(pipeline)
    unknown = replace(shape, calls=(replace(shape.calls[0], function=""),))
    with pytest.raises(StateError, match="unknown-aggregate-state") as caught:
        read_tables(unknown, stores(pipeline), 0)
    assert "`SUM(v)`" in str(caught.value)


def test_sizes_add_up() -> None:
    old = Query(TABLE + "SELECT k, SUM(v), MAX(v), COUNT(DISTINCT v) FROM e GROUP BY k")
    new = Query(TABLE + "SELECT k, SUM(v), COUNT(DISTINCT v) FROM e GROUP BY k")
    pipeline = feed_batches(old).change_query(new.root, 1)
    (shape,) = shapes(pipeline)
    pages = [page for store in stores(pipeline) for page in store.pages.items()]
    found = sizes_of(shape, pages)
    lengths = sorted(len(blob) for _, blob in pages)
    assert (found.pages, found.bytes, found.largest) == (len(lengths), sum(lengths), lengths[-1])
    assert found.median == lengths[(len(lengths) - 1) // 2]
    assert sum(found.parts.values()) == found.bytes
    assert found.parts.keys() == {
        "SUM(v)", "COUNT(DISTINCT v)", "keys", "values of DISTINCT, MIN and MAX", "aggregates that are gone", "bookkeeping",
    }  # fmt: skip
    # Three groups: two slots of 8 bytes, one of 8, one of 4 that was dropped.
    assert [found.parts[part] for part in ("SUM(v)", "COUNT(DISTINCT v)")] == [48, 24]
    assert 12 <= found.parts["aggregates that are gone"] <= 15
    assert sum(pages for pages, _ in found.tables.values()) == found.pages
    assert sum(size for _, size in found.tables.values()) == found.bytes
    assert found.tables.keys() == {"groups", "head", "values e.v"}


def test_without_pages_all_sizes_are_zero() -> None:
    (shape,) = shape_of(Query(TABLE + "SELECT k, SUM(v) FROM e GROUP BY k").root).operators
    found = sizes_of(shape, [])
    assert (found.pages, found.bytes, found.largest, found.median) == (0, 0, 0, 0)
