"""Read files in a worker: the JVM hands over their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from everfold.connectors.file_order import path_of
from everfold.connectors.worker_reader import Piece, WorkerReader

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnSource(Protocol):
    """A source of files."""

    def read_columns(self, path: Path, root: Path, wanted: Sequence[int]) -> Iterator[pa.Table]:
        """Yield some columns of a file in pieces. wanted: their positions in the table."""


@dataclass(frozen=True, slots=True)
class FileReader(WorkerReader):
    """Reads whole files. A handle is the column `FILE` of a file.

    columns: the needed positions. root: the path of the table.
    """

    source: ColumnSource
    columns: Sequence[int]
    root: Path

    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows file by file."""
        for file in sorted(map(bytes.decode, handles.to_pylist())):
            path = path_of(file)
            for rows in self.source.read_columns(Path(path), self.root, self.columns):
                yield Piece(rows, locate=lambda _, path=path: path, file=file)  # type: ignore[misc]
