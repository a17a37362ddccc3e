"""Lookup tables: copied when the job starts, or read again in every batch."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.jobs.sources import Sources
from everfold.local_paths import spark_path
from everfold.plan.nodes import Plan
from everfold.plan.walk import tables_of, walk_plan
from everfold.spark.batch import BatchLowering
from everfold.spark.batch_metrics import count_skipped_rows

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
    folder: Path | None
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
        if not (self.unfinished and kept.exists()):
            fresh = kept.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            with count_skipped_rows(self.lowering.spark) as counts:
                frame.write.parquet(spark_path(fresh))
            for why, rows in counts.items():
                self.skipped_rows[why] = self.skipped_rows.get(why, 0) + rows
            shutil.rmtree(kept, ignore_errors=True)
            os.rename(fresh, kept)
        return self.lowering.spark.read.schema(frame.schema).parquet(spark_path(kept))
