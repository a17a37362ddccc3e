"""What joins read as a batch beside a stream: kept as it was when the job started, or read in every batch anew."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.jobs.sources import Sources
from everfold.plan.nodes import Plan, tables_of, walk_plan
from everfold.spark.batch import BatchLowering
from everfold.spark.batch_metrics import left_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Beside:
    """Makes the DataFrames of these plans, in the order of the query.

    folder: where their rows are kept, None to read them in every batch. unfinished: whether the job has begun a batch that it has not finished:
    that one must read again what it has read, so what is kept stays until the next start. left_out: rows that options left out, by why.
    """

    lowering: BatchLowering
    sources: Sources
    folder: Path | None
    unfinished: bool = False
    left_out: dict[str, int] = field(default_factory=dict)
    _made: int = 0

    def __call__(self, plan: Plan) -> DataFrame:
        """The rows of a plan, columns `c0, c1, …`."""
        frame = self.lowering.lower(plan)
        tables = tables_of(walk_plan(plan))
        if self.folder is None or not tables or any(map(self.sources.reads_anew, tables)):
            return frame
        self._made += 1
        kept = self.folder / f"{self._made}.rows"
        if not (self.unfinished and kept.exists()):
            fresh = kept.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            with left_out(self.lowering.spark) as counts:
                frame.write.parquet(str(fresh))
            for why, rows in counts.items():
                self.left_out[why] = self.left_out.get(why, 0) + rows
            shutil.rmtree(kept, ignore_errors=True)
            os.rename(fresh, kept)
        return self.lowering.spark.read.schema(frame.schema).parquet(str(kept))
