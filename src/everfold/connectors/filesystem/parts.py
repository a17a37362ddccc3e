"""The tasks of a file sink: write hidden files and report their names.

Runs in Spark's Python workers, so it imports little. A part file has a hidden name until the driver
commits its batch: readers see neither uncommitted files nor those that a failed task left.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.error_transport import write_report

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.contract import PackedRows, RowWriter

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

        parts = PartFiles(self)
        with parts.discard_on_failure():
            for batch in batches:
                for folder, rows in _by_folder(batch):
                    parts.write(folder, rows)
            files = parts.close()
        report = {
            "temporary": [temporary for temporary, _, _ in files],
            "final": [final for _, final, _ in files],
            "rows": [rows for _, _, rows in files],
        }
        yield pa.RecordBatch.from_pydict(
            report, pa.schema({"temporary": pa.string(), "final": pa.string(), "rows": pa.int64()})
        )

    def open_part(self, folder: str) -> _Part:
        """Create a hidden file in a folder."""
        from pyspark import TaskContext

        task = TaskContext.get()
        partition = 0 if task is None else task.partitionId()
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


class PartFiles:
    """The files of one task."""

    def __init__(self, writer: PartWriter) -> None:
        self._writer = writer
        self._files: list[_Part] = []

    def write(self, folder: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows to the file of a folder; a change of the folder closes the previous file."""
        if not self._files or self._files[-1].folder != folder:
            if self._files:
                self._files[-1].close()
            self._files.append(self._writer.open_part(folder))
        self._files[-1].write(rows)

    def close(self) -> list[tuple[str, str, int]]:
        """Close the last file, and return temporary path, final path and rows of each file."""
        if self._files:
            self._files[-1].close()
        return [(part.temporary, part.final, part.rows) for part in self._files]

    def discard(self) -> None:
        """Delete all files."""
        for part in self._files:
            part.discard()

    @contextmanager
    def discard_on_failure(self) -> Iterator[None]:
        """Return a context that deletes the files after an error, and reports those of the disk."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                path = self._writer.root
                reason = {"errno": errno.errorcode.get(error.errno or 0, ""), "text": str(error), "path": path}
                raise RuntimeError(write_report("write-failed", reason)) from error
            raise


@dataclass(frozen=True, slots=True)
class PackedPartWriter:
    """Writes Parquet files of packed rows, without partition folders.

    columns: the names of the rows' columns, in the order of the file.
    """

    parts: PartWriter
    columns: tuple[str, ...]

    def open(self) -> RowWriter:
        """Begin the work of one Spark task."""
        return _PackedParts(PartFiles(self.parts), self.columns)


class _PackedParts:
    """The files of one task that has packed rows."""

    def __init__(self, files: PartFiles, columns: Sequence[str]) -> None:
        self._files, self._columns = files, list(columns)

    def write(self, packed: PackedRows) -> None:
        rows = packed.read()
        if rows.num_rows:
            with self._files.discard_on_failure():
                self._files.write("", rows.select(self._columns))

    def close(self) -> bytes:
        with self._files.discard_on_failure():
            return json.dumps(self._files.close()).encode()

    def abort(self) -> None:
        self._files.discard()


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

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows."""
        import pyarrow as pa

        self.rows += rows.num_rows
        if self._parquet is None:
            self._file.write(_concat_lines(rows.column(0)))
            return
        columns = [values.cast(field.type) for values, field in zip(rows.columns, self._schema, strict=True)]
        self._parquet.write_table(pa.Table.from_arrays(columns, schema=self._schema))

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
        with suppress(OSError):
            if self._parquet is not None:
                self._parquet.close()
        with suppress(OSError):  # it is hidden, and removed later
            self._file.close()
            os.unlink(self._path)


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
