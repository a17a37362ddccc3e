"""The tasks of a file sink: write hidden files and report their names.

Runs in Spark's Python workers, so it imports little. A part file has a hidden name until the driver
commits its batch: readers see neither uncommitted files nor those that a failed task left.
"""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.error_transport import transport_errors, write_report
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.contract import PackedRows, RowWriter
    from everfold.connectors.formats.format import Format, RecordColumn

REPORT = "temporary STRING, final STRING, rows BIGINT"
"""Spark schema of a task's report: the paths of its files, relative to the table's folder."""
FOLDER = "__folder"
"""Column with the target folder of a row, relative to the table's folder; rows are sorted by it.

Missing in a table without partitions.
"""


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes the rows of one task.

    stem: identifies the batch in file names. extension: of the format. columns: those in the files,
    in their order. form: a text format with one record per line, None for Parquet. schema: of
    Parquet files, as Arrow IPC.
    """

    root: str
    stem: str
    extension: str
    columns: tuple[RecordColumn, ...]
    form: Format | None
    schema: bytes = b""
    compression: str = "snappy"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows (`c0…`, `__kind`, `__folder`), and report the files."""
        import pyarrow as pa

        parts = PartFiles(self)
        with parts.discard_on_failure():
            for batch in batches:
                for folder, rows in _by_folder(batch):
                    parts.write(folder, pa.Table.from_batches([rows]))
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

    def write(self, folder: str, rows: pa.Table) -> None:
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
            with transport_errors():
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
    """Writes files of packed rows, without partition folders."""

    parts: PartWriter

    def open(self, shard: int, target: object) -> RowWriter:
        """Begin the work of one Spark task."""
        return _PackedParts(PartFiles(self.parts))


class _PackedParts:
    """The files of one task that has packed rows."""

    def __init__(self, files: PartFiles) -> None:
        self._files = files

    def write(self, packed: PackedRows) -> None:
        rows = packed.read()
        if rows.num_rows:
            with self._files.discard_on_failure():
                self._files.write("", rows)

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
        self._form, self._columns = of.form, of.columns
        self._parquet: Any = None
        if of.form is None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            self._schema = pa.ipc.read_schema(pa.py_buffer(of.schema))
            compression = "none" if of.compression == "uncompressed" else of.compression
            self._parquet = pq.ParquetWriter(self._file, self._schema, compression=compression)

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        import pyarrow as pa

        self.rows += rows.num_rows
        if self._form is not None:
            self._file.write(_join_lines(self._form.encode(rows, self._columns)))
            return
        columns = [rows.column(physical_name(each.position)) for each in self._columns]
        columns = [values.cast(field.type) for values, field in zip(columns, self._schema, strict=True)]
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


def _join_lines(records: pa.Array) -> memoryview:
    """Return the records as lines; NULL is an empty one."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing, end = (pa.scalar(each, pa.large_binary()) for each in (b"", b"\n"))
    wide = records.cast(pa.large_binary()).fill_null(nothing)
    lines = pc.binary_join_element_wise(wide, nothing, end)
    _, offsets, values = lines.buffers()
    ends = np.frombuffer(offsets, np.int64)[lines.offset :]
    return memoryview(values)[ends[0] : ends[len(lines)]]


def _by_folder(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch into runs of rows with the same folder."""
    import pyarrow.compute as pc

    at = batch.schema.get_field_index(FOLDER)
    if at < 0:
        if batch.num_rows:
            yield "", batch
        return
    start = 0
    runs = pc.run_end_encode(batch.column(at))
    for folder, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield folder, batch.slice(start, end - start)
        start = end
