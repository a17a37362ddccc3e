"""OVER in a batch on Spark.

One task gets all rows of a partition and computes the frames column-wise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.error_transport import transport_errors
from everfold.operators.over_batch import ARRIVAL, OverBatch
from everfold.plan.changelog import ORDER
from everfold.plan.nodes import OverAggregate
from everfold.spark.operator_inputs import hash_sql, input_columns_sql
from everfold.spark.scalar import Scalars
from everfold.spark.task_input import HASH
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_FILE = "file"


def lower_over(frame: DataFrame, node: OverAggregate, scalars: Scalars) -> DataFrame:
    """Compute the rows of an OVER node, `c0, …`, from those of its input, with `__order`."""
    operator = OverBatch(node)
    names = [each.name for each in operator.inputs]
    texts = input_columns_sql(scalars, operator.inputs, operator.keys, len(node.input.schema))
    inputs = frame.selectExpr(*texts, f"{ORDER}.file AS {_FILE}", f"{ORDER}.number AS {ARRIVAL}")
    hashed = inputs.selectExpr(f"{hash_sql(operator.inputs, operator.keys)} AS {HASH}", *names, _FILE, ARRIVAL)
    placed = hashed.repartition(HASH) if operator.keys else hashed.coalesce(1)
    types = ", ".join(f"{physical_name(at)} {of.type.spark}" for at, of in enumerate(node.schema))
    return placed.mapInArrow(_Whole(operator, node.schema.arrow), types)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Runs the operator over all rows of a task."""

    operator: OverBatch
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import polars as pl
        import pyarrow as pa

        rows = [batch for batch in batches if batch.num_rows]
        if not rows:
            return
        with transport_errors():
            frame = pl.DataFrame(pl.from_arrow(pa.Table.from_batches(rows))).sort(_FILE, ARRIVAL)
            arrival = pl.int_range(frame.height).alias(ARRIVAL)
            result = self.operator.rows(frame.drop(_FILE).with_columns_seq(arrival))
        yield from result.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self.schema).to_batches()
