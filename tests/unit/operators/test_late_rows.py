"""Examples of late rows: what each kind of operator says about them, and how many it takes."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from property.queries import Query

from everfold.operators.protocol import Stats

TABLE = "CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND);"
START = datetime(2020, 1, 1)
START_MS = 1_577_836_800_000
"""2020-01-01 00:00:00 UTC."""
WINDOWED = "FROM {window}(TABLE e{keys}, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k"
TUMBLE = f"{TABLE} SELECT k, SUM(v) AS s {WINDOWED.format(window='TUMBLE', keys='')}"
SESSION = f"{TABLE} SELECT k, SUM(v) AS s {WINDOWED.format(window='SESSION', keys=' PARTITION BY k')}"
EARLY = (
    f"""SET 'table.exec.emit.early-fire.enabled' = 'true'; SET 'table.exec.emit.early-fire.delay' = '1 s'; {TUMBLE}"""
)
OVER = f"{TABLE} SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) AS s FROM e"
FIRST = f"""{TABLE} SELECT k, v
FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM e) WHERE n = 1"""
TOP_OF_WINDOWS = f"""{TABLE} SELECT k, v
FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v) AS n
FROM TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE n = 1"""


def run_late(sql: str, late: list[tuple[int, str, int]], buckets: int = 1) -> Stats:
    """Return the report of the lowest operator.

    late: rows (second, key, value) that arrive when the watermark is at 100 s.
    """
    query = Query(sql)
    pipeline = query.pipeline(buckets=buckets)
    for rows in ([(100, "a", 1)], [(101, "a", 1)], late):
        made = [{"ts": START + timedelta(seconds=at), "k": k, "v": v} for at, k, v in rows]
        pipeline.feed(query.input(e=made))
    return pipeline.stats[0]


@pytest.mark.parametrize(
    ("sql", "seconds", "is_window_end", "some_values"),
    [
        (TUMBLE, 10, True, {"e.k": "b"}),
        (SESSION, 13, True, {"e.k": "b"}),
        (EARLY, 10, True, {"e.k": "b", "window_start": "2020-01-01 00:00:00"}),
        (OVER, 3, False, {"e.k": "b", "e.v": "7"}),
        (FIRST, 3, False, {"e.k": "b", "e.v": "7"}),
        (TOP_OF_WINDOWS, 10, True, {"e.k": "b", "e.v": "7"}),
    ],
    ids=["window", "session", "early results", "over", "first row", "top of windows"],
)
def test_what_an_operator_says(sql: str, seconds: int, is_window_end: bool, some_values: dict[str, str]) -> None:
    stats = run_late(sql, [(3, "b", 7)])
    (row,) = stats.late
    assert stats.late_rows == 1
    assert (row.time_ms, row.is_window_end) == (START_MS + seconds * 1000, is_window_end)
    assert row.watermark_ms == START_MS + 100_000
    assert some_values.items() <= row.values.items()
    assert Stats.decode(stats.encode()) == stats


def test_their_number_and_their_length_are_bounded() -> None:
    stats = run_late(OVER, [(3, f"{at} {'x' * 500}", at) for at in range(50)], buckets=2)
    assert stats.late_rows == 50
    assert len(stats.late) == 4, "two in each bucket"
    assert all(len(value) <= 200 for row in stats.late for value in row.values.values())


def test_a_batch_without_late_rows_has_none() -> None:
    assert run_late(OVER, [(3, "b", 7)]).late != ()
    assert run_late(OVER, [(103, "b", 7)]).late == ()
