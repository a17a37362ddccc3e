"""Decode JSON records into columns, many at once.

Records of one shape are split into fields (`json_fields`). Of others, Arrow's parser reads those
whose meaning is beyond doubt: one flat object per record, every field in the JSON type of its
column. It reads a block as a whole or not at all, so a block that it does not take is halved until
the other records are alone. Those are decoded one by one, as `Format.decoder` does it, which also
says what is wrong with a bad record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_fields import SCALAR, Field, are_times, first_bytes, split_fields
from everfold.connectors.formats.text_decode import BadValue
from everfold.types import (
    BooleanType,
    DataType,
    DateType,
    FloatingType,
    IntegerType,
    StringType,
    TimestampType,
    physical_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

_FEW_RECORDS = 16
"""A block with fewer records is not halved any further."""
_NOT_JSON = re.compile(rb"[:,\[]\s*-?(NaN|Inf)")
"""Numbers that Arrow's parser takes although JSON has none like them."""
_MAX_BRACKETS = 64
"""A record with more brackets is not given to Arrow's parser, whose stack is limited."""


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Rows decoded from records.

    rows: the columns by position in the table, `c<position>`. records: the index of the record of
        each row; None if record and row have the same index.
    """

    rows: pa.Table
    records: Sequence[int] | None


class BadRecord(Exception):
    """A record that cannot be read. index: its position among the records."""

    def __init__(self, index: int, reason: str, record: bytes) -> None:
        super().__init__(reason)
        self.index, self.reason, self.record = index, reason, record


def reason_not_in_columns(form: JsonFormat, columns: Sequence[RecordColumn]) -> str | None:
    """Return why records cannot be decoded here, None if they can."""
    if form.ignore_errors:
        return "json.ignore-parse-errors"
    if form.fail_on_missing:
        return "json.fail-on-missing-field"
    if not columns:
        return "no column of the record is read"
    other = next((column for column in columns if not _is_flat(column.type)), None)
    return None if other is None else f"column `{other.name}` of type {other.type.sql}"


def _is_flat(of: DataType) -> bool:
    return isinstance(of, BooleanType | IntegerType | FloatingType | StringType | TimestampType | DateType)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of `count` records from the one with the index `first` on."""

    first: int
    count: int
    rows: pa.Table


class JsonDecoder:
    """Decodes the records of a table."""

    def __init__(self, form: JsonFormat, columns: Sequence[RecordColumn]) -> None:
        import pyarrow as pa

        self._form, self._columns = form, columns
        self._schema = pa.schema([pa.field(each.name, _parsed_type(each.type)) for each in columns])
        self._decode_one: Callable[[bytes], Iterator[list[object]]] | None = None

    def decode(self, records: pa.Array) -> DecodedRecords:
        """Decode records, a BINARY array without NULL. Raises BadRecord."""
        import pyarrow as pa

        parts = list(self._decode_parts(records, 0))
        rows = pa.concat_tables([part.rows for part in parts] or [self._build([[] for _ in self._columns])])
        if all(part.rows.num_rows == part.count for part in parts):
            return DecodedRecords(rows, None)
        indexes: list[int] = []
        for part in parts:
            regular = part.rows.num_rows == part.count
            indexes += range(part.first, part.first + part.count) if regular else [part.first] * part.rows.num_rows
        return DecodedRecords(rows, indexes)

    def _decode_parts(self, records: pa.Array, first: int) -> Iterator[_Part]:
        rows = self._parse(records)
        if rows is not None:
            yield _Part(first, len(records), rows)
        elif len(records) >= _FEW_RECORDS:
            half = len(records) // 2
            yield from self._decode_parts(records.slice(0, half), first)
            yield from self._decode_parts(records.slice(half), first + half)
        else:
            for at, record in enumerate(records.to_pylist(), first):
                yield _Part(at, 1, self._decode_alone(record, at))

    def _parse(self, records: pa.Array) -> pa.Table | None:
        """Return the rows of regular records, None if some record is not regular."""
        import pyarrow as pa
        import pyarrow.json as pj

        if not len(records):
            return None
        try:
            texts = records.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        rows = self._split(texts)
        if rows is not None:
            return rows
        content = _join_flat_objects(texts)
        if content is None:
            return None
        try:
            parsed = pj.read_json(
                pa.BufferReader(content),
                read_options=pj.ReadOptions(use_threads=False, block_size=content.size + 1),
                parse_options=pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
            )
            if parsed.num_rows != len(records):
                return None
            return self._build([self._convert(parsed.column(each.name), each.type) for each in self._columns])
        except pa.ArrowInvalid:
            return None

    def _split(self, texts: pa.StringArray) -> pa.Table | None:
        """Return the rows of records of one shape, None if a parser is needed."""
        import pyarrow as pa

        fields = split_fields(texts, [column.name for column in self._columns])
        if fields is None:
            return None
        try:
            return self._build(
                [self._convert_field(fields.get(each.name), each.type, len(texts)) for each in self._columns]
            )
        except pa.ArrowInvalid:
            return None

    def _convert_field(self, field: Field | None, of: DataType, count: int) -> Any:
        """Return the values of a column. Raises ArrowInvalid if one is not regular."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if field is None:
            return pa.nulls(count, of.arrow)
        texts = field.texts
        if field.is_quoted:
            match of:
                case StringType():
                    return texts
                case TimestampType() | DateType() if are_times(texts, _time_shape(self._form, of, texts)):
                    return texts.cast(of.arrow)
                case TimestampType() | DateType():
                    return self._convert(texts, of)
            raise pa.ArrowInvalid
        if isinstance(of, IntegerType):
            values = _to_integers(texts, of)
            if values is not None:
                return values
        are_null = pc.equal(texts, "null")
        if pc.any(are_null).as_py():
            texts = pc.if_else(are_null, None, texts)
        match of:
            case BooleanType():
                values = pc.equal(texts, "true")
                is_regular = pc.or_(values, pc.equal(texts, "false"))
            case IntegerType():
                values = texts.cast(of.arrow)
                is_regular = pc.equal(values.cast(pa.string()), texts)
            case FloatingType():
                is_regular = pc.match_substring_regex(texts, SCALAR)
                values = texts.cast(of.arrow)
            case _:
                values, is_regular = pa.nulls(count, of.arrow), are_null
        if not pc.all(is_regular, min_count=0).as_py():
            raise pa.ArrowInvalid
        return values

    def _convert(self, values: Any, of: DataType) -> Any:
        """Return the values of a column. Raises ArrowInvalid if one is not regular."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not isinstance(of, TimestampType | DateType):
            return values
        if not pc.all(pc.match_substring_regex(values, _pattern(self._form, of)), min_count=0).as_py():
            raise pa.ArrowInvalid
        return values.cast(of.arrow)

    def _decode_alone(self, record: bytes, index: int) -> pa.Table:
        if self._decode_one is None:
            self._decode_one = self._form.decoder(self._columns)
        try:
            rows = list(self._decode_one(record))
        except BadValue as wrong:
            raise BadRecord(index, wrong.reason, record) from None
        import pyarrow as pa

        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._columns)
        return self._build(
            [pa.array(each, column.type.arrow) for each, column in zip(columns, self._columns, strict=True)]
        )

    def _build(self, values: Sequence[Any]) -> pa.Table:
        import pyarrow as pa

        fields = [pa.field(physical_name(column.position), column.type.arrow) for column in self._columns]
        return pa.table(list(values), pa.schema(fields))


