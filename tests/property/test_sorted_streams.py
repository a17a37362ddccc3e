"""Properties of ORDER BY time in a stream: rows come out as plain Python sorts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.queries import Query
from property.test_over import LAW, TABLE, Row, run_stream, streams


def ascending(value: float | None) -> tuple[bool, float]:
    """Return a sort key with NULL before all values."""
    return value is not None, value or 0


def descending(value: float | None) -> tuple[bool, float]:
    """Return a sort key of descending values, with NULL after them."""
    return value is None, -(value or 0)


ORDERS: dict[str, Callable[[Row], Any]] = {
    "ts": lambda row: (row.at, row.id),
    "ts, v": lambda row: (row.at, ascending(row.v), row.id),
    "ts ASC, v DESC, f": lambda row: (row.at, descending(row.v), ascending(row.f), row.id),
    "ts, -f NULLS LAST": lambda row: (row.at, row.f is None, -(row.f or 0), row.id),
}
"""Orders of rows in SQL, and the keys by which Python sorts them."""


@pytest.mark.parametrize("order", list(ORDERS))
@pytest.mark.parametrize("shown", ["id", "id, ts, v, f"])
def test_rows_of_any_batches_come_out_in_order(order: str, shown: str) -> None:
    query = Query(f"{TABLE} SELECT {shown} FROM e ORDER BY {order}")

    @LAW
    @given(streams(), st.integers(1, 30), st.sampled_from([1, 3]))
    def law(rows: list[Row], size: int, buckets: int) -> None:
        emitted = [row[0] for row in run_stream(query, rows, size, buckets)]
        assert emitted == [row.id for row in sorted(rows, key=ORDERS[order])]

    law()
