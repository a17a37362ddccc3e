"""Conditions over tables in memory: what they can read, and the errors for wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from everfold.errors import UsageError
from everfold.inspection.filter import NoSuchColumn, check_condition, filter_rows
from everfold.types import BIGINT, STRING, TIME, TIMESTAMP_LTZ3, Field, Schema

SCHEMA = Schema(
    (
        Field(name="k", type=STRING),
        Field(name="SUM(v) sum", type=BIGINT),
        Field(name="seen", type=TIMESTAMP_LTZ3),
        Field(name="clock", type=TIME),
    )
)
NOON = datetime(2020, 7, 1, 12, tzinfo=UTC)
ROWS = pa.table(
    {
        "k": pa.array(["a", "b", None, "d"]),
        "SUM(v) sum": pa.array([3, None, 5, 7]),
        "seen": pa.array([NOON, NOON, None, NOON.replace(hour=13)], pa.timestamp("us", tz="UTC")),
        "clock": pa.array([0, 3_600_000, 7_200_000, None], pa.int32()),
    }
)


def filter_keys(condition: str, zone: str = "UTC") -> list[str | None]:
    found: list[str | None] = filter_rows(ROWS, SCHEMA, condition, zone)["k"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("k = 'a'", ["a"]),
        ('"SUM(v) sum" > 3', [None, "d"]),
        ("k IS NULL OR K IN ('d', 'a')", ["a", None, "d"]),
        ("clock >= '01:00:00'", ["b", None]),
        ("seen = '2020-07-01 12:00:00'", ["a", "b"]),
        ("TRUE -- all of them", ["a", "b", None, "d"]),
        ("FALSE", []),
    ],
)
def test_rows_that_meet_a_condition_keep_their_order(condition: str, keys: list[str | None]) -> None:
    check_condition(condition)
    assert filter_keys(condition) == keys


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 12), ("Europe/Berlin", 14), ("GMT+05:00", 17)])
def test_instants_are_compared_in_the_displayed_zone(zone: str, hour: int) -> None:
    assert filter_keys(f"seen = '2020-07-01 {hour}:00:00'", zone) == ["a", "b"]


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(NoSuchColumn, match='"nobody" not found'):
        filter_keys("nobody = 1")


@pytest.mark.parametrize(
    "condition",
    [
        "k =",
        "k = 'a' AND",
        "",
        "1=0) UNION ALL SELECT 99 WHERE (1=1",
        "TRUE); DROP VIEW state; --",
        "TRUE; SELECT 1",
        "TRUE, FALSE",
        "TRUE LIMIT 1",
    ],
)
def test_a_malformed_condition_is_refused_before_reading(condition: str) -> None:
    with pytest.raises(UsageError, match="wrong-condition") as caught:
        check_condition(condition)
    assert caught.value.exit_code == 2
    assert f"`{condition}`" in str(caught.value)


@pytest.mark.parametrize("condition", ["clock > 'noon'", "(SELECT count(*) FROM read_csv('x.csv')) > 0", "k"])
def test_a_condition_can_read_only_its_table(condition: str) -> None:
    with pytest.raises(UsageError, match="wrong-condition"):
        filter_keys(condition)
