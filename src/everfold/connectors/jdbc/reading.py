"""The task that reads a share of a table.

Spark workers import this module: it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.connector_errors import report_errors
from everfold.connectors.jdbc.address import Address
from everfold.connectors.jdbc.values import from_csv
from everfold.errors import ConnectorError
from everfold.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.connectors.jdbc.client import Connection

_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Reads shares of a table.

    queries: COPY statements, one per share. types, columns: types and names of their columns.
    """

    address: Address
    table: str
    queries: tuple[str, ...]
    types: tuple[DataType, ...]
    columns: tuple[str, ...]
    retries: int
    patience_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the shares whose numbers are in the first column of `batches`."""
        with report_errors():
            for batch in batches:
                for share in batch.column(0).to_pylist():
                    for piece in self.rows(share):
                        yield from piece.to_batches()

    def rows(self, share: int) -> Iterator[pa.Table]:
        """Yield the rows of a share in pieces.

        A lost connection is retried, unless rows have been emitted already. Raises ConnectorError.
        """
        import psycopg

        from everfold.connectors.jdbc.client import Link, explain_error

        link = Link(self.address, retries=self.retries, patience_ms=self.patience_ms)

        def begin(connection: Connection) -> tuple[Iterator[bytes], bytes]:
            blocks = _blocks(connection, self.queries[share])
            return blocks, next(blocks, b"")

        try:
            blocks, first = link.run(begin)
            yield from_csv(first, self.types, self.columns)
            for block in blocks:
                yield from_csv(block, self.types, self.columns)
        except psycopg.Error as error:
            raise explain_error(error, self.table, self.address) from None
        except ValueError as wrong:
            message = f"table `{self.table}`: PostgreSQL has a value that the declared type cannot represent: {wrong}"
            raise ConnectorError.of("bad-record", message) from None
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
