"""Read files in a worker: the JVM hands over their paths, or lines of files in another store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.file_order import modified_ms_of, path_of
from everfold.connectors.filesystem.file_rows import FileFacts, FileRows, trim_records
from everfold.connectors.filesystem.lines import LineBlock, check_extension, split_lines
from everfold.connectors.filesystem.paths import colon_in_name_error
from everfold.connectors.worker_reader import Piece, WorkerReader, drop_front

if TYPE_CHECKING:
    import pyarrow as pa

_END = b"\0"
"""Ends a part of a handle of a stored line; no path has this byte."""


@dataclass(frozen=True)
class FileReader(WorkerReader):
    """Reads whole files. A handle is the column `FILE` of a file.

    copies: the folder of the copies that are read instead of files, at their paths below it.
    """

    rows: FileRows
    copies: Path | None = None

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows file by file.

        Raises ConnectorError `bad-file-name` for a file that a batch on Spark could not open, and
        those of `FileRows.read`.
        """
        for file in sorted(map(bytes.decode, handles.to_pylist())):
            path = path_of(file)
            if ":" in os.path.basename(path):
                raise colon_in_name_error(self.rows.table, self.rows.show(path))
            copy = None if self.copies is None else Path(f"{self.copies}{path}")
            for piece in self.rows.read(Path(path), copy if copy is not None and copy.is_file() else None):
                yield replace(piece, file=file)


def stored_handle_sql(file: str, size: str, content: str) -> str:
    """Return Spark SQL of the handle of a line, or of the content, of a file in another store.

    file: the column `FILE`.
    """
    parts = (f"CAST(CAST({part} AS STRING) AS BINARY)" for part in (file, size))
    end = f"X'{_END.hex()}'"
    return f"concat({f', {end}, '.join(parts)}, {end}, CAST({content} AS BINARY))"


@dataclass(frozen=True)
class StoredReader(WorkerReader):
    """Reads the lines of files in another store, which the JVM has read (`stored_handle_sql`).

    has_whole_files: whether a handle has the content of a file, instead of a line.
    """

    rows: FileRows
    has_whole_files: bool

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows file by file, in the order in which the lines come."""
        import pyarrow.compute as pc

        while len(handles):
            file, size, _ = handles[0].as_py().split(_END, 2)
            head = file + _END + size + _END
            are_same = pc.starts_with(handles, pattern=head)
            own = handles if pc.all(are_same).as_py() else handles.filter(are_same)
            yield from self._read_file(file.decode(), int(size), drop_front(own, len(head)))
            handles = handles.filter(pc.invert(are_same))

    def _read_file(self, file: str, size: int, lines: pa.BinaryArray) -> Iterator[Piece]:
        path = path_of(file)
        check_extension(path, path, in_java=True)
        facts = FileFacts(path, size, modified_ms_of(file))
        blocks = iter([iter([trim_records(LineBlock(lines, []), keep_empty=True)])])
        if self.has_whole_files:
            rules = self.rows.line_rules
            blocks = iter(split_lines(iter([content]), rules) for content in lines.to_pylist())
        for block in blocks:
            for piece in self.rows.read_lines(block, facts):
                yield replace(piece, file=file)
