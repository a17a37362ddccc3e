"""Conditions over tables in memory: what they see, what they may not, what is said of wrong ones."""

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


def kept(condition: str, zone: str = "UTC") -> list[str | None]:
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
    assert kept(condition) == keys


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 12), ("Europe/Berlin", 14), ("GMT+05:00", 17)])
def test_instants_are_compared_as_they_are_shown(zone: str, hour: int) -> None:
    assert kept(f"seen = '2020-07-01 {hour}:00:00'", zone) == ["a", "b"]


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(NoSuchColumn, match='"nobody" not found'):
        kept("nobody = 1")


@pytest.mark.parametrize("condition", ["k =", "k = 'a' AND"])
def test_what_is_no_condition_is_said_before_anything_is_read(condition: str) -> None:
    with pytest.raises(UsageError, match="wrong-condition") as caught:
        check_condition(condition)
    assert caught.value.exit_code == 2
    assert f"`{condition}`" in str(caught.value)


@pytest.mark.parametrize(
    "condition", ["clock > 'noon'", "(SELECT count(*) FROM read_csv('x.csv')) > 0", "TRUE); DROP VIEW state; --"]
)
def test_a_condition_reads_the_table_and_nothing_else(condition: str) -> None:
    with pytest.raises(UsageError, match="wrong-condition"):
        kept(condition)
