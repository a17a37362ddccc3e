"""The tasks of a file sink: write hidden files and report their names.

Runs in Spark's Python workers, so it imports little. A part file has a hidden name until the driver
commits its batch: readers see neither uncommitted files nor those that a failed task left.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.error_transport import write_report

if TYPE_CHECKING:
    import pyarrow as pa

REPORT = "temporary STRING, final STRING, rows BIGINT"
"""Spark schema of a task's report: the paths of its files, relative to the table's folder."""
FOLDER = "__folder"
"""Column with the target folder of a row, relative to the table's folder; rows are sorted by it.

Missing in a table without partitions.
"""


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes the rows of one task.

    stem: identifies the batch in file names. extension: of the format. schema: for Parquet, the
    schema of the file (as Arrow IPC), and the columns are in its order; None for text formats,
    whose only column is the line.
    """

    root: str
    stem: str
    extension: str
    schema: bytes | None = None
    compression: str = "snappy"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the batches and report the files."""
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
        files: list[_Part] = []
        current: _Part | None = None
        try:
            for batch in batches:
                for folder, rows in _by_folder(batch):
                    if current is None or current.folder != folder:
                        if current is not None:
                            current.close()
                        current = self._open(folder, partition)
                        files.append(current)
                    current.write(rows)
            if current is not None:
                current.close()
        except BaseException as error:
            for part in files:
                part.discard()
            if isinstance(error, OSError):
                reason = {"errno": errno.errorcode.get(error.errno or 0, ""), "text": str(error), "path": self.root}
                raise RuntimeError(write_report("write-failed", reason)) from error
            raise
        report = {
            "temporary": [part.temporary for part in files],
            "final": [part.final for part in files],
            "rows": [part.rows for part in files],
        }
        yield pa.RecordBatch.from_pydict(
            report, pa.schema({"temporary": pa.string(), "final": pa.string(), "rows": pa.int64()})
        )

    def _open(self, folder: str, partition: int) -> _Part:
        name = f"part-{self.stem}-{partition:05d}.{self.extension}"
        hidden = f".part-{self.stem}-{partition:05d}-{uuid.uuid4().hex[:12]}.{self.extension}.inprogress"
        self._check_inside(folder)  # before anything is created
        os.makedirs(os.path.join(self.root, folder), exist_ok=True)
        self._check_inside(folder)
        return _Part(self, folder, os.path.join(folder, hidden), os.path.join(folder, name))

    def _check_inside(self, folder: str) -> None:
        """Raise PermissionError for a folder that a link places outside the table's folder."""
        root = os.path.realpath(self.root)
        if os.path.commonpath([os.path.realpath(os.path.join(root, folder)), root]) != root:
            raise PermissionError(errno.EACCES, f"the folder leads out of the table's folder: {folder}")


class _Part:
    """A file during writing."""

    def __init__(self, of: PartWriter, folder: str, temporary: str, final: str) -> None:
        self.folder, self.temporary, self.final = folder, temporary, final
        self.rows = 0
        self._path = os.path.join(of.root, temporary)
        self._file: Any = open(self._path, "xb")  # noqa: SIM115
        self._parquet: Any = None
        if of.schema is not None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            self._schema = pa.ipc.read_schema(pa.py_buffer(of.schema))
            compression = "none" if of.compression == "uncompressed" else of.compression
            self._parquet = pq.ParquetWriter(self._file, self._schema, compression=compression)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        import pyarrow as pa

        self.rows += rows.num_rows
        if self._parquet is None:
            self._file.write(_concat_lines(rows.column(0)))
            return
        columns = [values.cast(field.type) for values, field in zip(rows.columns, self._schema, strict=True)]
        self._parquet.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        """Complete the file and sync it to disk, still hidden."""
        if self._file.closed:
            return
        if self._parquet is not None:
            self._parquet.close()
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Delete the file."""
        try:
            self._file.close()
            os.unlink(self._path)
        except OSError:
            pass  # it is hidden, and removed later


def _concat_lines(lines: pa.Array) -> memoryview | bytes:
    """Return the lines as one buffer, without a copy.

    Each line ends with its line break, so this is the buffer of the array.
    """
    import pyarrow as pa

    assert lines.null_count == 0, "a row has a line"
    if not len(lines):
        return b""
    offsets = pa.Array.from_buffers(pa.int32(), len(lines) + 1, [None, lines.buffers()[1]], offset=lines.offset)
    return memoryview(lines.buffers()[2])[offsets[0].as_py() : offsets[len(lines)].as_py()]


def _by_folder(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch into runs of rows with the same folder, and drop the folder's column."""
    import pyarrow.compute as pc

    at = batch.schema.get_field_index(FOLDER)
    if at < 0:
        if batch.num_rows:
            yield "", batch
        return
    folders = batch.column(at)
    rows = batch.drop_columns([FOLDER])
    start = 0
    runs = pc.run_end_encode(folders)
    for folder, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield folder, rows.slice(start, end - start)
        start = end
