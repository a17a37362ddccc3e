"""The delivery of typed rows: a worker runs the tasks of all sinks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.contract import RowWriter, WorkerTask
from everfold.plan.changelog import KIND, ORDER
from everfold.spark.delivery import REPORT, name_sink
from everfold.spark.task_input import FORWARDED
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FrameDelivery:
    """The function of a Spark task that delivers its rows.

    tasks, targets, widths: of the sinks, with what their tasks need and the number of their
    columns. target_column: the column with the sink of a row. ordered: whether the rows are in the
    order of `__order`.
    """

    tasks: tuple[WorkerTask, ...]
    targets: tuple[object, ...]
    widths: tuple[int, ...]
    target_column: str
    ordered: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows. Yield payloads with their sink: meta and statistics rows, and reports."""
        import pyarrow.compute as pc

        writers: dict[int, RowWriter] = {}
        try:
            for batch in batches:
                is_meta = pc.is_valid(batch.column(FORWARDED))
                metas = batch.filter(is_meta)
                if metas.num_rows:
                    yield self._payloads([0] * metas.num_rows, metas.column(FORWARDED).to_pylist())
                rows = batch.filter(pc.invert(is_meta)) if metas.num_rows else batch
                for at in range(len(self.tasks)):
                    mine = rows.filter(pc.equal(rows.column(self.target_column), at)) if len(self.tasks) > 1 else rows
                    if mine.num_rows:
                        self._write(writers, at, mine)
            for at, writer in writers.items():
                with name_sink(at):
                    yield self._payloads([at], [REPORT + writer.close()])
        except BaseException:
            for writer in writers.values():
                writer.abort()
            raise

    def _write(self, writers: dict[int, RowWriter], at: int, rows: pa.RecordBatch) -> None:
        from pyspark import TaskContext

        with name_sink(at):
            if at not in writers:
                context = TaskContext.get()
                assert context is not None
                writers[at] = self.tasks[at].open(context.partitionId(), self.targets[at])
            writers[at].write(_TypedRows(rows, at, self.widths[at], self.ordered))

    def _payloads(self, targets: list[int], payloads: list[bytes]) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.RecordBatch.from_pydict(
            {self.target_column: targets, "payload": payloads},
            pa.schema({self.target_column: pa.int32(), "payload": pa.binary()}),
        )


@dataclass(frozen=True, slots=True)
class _TypedRows:
    """Rows of a sink, among the columns of all sinks."""

    rows: pa.RecordBatch
    at: int
    width: int
    is_ordered: bool

    def count(self) -> int:
        return int(self.rows.num_rows)

    def read(self, *, ordered: bool = False) -> pa.Table:
        import pyarrow as pa

        names = [physical_name(position) for position in range(self.width)]
        hidden = [KIND, *[ORDER] * (ordered and self.is_ordered)]
        table = pa.Table.from_batches([self.rows]).select([*(f"t{self.at}_{name}" for name in names), *hidden])
        return table.rename_columns([*names, *hidden])
