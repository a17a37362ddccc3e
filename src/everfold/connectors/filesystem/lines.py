"""Read the lines of text files, which may be compressed."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from everfold.connectors.filesystem.paths import display_path
from everfold.errors import ConnectorError

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 32 << 20
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; `\\n` or `\\r\\n` ends a line.

    The file may be compressed, by its extension.
    """
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            yield number, line.rstrip(b"\r\n")


class LineBlock(NamedTuple):
    """Lines of a file that are not empty, as a BINARY array, and their numbers."""

    content: pa.Array
    numbers: Sequence[int]


def read_line_blocks(path: Path, base_folder: Path) -> Iterator[LineBlock]:
    """Yield the lines of a file, without `\\r\\n` or `\\n`, in blocks of bounded size.

    Raises ConnectorError `bad-file`.
    """
    first, rest = 1, b""
    try:
        with _open(path) as file:
            while block := file.read(_BLOCK_BYTES):
                whole, end, rest = (rest + block).rpartition(b"\n")
                lines, count = _split_lines(whole + end, first)
                first += count
                if len(lines.content):
                    yield lines
    except OSError as wrong:
        raise bad_file_error(display_path(path, base_folder), wrong.strerror or str(wrong)) from None
    if rest:
        yield _split_lines(rest + b"\n", first)[0]


def _split_lines(content: bytes, first: int) -> tuple[LineBlock, int]:
    """Return the lines of content that ends with a line break, and their number with empty ones."""
    import numpy as np
    import pyarrow as pa

    while b"\r\n" in content:
        content = content.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    filled = np.flatnonzero(ends > starts)
    # The bytes between two offsets are a line and the line break before it, which is cut off below.
    offsets = np.empty(2 * len(filled) + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = starts[filled], ends[filled]
    offsets[-1] = len(content)
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(filled), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    lines = parts.take(pa.array(np.arange(0, 2 * len(filled), 2)))
    return LineBlock(lines, (filled + first).tolist()), len(ends)


def _open(path: Path) -> IO[bytes]:
    if path.suffix not in _COMPRESSED:
        return open(path, "rb")
    import pyarrow as pa

    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(str(path), compression="detect")))


def bad_file_error(shown: str, reason: str) -> ConnectorError:
    """Return the error for a file that cannot be decoded."""
    return ConnectorError.of(
        "bad-file", f"`{shown}`: {reason}", help="fix or remove the file, and run the same command again"
    )
