"""Decode blocks of JSON records into columns.

Records of one shape are split into fields (`json_fields`). Of others, Arrow's parser reads those
whose meaning is beyond doubt: one object per record, every value in the JSON type of its column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everfold.connectors.arrow_arrays import list_offsets
from everfold.connectors.formats.format import Block, RecordColumn
from everfold.connectors.formats.json_fields import Field, split_fields
from everfold.connectors.formats.text_columns import check_decimals, convert_texts, is_convertible
from everfold.connectors.formats.text_decode import TextRules
from everfold.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    RowType,
    TimestampType,
    physical_name,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CHARACTERS = 20_000_000
"""A longer string makes a record unreadable."""
_NOT_JSON = re.compile(rb"[:,\[]\s*-?(NaN|Inf)")
"""Numbers that Arrow's parser takes although JSON has none like them."""
_MAX_BRACKETS = 64
"""A record with more brackets is not given to Arrow's parser, whose stack is limited."""


def are_decodable(columns: Sequence[RecordColumn]) -> bool:
    """Return whether records with these columns can be decoded in blocks."""
    return all(_is_decodable(column.type) for column in columns)


def _is_decodable(of: DataType) -> bool:
    match of:
        case ArrayType():
            return _is_decodable(of.element)
        case RowType():
            return all(_is_decodable(part.type) for part in of.fields)
        case _:
            return is_convertible(of)


@dataclass(frozen=True, slots=True)
class JsonBlocks:
    """Decodes blocks of records that are objects.

    columns: those that are needed. rules: the syntax of values. all_required: whether a record with
    a missing field is left to another decoder.
    """

    columns: Sequence[RecordColumn]
    rules: TextRules
    all_required: bool = False

    def __call__(self, records: pa.BinaryArray) -> Block | None:
        """Return the rows of records, None if some record is not regular."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pc.max(pc.binary_length(records)).as_py() > MAX_CHARACTERS:
            return None
        try:
            texts = records.cast(pa.string())
            values = self._split(texts) or self._parse(texts)
        except pa.ArrowInvalid:
            return None
        if values is None:
            return None
        fields = [pa.field(physical_name(column.position), column.type.arrow) for column in self.columns]
        columns = [each.cast(field.type) for each, field in zip(values, fields, strict=True)]
        return Block(pa.table(columns, pa.schema(fields)))

    def _split(self, texts: pa.StringArray) -> list[Any] | None:
        """Return the columns of records of one shape, None if a parser is needed.

        Raises ArrowInvalid if a value needs one.
        """
        import pyarrow as pa

        if not all(is_convertible(column.type) for column in self.columns):
            return None
        fields = split_fields(texts, [column.name for column in self.columns])
        if fields is None or (self.all_required and len(fields) < len(self.columns)):
            return None
        try:
            return [self._convert_field(fields.get(each.name), each.type, len(texts)) for each in self.columns]
        except pa.ArrowInvalid:
            return None

    def _convert_field(self, field: Field | None, of: DataType, count: int) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if field is None:
            return pa.nulls(count, of.arrow)
        texts = field.texts
        if not field.is_quoted:
            are_null = pc.equal(texts, "null")
            if pc.any(are_null).as_py():
                texts = pc.if_else(are_null, None, texts)
        return convert_texts(texts, of, self.rules)

    def _parse(self, texts: pa.StringArray) -> list[Any] | None:
        """Return the columns of records that Arrow's parser reads as Flink does, None for others.

        Raises ArrowInvalid for others too.
        """
        import pyarrow as pa
        import pyarrow.json as pj

        content = _join_objects(texts)
        if content is None:
            return None
        schema = pa.schema([pa.field(each.name, _parsed_type(each.type)) for each in self.columns])
        parsed = pj.read_json(
            pa.BufferReader(content),
            read_options=pj.ReadOptions(use_threads=False, block_size=content.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        if parsed.num_rows != len(texts):
            return None
        columns = [parsed.column(each.name).combine_chunks() for each in self.columns]
        if self.all_required and any(column.null_count for column in columns):
            return None
        return [self._convert(values, each.type) for values, each in zip(columns, self.columns, strict=True)]

    def _convert(self, values: Any, of: DataType) -> Any:
        """Convert the times in a parsed column, and check its decimals.

        Raises ArrowInvalid if one is not regular.
        """
        import pyarrow as pa

        match of:
            case TimestampType() | DateType():
                return convert_texts(values, of, self.rules)
            case DecimalType():
                return check_decimals(values, of)
            case ArrayType() if _is_incomplete(of):
                elements = self._convert(values.flatten(), of.element)
                return pa.ListArray.from_arrays(list_offsets(values), elements, type=of.arrow)
            case RowType() if _is_incomplete(of):
                parts = [
                    self._convert(part, field.type) for part, field in zip(values.flatten(), of.fields, strict=True)
                ]
                return pa.StructArray.from_arrays(parts, fields=list(of.arrow), mask=values.is_null())
            case _:
                return values


def _is_incomplete(of: DataType) -> bool:
    """Return whether Arrow's parser has not finished the values of a type."""
    match of:
        case ArrayType():
            return _is_incomplete(of.element)
        case RowType():
            return any(_is_incomplete(part.type) for part in of.fields)
        case _:
            return isinstance(of, TimestampType | DateType | DecimalType)


def _parsed_type(of: DataType) -> pa.DataType:
    """Return the type that Arrow's parser reads: texts for times."""
    import pyarrow as pa

    match of:
        case TimestampType() | DateType():
            return pa.string()
        case ArrayType():
            return pa.list_(_parsed_type(of.element))
        case RowType():
            return pa.struct([(part.name, _parsed_type(part.type)) for part in of.fields])
        case _:
            return of.arrow


def _join_objects(texts: pa.StringArray) -> pa.Buffer | None:
    """Return records as lines.

    None unless each is one line, and looks like one object of limited depth.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))).as_py():
        return None
    content = pc.binary_join(pa.LargeListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    joined = bytes(content)
    if joined.count(b"\n") >= len(texts):
        return None
    if (b"NaN" in joined or b"Inf" in joined) and _NOT_JSON.search(joined):
        return None
    return content if joined.count(b"{") + joined.count(b"[") <= len(texts) or _are_shallow(texts) else None


def _are_shallow(texts: pa.Array) -> bool:
    import pyarrow.compute as pc

    brackets = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
    return bool(pc.all(pc.less_equal(brackets, _MAX_BRACKETS)).as_py())
