"""Decode blocks of Debezium's changes into columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.formats.format import Block
from everfold.connectors.formats.json_columns import JsonBlocks
from everfold.plan.changelog import RowKind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DebeziumBlocks:
    """Decodes blocks of objects with `before`, `after` and `op`.

    objects: decodes these members. schema: the columns of a row, and its kind.
    """

    objects: JsonBlocks
    schema: pa.Schema

    def __call__(self, records: pa.BinaryArray) -> Block | None:
        """Return the rows of the changes, None if some record is not regular.

        An update has the row before it and the row after it.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        block = self.objects(records)
        if block is None:
            return None
        before, after, op = (column.combine_chunks() for column in block.rows.columns)
        added = pc.is_in(op, pa.array(["c", "r"])).to_numpy(zero_copy_only=False)
        updated, deleted = (pc.fill_null(pc.equal(op, code), False).to_numpy(zero_copy_only=False) for code in "ud")
        old, new = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (before, after))
        if not ((added & new) | (updated & old & new) | (deleted & old)).all():
            return None
        retracts, adds = updated | deleted, added | updated
        # Two slots for each record: the row before the change, and the row after it.
        used = np.stack([retracts, adds], axis=1).ravel()
        slots = np.flatnonzero(used)
        index = slots // 2 + len(records) * (slots % 2)
        kinds = np.where(
            slots % 2 == 0,
            np.where(updated[slots // 2], RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value),
            np.where(updated[slots // 2], RowKind.UPDATE_AFTER.value, RowKind.INSERT.value),
        )
        rows = pa.concat_arrays([before, after]).take(pa.array(index))
        columns = [*rows.flatten(), pa.array(kinds.astype(np.int8))]
        return Block(pa.table(columns, self.schema), (slots // 2).tolist() if updated.any() else None)
