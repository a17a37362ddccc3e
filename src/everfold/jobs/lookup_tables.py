"""Lookup tables: copied when the job starts, or read again in every batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from everfold.jobs.sources import Sources
from everfold.plan.nodes import Plan
from everfold.plan.walk import tables_of, walk_plan
from everfold.spark.batch import BatchLowering
from everfold.spark.batch_metrics import count_skipped_rows
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class LookupTables:
    """Creates the DataFrames of lookup tables, in the order of the query.

    folder: where copies of the rows are kept, None to read the tables in every batch.
    unfinished: whether the job has a planned batch that is not finished. That batch must read the
        same rows again, so the copies stay until the next start.
    skipped_rows: number of rows that options left out, by reason.
    """

    lowering: BatchLowering
    sources: Sources
    folder: Location | None
    unfinished: bool = False
    skipped_rows: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    def __call__(self, plan: Plan) -> DataFrame:
        """Return the rows of a plan, with columns `c0, c1, …`."""
        frame = self.lowering.lower(plan)
        tables = tables_of(walk_plan(plan))
        if self.folder is None or not tables or any(map(self.sources.rereads_table, tables)):
            return frame
        self._count += 1
        kept = self.folder / f"{self._count}.rows"
        if not (self.unfinished and kept.is_complete()):
            kept.delete()
            with count_skipped_rows(self.lowering.spark) as counts:
                frame.write.parquet(kept.uri)
            for why, rows in counts.items():
                self.skipped_rows[why] = self.skipped_rows.get(why, 0) + rows
        return self.lowering.spark.read.schema(frame.schema).parquet(kept.uri)
