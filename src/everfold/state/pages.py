"""Pages: the blobs that hold state, a checksummed header followed by Arrow or JSON, never pickle.

Layout, little endian: magic `EFPG`, version (1 byte), kind (1 byte: `R` rows, `H` head), 2 zero
bytes, length of the body (8), CRC-32 of the body (4). The body of a rows page is one uncompressed
Arrow IPC stream in Arrow's own types; the body of a head page is JSON in UTF-8.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everfold.errors import StateError

if TYPE_CHECKING:
    import polars as pl

MAGIC = b"EFPG"
VERSION = 1
MAX_PAGE_BYTES = 16 << 20
"""Maximum size of a page; writers split their rows accordingly."""
_COPIED_BYTES = 128 << 10
"""Polars reads pages up to this size in a fifth of the time, but copies them, unlike pyarrow."""

_HEADER = struct.Struct("<4sBc2xQI")
_EXTENSION = b"ARROW:extension:name"
_ROWS, _HEAD = b"R", b"H"


@dataclass(slots=True)
class PageSizes:
    """Sizes of pages of rows: their rows, their bytes, and the bytes of each column."""

    rows: int = 0
    bytes: int = 0
    columns: dict[str, int] = field(default_factory=dict)

    def add(self, frame: pl.DataFrame, size: int) -> None:
        """Add the rows of a page, which has `size` bytes."""
        self.rows += frame.height
        self.bytes += size
        for column in frame.get_columns():
            self.columns[column.name] = self.columns.get(column.name, 0) + int(column.estimated_size())


_written = PageSizes()


def take_written_sizes() -> PageSizes:
    """Return the sizes of the pages that this process has encoded since the last call."""
    global _written
    found, _written = _written, PageSizes()
    return found


def encode(frame: pl.DataFrame) -> bytes:
    """Encode rows as a page. Types that Arrow lacks (Int128) cannot be stored."""
    import polars as pl

    body = io.BytesIO()
    frame.rechunk().write_ipc_stream(body, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    page = _seal_page(_ROWS, body.getbuffer())
    _written.add(frame, len(page))
    return page


def encode_pages(rows: pl.DataFrame, step: int) -> list[tuple[bytes, int]]:
    """Encode rows as pages of `step` rows; return each page with its row count.

    A page that would be too large is halved, unless it has a single row.
    """
    pages: list[tuple[bytes, int]] = []
    waiting = [rows.slice(start, step) for start in range(0, rows.height, step)][::-1]
    while waiting:
        part = waiting.pop()
        blob = encode(part)
        if len(blob) > MAX_PAGE_BYTES and part.height > 1:
            half = part.height // 2
            waiting += [part.slice(half), part.head(half)]
        else:
            pages.append((blob, part.height))
    return pages


def decode(blob: bytes | bytearray | memoryview) -> pl.DataFrame:
    """Decode the rows of a page.

    Raises StateError `damaged-page` if the blob is not a page, or differs from what was written.
    """
    body = _open_page(_ROWS, blob)
    import polars as pl
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(pa.py_buffer(body))
        for field in reader.schema:
            # Decoding an extension type runs the code that registered it; pages never contain one.
            if isinstance(field.type, pa.BaseExtensionType) or _EXTENSION in (field.metadata or {}):
                raise _damage_error(f"its column `{field.name}` is of an extension type")
        frame = pl.read_ipc_stream(io.BytesIO(body)) if len(body) <= _COPIED_BYTES else pl.from_arrow(reader.read_all())
    except (pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
        raise _damage_error(f"its rows cannot be read: {error}") from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def encode_head(head: dict[str, Any]) -> bytes:
    """Encode a head page: the metadata of an operator's bucket."""
    return _seal_page(_HEAD, json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode())


def decode_head(blob: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Decode the metadata of a head page.

    Raises StateError `damaged-page` if the blob is not a page, or differs from what was written.
    """
    body = _open_page(_HEAD, blob)
    try:
        head = json.loads(bytes(body))
    except ValueError as error:
        raise _damage_error(f"its JSON cannot be read: {error}") from error
    if not isinstance(head, dict):
        raise _damage_error("its JSON is not an object")
    return head


def _seal_page(kind: bytes, body: bytes | memoryview) -> bytes:
    return b"".join((_HEADER.pack(MAGIC, VERSION, kind, len(body), zlib.crc32(body)), body))


def _open_page(kind: bytes, blob: bytes | bytearray | memoryview) -> memoryview:
    page = memoryview(blob)
    if len(page) < _HEADER.size:
        raise _damage_error(f"it has {len(page)} bytes, less than its header")
    magic, version, found, length, checksum = _HEADER.unpack_from(page)
    if magic != MAGIC:
        raise _damage_error("it does not start with the magic bytes of a page")
    if version != VERSION:
        raise _damage_error(f"it has version {version}; this everfold reads version {VERSION}")
    if found != kind:
        raise _damage_error(f"it is of kind {found!r} instead of {kind!r}")
    body = page[_HEADER.size :]
    if len(body) != length:
        raise _damage_error(f"it has {len(body)} bytes after its header instead of {length}")
    if zlib.crc32(body) != checksum:
        raise _damage_error("its checksum is wrong")
    return body


def _damage_error(why: str) -> StateError:
    return StateError.of("damaged-page", f"a page of the state is damaged: {why}")
