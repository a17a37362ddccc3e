"""Aggregate calls over one group of rows, computed in every way that an engine may choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import duckdb
import polars as pl

from everfold.aggregates.distinct import OverDistinct
from everfold.aggregates.folding import SIGN, Fold, compute_results, fold_rows, fold_slots, settle
from everfold.aggregates.registry import Distinct, Signature, SqlArguments, lookup
from everfold.state.pages import decode, encode
from everfold.types import DataType, MultisetType


def call(
    name: str,
    *args: DataType,
    constants: Sequence[object] = (),
    retracting: bool = False,
    distinct: bool = False,
    kept: str | None = None,
) -> Fold:
    """Return a call over the columns `x`, `y`, …, with the default constant unless constants are
    specified.
    """
    entry = lookup(name)
    assert entry is not None, name
    given = tuple(constants) or (() if entry.default is None else (entry.default,))
    if distinct and entry.distinct is Distinct.APPLIES:
        entry = OverDistinct(entry)
    of = Signature(args, given, retracting)
    columns = "xyz"[: len(args)] if not entry.takes_hashes else ("x", "known")
    return Fold(entry, of, tuple(columns), tuple(slot.name for slot in entry.slots(of)), kept)


def rows(of: Sequence[DataType], values: Sequence[Any], signs: Sequence[int] | None = None) -> pl.DataFrame:
    """Return the rows of one group: `k`, and `x`, `y`, … or only `x`; with `signs`, also the column
    `sign`.
    """
    columns: dict[str, Any] = {"k": [1] * len(values)}
    for at, (name, type_) in enumerate(zip("xyz", of, strict=False)):
        column = [value[at] for value in values] if len(of) > 1 else values
        columns[name] = pl.Series(column, dtype=type_.polars)
    if signs is not None:
        columns[SIGN] = pl.Series(signs, dtype=pl.Int64)
    return pl.DataFrame(columns)


def value(slots: pl.DataFrame, fold: Fold) -> Any:
    """Return the result of slots that hold all rows, and check the types of slots and result."""
    for slot in fold.entry.slots(fold.of):
        assert slots.schema[slot.name] == slot.type.polars, (slot, slots.schema[slot.name])
    (found,) = compute_results(settle(slots, [fold], whole=True), [fold], ["r"])
    result = fold.entry.result_type(fold.of)
    assert result is not None
    assert found.dtype == result.polars, (found.dtype, result)
    if isinstance(result, MultisetType):
        found = found.to_frame().select(pl.col("r").map.entries()).to_series()
    return plain(found[0])


def plain(found: Any) -> Any:
    """Convert a Polars value to plain Python."""
    if isinstance(found, pl.Series):
        return [plain(each) for each in found]
    return found


def compute_all_ways(frame: pl.DataFrame, fold: Fold) -> Iterator[Any]:
    """Yield the result of every way to compute it.

    The ways: at once, without groups, in two parts for each cut, and row by row with state that is
    settled, encoded and decoded after each row.
    """
    yield value(fold_rows(frame, [], [fold], []), fold)
    if frame.is_empty():
        return
    yield value(fold_rows(frame, ["k"], [fold], []), fold)
    for cut in range(frame.height + 1):
        parts = [fold_rows(part, ["k"], [fold], []) for part in (frame.head(cut), frame.slice(cut))]
        parts = [settle(part, [fold], whole=False) for part in parts]
        yield value(fold_slots(pl.concat(parts), ["k"], [fold]), fold)
    state = fold_rows(frame.head(0), ["k"], [fold], [])
    for at in range(frame.height):
        part = fold_rows(frame.slice(at, 1), ["k"], [fold], [])
        merged = settle(fold_slots(pl.concat([state, part]), ["k"], [fold]), [fold], whole=True)
        state = decode(encode(merged)).select(pl.col(name).cast(merged.schema[name]) for name in merged.columns)
    yield value(state, fold)
    lifted = fold.lifted
    if lifted is not None:
        yield value(fold_slots(frame.select("k", *lifted), ["k"], [fold]), fold)


def compute_in_duckdb(frame: pl.DataFrame, fold: Fold, distinct: bool = False) -> tuple[Any, str]:
    """Return what DuckDB computes, and the type that it reports."""
    connection = _duckdb()
    connection.register("t", frame.to_arrow(compat_level=pl.CompatLevel.oldest()))
    texts = tuple(column for column in fold.columns if column != "known")
    twin = fold.entry.duckdb_sql(fold.of, SqlArguments(texts, distinct, fold.filter_column))
    found = connection.sql(f"SELECT {twin} AS r, typeof({twin}) AS t FROM t").fetchall()[0]
    return found[0], found[1]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})
