"""Times beyond the years of Python are shown as Java shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from everfold.connectors.printing import java_string
from everfold.far_times import to_values, to_zone
from everfold.table.result import TableResult
from everfold.types import DATE, TIMESTAMP3, Field, Schema

MICROS = {
    253_402_300_800_000_000: "+10000-01-01 00:00:00",
    -62_135_596_800_000_001: "0000-12-31 23:59:59.999999",
    9_000_000_000_000_000_000: "+287168-08-24 16:00:00",
    -9_000_000_000_000_000_000: "-283229-05-10 08:00:00",
    0: "1970-01-01 00:00:00",
}
"""Microseconds since 1970, and their times as java.time.LocalDateTime has them."""
DAYS = {
    2_932_897: "+10000-01-01",
    -719_163: "0000-12-31",
    2_147_483_647: "+5881580-07-11",
    -2_147_483_648: "-5877641-06-23",
    0: "1970-01-01",
}
"""Days since 1970, and their dates as java.time.LocalDate has them."""


def test_times_and_dates_are_those_of_java() -> None:
    times = to_values(pa.array([*MICROS, None], pa.timestamp("us")))
    assert [None if time is None else time.isoformat(" ") for time in times] == [*MICROS.values(), None]
    dates = to_values(pa.array(list(DAYS), pa.int32()).cast(pa.date32()))
    assert [str(date) for date in dates] == list(DAYS.values())


def test_instants_are_shown_in_a_zone() -> None:
    (time,) = to_values(pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC")))
    assert time.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None).isoformat(" ") == "+10000-01-01 09:00:00"


@pytest.mark.parametrize(
    ("instant", "zone", "local"),
    [
        (datetime(1, 1, 1, tzinfo=UTC), "America/New_York", "0000-12-31 19:03:58"),
        (datetime(9999, 12, 31, 23, tzinfo=UTC), "Asia/Tokyo", "+10000-01-01 08:00:00"),
        (datetime(2020, 7, 1, tzinfo=UTC), "Europe/Berlin", "2020-07-01 02:00:00"),
    ],
)
def test_a_zone_may_move_a_time_beyond_the_years_of_python(instant: datetime, zone: str, local: str) -> None:
    assert to_zone(instant, ZoneInfo(zone)).replace(tzinfo=None).isoformat(" ") == local


@pytest.mark.parametrize(
    ("arrow_type", "value"),
    [
        (pa.list_(pa.timestamp("us")), [253_402_300_800_000_000, None]),
        (pa.map_(pa.string(), pa.timestamp("us")), [("a", 253_402_300_800_000_000), ("b", 0)]),
        (pa.struct([("a", pa.timestamp("us")), ("b", pa.int32())]), {"a": 253_402_300_800_000_000, "b": 1}),
    ],
    ids=["list", "map", "struct"],
)
def test_nested_times_are_shown(arrow_type: pa.DataType, value: object) -> None:
    assert "+10000-01-01" in str(java_nested(to_values(pa.array([value, None], arrow_type))))


def java_nested(value: object) -> object:
    match value:
        case dict():
            return {name: java_nested(part) for name, part in value.items()}
        case list() | tuple():
            return [java_nested(part) for part in value]
        case _:
            return str(value)


def test_print_shows_them_as_java_does() -> None:
    (time,) = to_values(pa.array([253_402_300_800_001_000], pa.timestamp("us")))
    assert java_string(time, TIMESTAMP3) == "+10000-01-01T00:00:00.001"
    (date,) = to_values(pa.array([2_932_897], pa.int32()).cast(pa.date32()))
    assert java_string(date, DATE) == "+10000-01-01"


def test_results_are_printed_and_refused_as_python_values() -> None:
    rows = pa.table({"a": pa.array([253_402_300_800_000_000], pa.timestamp("us"))})
    result = TableResult(rows, schema=Schema((Field(name="a", type=TIMESTAMP3),)))
    out = StringIO()
    result.print(out)
    assert "| +10000-01-01 00:00:00.000 |" in out.getvalue()
    with pytest.raises(ValueError, match=r"beyond the years 1 to 9999.*use to_arrow\(\)"):
        result.collect()
