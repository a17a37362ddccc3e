"""Laws of the aggregates: merging is associative and in any order, one batch is many, DuckDB's twin agrees."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everfold.aggregates.folding import Fold, fold_rows, fold_slots
from everfold.aggregates.registry import lookup, names
from everfold.types import BIGINT, DOUBLE, INT, STRING, TINYINT, DataType, DecimalType

D10, D38 = DecimalType(precision=10, scale=2), DecimalType(precision=38, scale=3)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    TINYINT: st.integers(-128, 127),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.integers(-(2**40), 2**40).map(float),
    D10: st.decimals(-99_999_999, 99_999_999, places=2),
    D38: st.integers(-(10**36), 10**36).map(lambda unscaled: Decimal(unscaled).scaleb(-3)),
    STRING: st.text(max_size=4).filter(lambda text: "\x00" not in text),
}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("of", list(VALUES), ids=lambda of: of.sql)
def test_laws(name: str, of: DataType) -> None:
    entry = lookup(name)
    assert entry is not None
    if entry.result_type((of,)) is None:
        pytest.skip("refused")
    call = Fold(entry, (of,), ("x",), tuple(slot.name for slot in entry.slots((of,))))
    connection = duckdb.connect()

    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), VALUES[of])), min_size=1, max_size=20),
        st.integers(0, 20),
    )
    def law(rows: list[tuple[int, Any]], cut: int) -> None:
        frame = pl.DataFrame({"k": [k for k, _ in rows], "x": pl.Series([x for _, x in rows], dtype=of.polars)})

        def folded(part: pl.DataFrame) -> pl.DataFrame:
            return fold_rows(part, ["k"], [call], [])

        def values(slots: pl.DataFrame) -> list[tuple[Any, ...]]:
            return slots.select("k", call.result("r")).sort("k").rows()

        whole = values(folded(frame))
        left, right = folded(frame.head(cut)), folded(frame.slice(cut))
        assert values(fold_slots(pl.concat([left, right]), ["k"], [call])) == whole
        assert values(fold_slots(pl.concat([right, left]), ["k"], [call])) == whole
        assert values(fold_slots(frame.select("k", *(call.lift() or [])), ["k"], [call])) == whole
        connection.register("t", frame.to_arrow(compat_level=pl.CompatLevel.oldest()))
        twin = connection.sql(f"SELECT k, {entry.duckdb_sql((of,), ['x'])} FROM t GROUP BY k ORDER BY k").fetchall()
        assert twin == whole

    law()
