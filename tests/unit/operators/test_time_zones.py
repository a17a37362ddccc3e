"""Conversion between UTC and local time in watermarks and windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK
from everfold.operators.time_zones import closed_until, to_utc, zone_of

MINUTE, HOUR = 60_000, 3_600_000


def ms(*parts: int) -> int:
    return (datetime(*parts) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # type: ignore[arg-type]


def test_without_a_zone_local_time_is_utc() -> None:
    assert closed_until(41, None) == 42
    assert to_utc([5], None) == {5: 5}


def test_the_first_and_last_watermarks_are_converted() -> None:
    assert closed_until(NO_WATERMARK, "Europe/Berlin") == NO_WATERMARK
    assert closed_until(END_OF_TIME, "Europe/Berlin") == END_OF_TIME


@pytest.mark.parametrize("time_ms", [1 << 60, -(1 << 60), ms(9999, 12, 31), ms(1, 1, 1)])
def test_times_beyond_the_years_of_python_have_the_rules_of_the_zone(time_ms: int) -> None:
    assert closed_until(time_ms, "+09:00") == time_ms + 1 + 9 * HOUR
    assert to_utc([time_ms], "+09:00") == {time_ms: time_ms - 9 * HOUR}


def test_a_day_without_a_clock_change_is_converted() -> None:
    assert closed_until(ms(2020, 6, 1, 10) - 1, "Asia/Shanghai") == ms(2020, 6, 1, 18)
    assert to_utc([ms(2020, 6, 1, 18)], "Asia/Shanghai") == {ms(2020, 6, 1, 18): ms(2020, 6, 1, 10)}


@pytest.mark.parametrize(
    ("utc", "local"),
    [
        # Berlin, 2020-10-25: 03:00 becomes 02:00 at 01:00 UTC.
        (ms(2020, 10, 24, 23, 59), ms(2020, 10, 25, 1, 59)),
        (ms(2020, 10, 25, 0, 0), ms(2020, 10, 25, 2, 0)),
        (ms(2020, 10, 25, 0, 30), ms(2020, 10, 25, 2, 0)),
        (ms(2020, 10, 25, 0, 59), ms(2020, 10, 25, 2, 0)),
        (ms(2020, 10, 25, 1, 0), ms(2020, 10, 25, 2, 0)),
        (ms(2020, 10, 25, 1, 30), ms(2020, 10, 25, 2, 30)),
        (ms(2020, 10, 25, 2, 0), ms(2020, 10, 25, 3, 0)),
        # 2020-03-29: 02:00 becomes 03:00 at 01:00 UTC.
        (ms(2020, 3, 29, 0, 59), ms(2020, 3, 29, 1, 59)),
        (ms(2020, 3, 29, 1, 0), ms(2020, 3, 29, 3, 0)),
    ],
)
def test_watermarks_are_converted_at_clock_changes(utc: int, local: int) -> None:
    assert closed_until(utc - 1, "Europe/Berlin") == local


def test_a_window_end_closes_when_no_later_instant_is_before_it() -> None:
    start, zone = ms(2020, 10, 24, 22), "Europe/Berlin"
    instants = (datetime.fromtimestamp((start + at * MINUTE) / 1000, ZoneInfo(zone)) for at in range(300))
    walls = [ms(*each.timetuple()[:6]) for each in instants]
    for at in range(200):
        assert closed_until(start + at * MINUTE - 1, zone) == min(walls[at:])


def test_ambiguous_and_missing_local_times_have_one_instant() -> None:
    twice, never = ms(2020, 10, 25, 2, 30), ms(2020, 3, 29, 2, 30)
    assert to_utc([twice, never], "Europe/Berlin") == {twice: ms(2020, 10, 25, 0, 30), never: ms(2020, 3, 29, 1, 30)}


@pytest.mark.parametrize("name", ["GMT+08:00", "+08:00", "UTC+8", "Etc/GMT-8"])
def test_fixed_offsets_are_accepted(name: str) -> None:
    assert datetime(2020, 1, 1, tzinfo=zone_of(name)).utcoffset() == timedelta(hours=8)
    assert datetime(2020, 1, 1, tzinfo=zone_of("-03:30")).utcoffset() == timedelta(hours=-3.5)