def _to_integers(texts: pa.StringArray, of: IntegerType) -> pa.Array | None:
    """Return the values of texts, None if one is not regular, NULL for example.

    Those that do not begin with one of the digits 1 to 9 are compared with the text of their value:
    Arrow also takes `007`, `0x7` and `-0`. That takes four times as long as the cast.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        values = texts.cast(of.arrow)
    except pa.ArrowInvalid:
        return None
    others = np.flatnonzero(first_bytes(texts) - np.uint8(ord("1")) > 8)
    if not others.size:
        return values
    rest = pa.array(others)
    are_same = pc.equal(values.take(rest).cast(pa.string()), texts.take(rest))
    return values if pc.all(are_same, min_count=0).as_py() else None


def _join_flat_objects(texts: pa.StringArray) -> pa.Buffer | None:
    """Return records as lines.

    None unless each is one line, and looks like one object of limited depth.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return None
    content = pc.binary_join(pa.LargeListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    found = bytes(content)
    if found.count(b"\n") >= len(texts):
        return None
    if (b"NaN" in found or b"Inf" in found) and _NOT_JSON.search(found):
        return None
    return content if found.count(b"{") + found.count(b"[") <= len(texts) or _are_shallow(texts) else None


def _are_shallow(texts: pa.Array) -> bool:
    import pyarrow.compute as pc

    brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    return bool(pc.all(pc.less_equal(brackets, _MAX_BRACKETS)).as_py())


def _parsed_type(of: DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.string() if isinstance(of, TimestampType | DateType) else of.arrow


def _time_shape(form: JsonFormat, of: TimestampType | DateType, texts: pa.StringArray) -> str:
    """Return the shape (`are_times`) that `_pattern` accepts with the length of the first text."""
    if isinstance(of, DateType):
        return "0000-00-00"
    zone = form.rules.zone if of.local_zone else ""
    shape = f"0000-00-00{form.rules.separator}00:00:00"
    digits = len(texts[0].as_py()) - len(shape) - len(zone) - 1
    return shape + (f".{'0' * digits}" if 1 <= digits <= min(of.precision, 6) else "") + zone


def _pattern(form: JsonFormat, of: DataType) -> str:
    """Return the regular expression of the strings that Arrow converts as Flink does."""
    date = r"(1[6-9]|[2-9]\d)\d\d-\d\d-\d\d"
    if isinstance(of, DateType):
        return f"^{date}$"
    assert isinstance(of, TimestampType)
    digits = min(of.precision, 6)
    fraction = rf"(\.\d{{1,{digits}}})?" if digits else ""
    zone = form.rules.zone if of.local_zone else ""
    return rf"^{date}{form.rules.separator}\d\d:\d\d:\d\d{fraction}{zone}$"
