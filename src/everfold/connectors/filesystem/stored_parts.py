"""Write the files of a batch in another store than the local disk.

Python workers cannot reach such a store with Spark's credentials, so they encode lines, and Spark
writes them; Parquet files are written by Spark alone. All files of a batch are in one hidden
folder until the driver commits it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from everfold.connectors.contract import as_spark_function
from everfold.connectors.filesystem.parts import FOLDER, PartWriter
from everfold.engine_literals import spark_identifier
from everfold.error_transport import transport_errors
from everfold.storage import Location
from everfold.types import TimeType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_LINE = "__line"


@dataclass(frozen=True, slots=True)
class StoredPartWriter:
    """Writes the rows of a batch. parts: names and columns. root: the folder of the table."""

    parts: PartWriter
    root: Location
    has_folders: bool

    def write(self, frame: DataFrame) -> list[tuple[str, str, int]]:
        """Write the rows (`c0…`, `__kind`, `__folder`); return the paths of each file.

        The paths are the temporary and the final one, relative to the table's folder. The rows are
        counted as a whole, and given with the first file. Runs the frame once.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        count = Observation()
        frame = frame.observe(count, F.count("*").alias("rows"))
        hidden = self.root / f".part-{self.parts.stem}-{uuid.uuid4().hex[:12]}.inprogress"
        if self.parts.form is None:
            names = [_parquet_column(each.position, each.name, each.type) for each in self.parts.columns]
            out = frame.selectExpr(*names, *([FOLDER] if self.has_folders else [])).write
            form, options = "parquet", {"compression": self.parts.compression}
        else:
            encoder = LineEncoder(self.parts, self.has_folders)
            schema = f"{_LINE} STRING" + (f", {FOLDER} STRING" if self.has_folders else "")
            out = frame.mapInArrow(as_spark_function(encoder), schema).write
            form, options = "text", {}
        if self.has_folders:
            out = out.partitionBy(FOLDER)
        out.format(form).options(**options).save(hidden.uri)
        return self._list_files(hidden, int(count.get["rows"]))

    def _list_files(self, hidden: Location, rows: int) -> list[tuple[str, str, int]]:
        written = sorted(
            (file for file in hidden.walk() if not file.name.startswith(("_", "."))), key=lambda each: each.path
        )
        found: list[tuple[str, str, int]] = []
        for number, file in enumerate(written if rows else ()):
            inside = file.relative_to(hidden).rpartition("/")[0]
            folder = f"{unquote(inside.partition('=')[2])}/" if inside else ""
            final = f"{folder}part-{self.parts.stem}-{number:05d}.{self.parts.extension}"
            found.append((file.relative_to(self.root), final, 0 if found else rows))
        return found


@dataclass(frozen=True, slots=True)
class LineEncoder:
    """Encodes rows as lines, with their folder if there are partitions."""

    parts: PartWriter
    has_folders: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the lines of the rows in a task of Spark."""
        import pyarrow as pa

        form = self.parts.form
        assert form is not None, "Spark writes Parquet files"
        with transport_errors():
            for batch in batches:
                lines = form.encode(pa.Table.from_batches([batch]), self.parts.columns)
                columns = {_LINE: _to_strings(lines)}
                if self.has_folders:
                    columns[FOLDER] = batch.column(FOLDER)
                yield pa.RecordBatch.from_pydict(columns)


def _to_strings(records: Any) -> pa.Array:
    """Return records as strings, whatever their bytes are; NULL is an empty one."""
    import pyarrow as pa

    if isinstance(records, pa.ChunkedArray):
        records = records.combine_chunks()
    filled = records.cast(pa.binary()).fill_null(pa.scalar(b"", pa.binary()))
    return pa.Array.from_buffers(pa.string(), len(filled), filled.buffers(), offset=filled.offset)


def _parquet_column(position: int, name: str, of: Any) -> str:
    """Return Spark SQL for a column of a Parquet file."""
    value = physical_name(position)
    if isinstance(of, TimeType):
        value = f"CAST(timestamp_millis({value}) AS TIME(3))"
    return f"{value} AS {spark_identifier(name)}"
