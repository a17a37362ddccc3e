"""Writing backfilled rows to control files, in Spark's workers: see `operators.backfill`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.null_rowtime import LOCATION
from everfold.error_transport import transport_errors
from everfold.spark.exchange import BACKFILL_COMMAND, TASK_SHIFT, split_by_bucket, task_number, to_ipc
from everfold.spark.task_input import HASH, combine_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.operators.backfill import Fillable


@dataclass(frozen=True, slots=True)
class BackfillWriter:
    """Aggregates the past rows of a task and encodes the result as lines of a control file.

    since: see `Fillable.history`. order: see `connectors.contract.History`.
    """

    operator: Fillable
    bucket_ids: tuple[int, ...]
    since: int
    order: Mapping[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import polars as pl
        import pyarrow as pa

        count = 0
        for chunk in combine_batches(batches):
            position = pl.col(LOCATION).replace_strict(self.order, default=task_number(), return_dtype=pl.Int64)
            seq = position * (1 << TASK_SHIFT)
            rows = chunk.with_columns_seq((seq + pl.int_range(count, count + chunk.height)).alias("seq"))
            count += chunk.height
            wanted = [column.name for column in self.operator.inputs]
            wanted += ["seq"] * self.operator.ordered
            with transport_errors():
                found = self.operator.history(rows.select_seq(HASH, *wanted), self.since)
            lines = [
                f"{BACKFILL_COMMAND} {self.operator.name} {bucket} {b64encode(to_ipc(part)).decode()}"
                for bucket, part in split_by_bucket(found, self.bucket_ids)
            ]
            yield pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["line"])
