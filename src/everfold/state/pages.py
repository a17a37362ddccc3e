"""Pages: the blobs that state is kept in. A head that tells a damaged page from a sound one, then Arrow or JSON; never pickle.

Layout, little endian: magic `EFPG`, version (1 byte), kind (1 byte: `R` rows, `H` head), 2 bytes of zeros, length of the body (8), CRC-32
of the body (4). A rows page goes on with one uncompressed Arrow IPC stream in Arrow's own types; a head page with JSON in UTF-8.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

from everfold.errors import StateError

if TYPE_CHECKING:
    import polars as pl

MAGIC = b"EFPG"
VERSION = 1
MAX_PAGE_BYTES = 16 << 20
"""Writers split their rows so that no page is larger."""

_HEADER = struct.Struct("<4sBc2xQI")
_EXTENSION = b"ARROW:extension:name"
_ROWS, _HEAD = b"R", b"H"


def encode(frame: pl.DataFrame) -> bytes:
    """A page of rows. Types that Arrow lacks (Int128) cannot be kept."""
    import polars as pl

    body = io.BytesIO()
    frame.rechunk().write_ipc_stream(body, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    return _sealed(_ROWS, body.getbuffer())


def decode(blob: bytes | bytearray | memoryview) -> pl.DataFrame:
    """The rows of a page; StateError `damaged-page` if it is not one, or not as it was written."""
    body = _opened(_ROWS, blob)
    import polars as pl
    import pyarrow as pa

    try:
        reader = pa.ipc.open_stream(pa.py_buffer(body))
        for field in reader.schema:
            # An extension type runs the code that registered it, and pages have none.
            if isinstance(field.type, pa.BaseExtensionType) or _EXTENSION in (field.metadata or {}):
                raise _damaged(f"its column `{field.name}` is of an extension type")
        frame = pl.from_arrow(reader.read_all())
    except (pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(f"its rows cannot be read: {error}") from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def encode_head(head: dict[str, Any]) -> bytes:
    """A head page: small facts of an operator's bucket."""
    return _sealed(_HEAD, json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode())


def decode_head(blob: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The facts of a head page; StateError `damaged-page` if it is not one, or not as it was written."""
    body = _opened(_HEAD, blob)
    try:
        head = json.loads(bytes(body))
    except ValueError as error:
        raise _damaged(f"its JSON cannot be read: {error}") from error
    if not isinstance(head, dict):
        raise _damaged("its JSON is no object")
    return head


def _sealed(kind: bytes, body: bytes | memoryview) -> bytes:
    return b"".join((_HEADER.pack(MAGIC, VERSION, kind, len(body), zlib.crc32(body)), body))


def _opened(kind: bytes, blob: bytes | bytearray | memoryview) -> memoryview:
    page = memoryview(blob)
    if len(page) < _HEADER.size:
        raise _damaged(f"it has {len(page)} bytes, less than its head")
    magic, version, found, length, checksum = _HEADER.unpack_from(page)
    if magic != MAGIC:
        raise _damaged("it does not begin as a page does")
    if version != VERSION:
        raise _damaged(f"it has version {version}; this everfold reads version {VERSION}")
    if found != kind:
        raise _damaged(f"it is of kind {found!r} where {kind!r} should be")
    body = page[_HEADER.size :]
    if len(body) != length:
        raise _damaged(f"it has {len(body)} bytes behind its head instead of {length}")
    if zlib.crc32(body) != checksum:
        raise _damaged("its checksum is wrong")
    return body


def _damaged(why: str) -> StateError:
    error = StateError.of("damaged-page", f"a page of the state is damaged: {why}")
    assert isinstance(error, StateError)
    return error
