"""The input columns of an operator in a worker, from columns that the worker has decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everfold.operators.protocol import InputColumn, Operator
from everfold.plan.worker_expressions import reason_not_in_worker
from everfold.spark.key_hash import can_hash, hash_columns
from everfold.spark.task_input import HASH
from everfold.types import DataType, TimestampType

if TYPE_CHECKING:
    import polars as pl


def reason_not_prepared(operator: Operator) -> str | None:
    """Return why workers cannot compute the inputs of an operator, None if they can."""
    reasons = (_reason_not_computed(each, each.name in operator.hash_columns) for each in operator.inputs)
    return next(filter(None, reasons), None)


def _reason_not_computed(column: InputColumn, is_key: bool) -> str | None:
    if is_key and not can_hash(column.type):
        return f"a key of type {column.type.sql}"
    if column.as_hash and not can_hash(column.expression.type):
        return f"a hash of type {column.expression.type.sql}"
    if column.as_ms and depends_on_zone(column.expression.type, column.zone):
        return f"times in the zone {column.zone}"
    return reason_not_in_worker(column.expression)


def depends_on_zone(of: DataType, zone: str | None) -> bool:
    """Return whether the wall clock of a time depends on a zone."""
    return isinstance(of, TimestampType) and of.local_zone and zone not in (None, "UTC")


def add_hashes(rows: pl.DataFrame, keys: Sequence[str], hashed: Sequence[str]) -> pl.DataFrame:
    """Return rows with the column `hash` of their keys.

    hashed: the columns that are replaced by their hash.
    """
    import numpy as np
    import polars as pl

    replaced = [pl.Series(name, hash_columns([rows[name].to_arrow()])) for name in hashed]
    rows = rows.with_columns_seq(replaced) if replaced else rows
    if keys and rows.height:
        hashes = hash_columns([rows[key].to_arrow() for key in keys])
    else:
        hashes = np.zeros(rows.height, np.int64)
    return pl.DataFrame([pl.Series(HASH, hashes, pl.Int64), *rows.get_columns()])
