"""The interface between connectors and tasks that read a table themselves, without Catalyst.

The JVM hands over rows that say what to read (the name of a file, the bytes of a record); a reader
decodes them in the worker, only the columns that are needed. Such a row is a *handle*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

HANDLE = "handle"
"""The column of handles, BINARY. One column, as the JVM computes the size of all columns of a batch
after each row: records of Kafka with five columns took twice as long.
"""


AT_OFFSET = " offset "
"""Between the origin of a row and its offset there."""


def drop_front(blobs: pa.BinaryArray, size: int) -> pa.BinaryArray:
    """Return blobs without their first bytes."""
    import pyarrow.compute as pc

    # Without an end, pyarrow 26 raises "Negative buffer resize".
    return pc.binary_slice(blobs, size, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a table that a reader has decoded.

    rows: the needed columns by position, `c<position>`, in the Arrow types of the table, texts
        possibly as string views; at least one column. Changes have `__kind` too.
    split: the split whose watermark the rows advance; None if the table has only one.
    origin: where the rows are from: a file, or a partition. offsets: the offset of each row there,
        None in files.
    file: the file that they are from, as the column `__file`; None if from none.
    skipped: the number of records that options allow to skip, wholly or in part. example: the
        location and the text of the first one.
    """

    rows: pa.Table
    split: str | None = None
    origin: str | None = None
    offsets: pa.Array | None = None
    file: str | None = None
    skipped: int = 0
    example: tuple[str, str] = ("", "")

    def locate(self, row: int) -> str | None:
        """Return where a row is from, as the column `__place`; None if that is not known."""
        return self.origin if self.offsets is None else f"{self.origin}{AT_OFFSET}{self.offsets[row]}"


class WorkerReader(ABC):
    """Decodes rows of a table in a worker. It is pickled."""

    @abstractmethod
    def read(self, handles: pa.BinaryArray) -> Iterator[Piece]:
        """Yield the rows that the handles stand for, in their order.

        handles: some of `WorkerInput.frame`, without NULL. Raises ConnectorError.
        """


@dataclass(frozen=True, slots=True)
class WorkerInput:
    """A stream that tasks decode.

    frame: a streaming frame with the column HANDLE. A NULL stands for no rows.
    """

    frame: DataFrame
    reader: WorkerReader
