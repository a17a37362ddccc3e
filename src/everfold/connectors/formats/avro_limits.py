"""Limits of Avro schemas and records, so that hostile ones cost bounded time and memory.

fastavro has none: it recurses in C until the process crashes, and creates as many values as a
record claims to have. Most schemas need no check of their records: they are not recursive, and each
value takes about a byte. Records of other schemas are scanned before they are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from everfold.connectors.formats.text_decode import BadValue
from everfold.limits import MAX_RECORD_BYTES, MAX_RECORD_DEPTH, MAX_RECORD_VALUES, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH

_VALUES_PER_BYTE = 4
"""A type with more values than this for its bytes needs a check of its records."""
_BYTES = {"null": 0, "float": 4, "double": 8}
"""The fewest bytes of a value of a primitive type; of other ones it is 1."""
_PRIMITIVE = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_RECORDS = ("record", "error")
_MAX_VARINT_BYTES = 10
_BRACKETS_AND_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.S)

Check = Callable[[bytes], None]
"""Raises BadValue for a record that exceeds a limit, or is not one of its schema."""


def check_schema_text(text: str) -> None:
    """Raise ValueError for a schema that is too long, or nested too deeply, to be parsed."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise ValueError(f"it has {len(text):,} characters: at most {MAX_SCHEMA_BYTES:,} are allowed")
    depth = 0
    for match in _BRACKETS_AND_STRINGS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > MAX_SCHEMA_DEPTH:
            raise ValueError(f"it is nested more than {MAX_SCHEMA_DEPTH} levels deep")


def check_size(record: bytes) -> None:
    """Raise BadValue for a record with too many bytes."""
    if len(record) > MAX_RECORD_BYTES:
        raise BadValue(f"it has {len(record):,} bytes: at most {MAX_RECORD_BYTES:,} are allowed")


def find_check(schema: Any, named: Mapping[str, Any]) -> Check:
    """Return the check of the records of a parsed schema. named: the types that it names."""
    try:
        _Measure(named).measure(schema, 0)
    except _NeedsScanError:
        return lambda record: _Scan(record, named).check(schema)
    return check_size


class _NeedsScanError(Exception):
    """A schema has records that could be too deep or have too many values."""


class _Size(NamedTuple):
    """The smallest value of a type. values: itself and those that it always contains.

    height: levels of the largest one.
    """

    values: int
    bytes: int
    height: int


class _Measure:
    """Measures the types of a schema, each named one once. Raises _NeedsScanError."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._sizes: dict[str, _Size | None] = {}

    def measure(self, schema: Any, depth: int) -> _Size:
        if depth > MAX_RECORD_DEPTH:
            raise _NeedsScanError
        if isinstance(schema, str) and schema not in _PRIMITIVE:
            return self._measure_named(schema, self._named[schema], depth)
        if isinstance(schema, dict) and "name" in schema:
            return self._measure_named(schema["name"], schema, depth)
        return self._checked(self._measure(schema, depth), depth)

    def _measure_named(self, name: str, schema: Any, depth: int) -> _Size:
        if name not in self._sizes:
            self._sizes[name] = None
            self._sizes[name] = self._measure(schema, depth)
        size = self._sizes[name]
        if size is None:
            raise _NeedsScanError  # it contains itself
        return self._checked(size, depth)

    def _checked(self, size: _Size, depth: int) -> _Size:
        if size.values > _VALUES_PER_BYTE * (size.bytes + 1) or depth + size.height > MAX_RECORD_DEPTH:
            raise _NeedsScanError
        return size

    def _measure(self, schema: Any, depth: int) -> _Size:
        if isinstance(schema, list):
            branches = [self.measure(branch, depth + 1) for branch in schema]
            return _Size(1, 1, 1 + max((size.height for size in branches), default=0))
        kind = kind_of(schema)
        if kind in _RECORDS:
            fields = [self.measure(field["type"], depth + 1) for field in schema["fields"]]
            return _Size(
                1 + sum(size.values for size in fields),
                sum(size.bytes for size in fields),
                1 + max((size.height for size in fields), default=0),
            )
        if kind in ("array", "map"):
            content = self.measure(schema["items" if kind == "array" else "values"], depth + 1)
            if kind == "array" and content.bytes == 0:
                raise _NeedsScanError
            return _Size(1, 1, 1 + content.height)
        if kind == "fixed":
            return _Size(1, int(schema["size"]), 1)
        return _Size(1, _BYTES.get(kind, 1), 1)


def kind_of(schema: Any) -> str:
    """Return the name of a type: `record`, `long`, …."""
    while isinstance(schema, dict):
        schema = schema["type"]
    return str(schema)


class _Scan:
    """Walks through a record without creating its values."""

    def __init__(self, record: bytes, named: Mapping[str, Any]) -> None:
        self._record = record
        self._named = named
        self._offset = 0
        self._values = 0

    def check(self, schema: Any) -> None:
        check_size(self._record)
        self._scan(schema, 1)

    def _scan(self, schema: Any, depth: int) -> None:
        self._values += 1
        if self._values > MAX_RECORD_VALUES:
            raise BadValue(f"it has more than {MAX_RECORD_VALUES:,} values")
        if depth > MAX_RECORD_DEPTH:
            raise BadValue(f"its values are nested more than {MAX_RECORD_DEPTH} levels deep")
        if isinstance(schema, str) and schema not in _PRIMITIVE:
            schema = self._named[schema]
        if isinstance(schema, list):
            self._scan(schema[self._index(len(schema))], depth + 1)
            return
        match kind_of(schema):
            case "record" | "error":
                for field in schema["fields"]:
                    self._scan(field["type"], depth + 1)
            case "array":
                self._scan_blocks(depth, schema["items"], has_keys=False)
            case "map":
                self._scan_blocks(depth, schema["values"], has_keys=True)
            case "int" | "long" | "enum":
                self._number()
            case "bytes" | "string":
                self._skip(self._number())
            case "boolean":
                self._skip(1)
            case "float" | "double" as kind:
                self._skip(_BYTES[kind])
            case "fixed":
                self._skip(int(schema["size"]))

    def _scan_blocks(self, depth: int, content: Any, *, has_keys: bool) -> None:
        while (count := self._number()) != 0:
            if count < 0:
                self._number()  # the bytes of the block
            for _ in range(abs(count)):
                if has_keys:
                    self._skip(self._number())
                self._scan(content, depth + 1)

    def _index(self, size: int) -> int:
        index = self._number()
        if not 0 <= index < size:
            raise self._malformed(f"{index} is not a type of a union")
        return index

    def _number(self) -> int:
        value = 0
        for shift in range(_MAX_VARINT_BYTES):
            self._skip(1)
            byte = self._record[self._offset - 1]
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise self._malformed("a number has too many bytes")

    def _skip(self, length: int) -> None:
        if length < 0 or self._offset + length > len(self._record):
            raise self._malformed("it ends too early")
        self._offset += length

    def _malformed(self, reason: str) -> BadValue:
        return BadValue(f"it is not an Avro record of these columns: {reason}")
