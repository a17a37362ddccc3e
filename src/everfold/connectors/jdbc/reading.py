"""The task that reads a share of a table.

Spark workers import this module: it imports little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.jdbc.address import Address
from everfold.connectors.jdbc.values import from_csv
from everfold.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.jdbc.client import Connection

FAILURE_PREFIX = "everfold[read-failed]: "
"""Prefix of the error message of a task; JSON with code, message and help follows."""
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Reads shares of a table.

    queries: COPY statements, one per share. types: of their columns.
    """

    address: Address
    table: str
    queries: tuple[str, ...]
    types: tuple[DataType, ...]
    retries: int
    patience_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the shares whose numbers are in the first column of `batches`."""
        import psycopg

        from everfold.connectors.jdbc.client import explain_error

        try:
            for batch in batches:
                for share in batch.column(0).to_pylist():
                    for piece in self.rows(share):
                        yield from piece.to_batches()
        except psycopg.Error as error:
            found = explain_error(error, self.table, self.address).diagnostics[0]
            details = {"code": found.code, "message": found.message, "help": found.help}
            raise RuntimeError(FAILURE_PREFIX + json.dumps(details)) from None
        except ValueError as wrong:
            message = f"table `{self.table}`: PostgreSQL has a value that the declared type cannot represent: {wrong}"
            raise RuntimeError(
                FAILURE_PREFIX + json.dumps({"code": "bad-record", "message": message, "help": None})
            ) from None

    def rows(self, share: int) -> Iterator[pa.Table]:
        """Yield the rows of a share in pieces.

        A lost connection is retried, unless rows have been emitted already. Raises psycopg.Error,
        and ValueError for a value that its type cannot represent.
        """
        from everfold.connectors.jdbc.client import Link

        link = Link(self.address, retries=self.retries, patience_ms=self.patience_ms)

        def begin(connection: Connection) -> tuple[Iterator[bytes], bytes]:
            blocks = _blocks(connection, self.queries[share])
            return blocks, next(blocks, b"")

        try:
            blocks, first = link.run(begin)
            yield from_csv(first, self.types)
            for block in blocks:
                yield from_csv(block, self.types)
        finally:
            link.close()


def _blocks(connection: Connection, query: str) -> Iterator[bytes]:
    """Yield the output of COPY in blocks of whole rows, some megabytes each."""
    with connection.cursor() as cursor, cursor.copy(query.encode()) as copy:
        rows: list[bytes] = []
        size = 0
        for row in copy:
            rows.append(bytes(row))
            size += len(row)
            if size >= _CHUNK_BYTES:
                yield b"".join(rows)
                rows, size = [], 0
        if rows:
            yield b"".join(rows)
