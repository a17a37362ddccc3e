"""Run a plan once over bounded input with Spark SQL; only the sinks keep anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.contract import KIND, BatchId, LocalSink
from everfold.jobs.failure import explain_failure
from everfold.jobs.foreach_batch import Target
from everfold.jobs.sources import Sources
from everfold.jobs.spec import Finished
from everfold.plan.nodes import Root
from everfold.spark.batch import BatchLowering
from everfold.spark.batch_metrics import count_skipped_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_batch(
    spark: SparkSession,
    roots: Sequence[Root],
    targets: Sequence[Target],
    sources: Sources,
    *,
    zone: str,
    job: str,
    epoch: int,
    log_file: Path,
) -> Finished:
    """Run the roots one after the other. Raises EverfoldError.

    epoch: differs between runs of the same job.
    """
    lowering = BatchLowering(spark, zone, sources.read_scan)
    rows_out = 0
    try:
        with count_skipped_rows(spark) as dropped:
            for root, target in zip(roots, targets, strict=True):
                frame = lowering.lower(root.input).selectExpr("*", f"CAST(0 AS TINYINT) AS {KIND}")
                batch = BatchId(job, target.name, epoch, 0)
                if isinstance(target.sink, LocalSink):
                    table = frame.toArrow()
                    rows_out += table.num_rows
                    target.sink.write(table, batch)
                else:
                    rows_out += target.sink.write(frame, batch) or 0
    except Exception as error:
        raise explain_failure(error, sources.opened, log_file) from error
    return Finished(rows_out=rows_out, dropped_rows=dropped)
