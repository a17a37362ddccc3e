"""Hadoop's `FileStatus` objects in the form in which Hadoop writes them: Protocol Buffers.

A listing crosses from the JVM in one piece; one call for each field took a millisecond for a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.storage.store import Entry

_TYPE, _PATH, _LENGTH, _MODIFIED = 1, 2, 3, 7
_FOLDER = 1
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def parse_statuses(content: bytes) -> Iterator[Entry]:
    """Yield the entries of a listing, with full paths as names.

    content: for each `FileStatus`, its length in four bytes and the message `FileStatusProto`;
    then maybe zeros.
    """
    at = 0
    while length := int.from_bytes(content[at : at + 4], "big"):
        start = at + 4
        at = start + length
        fields = dict(_parse_fields(content[start:at]))
        path = fields[_PATH]
        assert isinstance(path, bytes)
        is_folder = fields[_TYPE] == _FOLDER
        yield Entry(path.decode(), is_folder, _number(fields, _LENGTH), _number(fields, _MODIFIED))


def _number(fields: dict[int, int | bytes], field: int) -> int:
    value = fields.get(field, 0)
    assert isinstance(value, int)
    return value


def _parse_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message with their numbers."""
    at = 0
    while at < len(message):
        tag, at = _parse_varint(message, at)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _parse_varint(message, at)
            yield field, value
        elif kind == _BYTES:
            length, at = _parse_varint(message, at)
            yield field, message[at : at + length]
            at += length
        else:
            assert kind in (_FIXED_64, _FIXED_32), f"wire type {kind} of Protocol Buffers"
            at += 8 if kind == _FIXED_64 else 4


def _parse_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
