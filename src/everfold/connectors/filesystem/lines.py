"""Read the lines of text files, which may be compressed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from everfold.connectors.arrow_arrays import cut_bytes
from everfold.connectors.filesystem.paths import display_path
from everfold.errors import ConnectorError

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_BYTES = 32 << 20
_PIECE_BYTES = 1 << 20


class LineBlock(NamedTuple):
    """Lines of a file as a BINARY array, and their numbers; none if they are not known."""

    content: pa.Array
    numbers: Sequence[int]


class LineRules(NamedTuple):
    """How content is divided into lines.

    keep_empty: whether an empty line is one. keep_returns: whether `\\r` before the end of a line
    is a part of it.
    """

    keep_empty: bool = True
    keep_returns: bool = False


def read_line_blocks(path: Path, base_folder: Path, rules: LineRules) -> Iterator[LineBlock]:
    """Yield the lines of a file in blocks of bounded size: `\\n` or `\\r\\n` ends a line.

    The file may be compressed, by its extension. Raises ConnectorError `bad-file`.
    """
    check_extension(path.name, display_path(path, base_folder))
    try:
        with _open(path) as file:
            yield from split_lines(iter(lambda: file.read(_BLOCK_BYTES), b""), rules)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as wrong:
        reason = getattr(wrong, "strerror", None) or str(wrong)
        raise bad_file_error(display_path(path, base_folder), reason) from None


def split_lines(blocks: Iterator[bytes], rules: LineRules) -> Iterator[LineBlock]:
    """Yield the lines of content that is given in blocks."""
    first, rest = 1, b""
    for block in blocks:
        complete, end, rest = (rest + block).rpartition(b"\n")
        lines, count = _split(complete + end, first, rules)
        first += count
        if len(lines.content):
            yield lines
    if rest:
        last = _split(rest + b"\n", first, rules)[0]
        if len(last.content):
            yield last


def _split(content: bytes, first: int, rules: LineRules) -> tuple[LineBlock, int]:
    """Return the lines of content that ends with a line break, and how many line breaks it has."""
    import numpy as np
    import pyarrow as pa

    while not rules.keep_returns and b"\r\n" in content:
        content = content.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    filled = np.flatnonzero((ends > starts) | rules.keep_empty)
    lines = cut_bytes(pa.py_buffer(content), starts[filled], ends[filled], pa.binary())
    return LineBlock(lines, (filled + first).tolist()), len(ends)


# --- compression ----------------------------------------------------------------------------------


def _open_zstd(path: Path) -> IO[bytes]:
    import pyarrow as pa

    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(str(path), compression="zstd")))


class _Decompressed(io.RawIOBase):
    """The content of a file of one or more compressed streams, and nothing behind them.

    create: returns a decompressor of a stream, as zlib, bz2 and lzma have it. Python's own readers
    of bz2 and xz ignore what follows the last stream. Raises what the decompressor raises, and
    EOFError.
    """

    def __init__(self, path: Path, create: Callable[[], Any]) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._create, self._stream, self._rest = create, create(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = self._next_block()
            if self._stream.eof and not block:
                return 0
            if self._stream.eof:
                self._stream = self._create()
            self._rest = self._stream.decompress(block, _PIECE_BYTES)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def _next_block(self) -> bytes:
        """Return the next compressed bytes, none at the end. Raises EOFError within a stream."""
        if self._stream.eof:
            block: bytes = self._stream.unused_data or self._file.read(_PIECE_BYTES)
            return block.lstrip(b"\0") or self._file.read(_PIECE_BYTES).lstrip(b"\0")  # the padding of xz
        waiting: bytes = getattr(self._stream, "unconsumed_tail", b"")
        if waiting or not getattr(self._stream, "needs_input", True):
            return waiting
        block = self._file.read(_PIECE_BYTES)
        if not block:
            raise EOFError("the compressed content ends too early")
        return block

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_with(create: Callable[[], Any]) -> Callable[[Path], IO[bytes]]:
    return lambda path: io.BufferedReader(_Decompressed(path, create), _PIECE_BYTES)


_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".deflate": _open_with(zlib.decompressobj),
    ".bz2": _open_with(bz2.BZ2Decompressor),
    ".xz": _open_with(lzma.LZMADecompressor),
    ".zst": _open_zstd,
    ".zstd": _open_zstd,
}
"""How to open compressed files, by extension."""
_IN_JAVA = (".gz", ".deflate", ".bz2", ".zst")
"""The extensions that Java decompresses, of files in another store."""
_OTHERS = (
    ".7z", ".br", ".lz", ".lz4", ".lzma", ".lzo", ".lzop", ".rar", ".snappy", ".sz", ".tar", ".taz",
    ".tbz", ".tbz2", ".tgz", ".txz", ".tzst", ".z", ".zip", ".zz",
)  # fmt: skip
"""Extensions of compressed files that are not read."""


def _open(path: Path) -> IO[bytes]:
    opener = _OPENERS.get(path.suffix.lower())
    return open(path, "rb") if opener is None else cast("IO[bytes]", opener(path))


def check_extension(name: str, shown: str, *, in_java: bool = False) -> None:
    """Raise ConnectorError `bad-file` for a file that looks compressed in a way that is not read.

    in_java: whether Java decompresses the file, which is in another store.
    """
    extension = PurePath(name).suffix.lower()
    readable = _IN_JAVA if in_java else tuple(_OPENERS)
    if extension in _OTHERS or (extension in _OPENERS and extension not in readable):
        raise bad_file_error(
            shown,
            f"files with the extension `{extension}` look compressed, and are not read",
            f"compress it with one of {', '.join(readable)}, or give it another extension if it is not compressed",
        )


def bad_file_error(shown: str, reason: str, help_text: str = "") -> ConnectorError:
    """Return the error for a file that cannot be decoded."""
    help_text = help_text or "fix the file, or move it to another folder, and run the same command again"
    return ConnectorError.of("bad-file", f"`{shown}`: {reason}", help=help_text)
