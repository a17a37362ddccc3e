"""The names and types that the formats of records hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.types import (
    AnyType,
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    MapType,
    NumericType,
    RowType,
    StringType,
    TemporalType,
    TimestampType,
    with_article,
)

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_avro_field(table: Table, name: str, data_type: DataType, column: str | None = None) -> None:
    """Raise UnsupportedFeature `avro-type` if an Avro record cannot have a field.

    column: the column that it belongs to, if it has another name.
    """
    unsupported = _unsupported_in_avro(name, data_type)
    if unsupported is not None:
        column = column or name
        raise UnsupportedFeature.of(
            "avro-type",
            f"table `{table.name}`: format avro does not read or write {unsupported} (column `{column}`)",
            table.span_of(column),
        )


def check_json_field(table: Table, data_type: DataType, column: str) -> None:
    """Raise UnsupportedFeature `json-map-key` for a MAP whose keys are not STRING.

    JSON has no other keys.
    """
    for part in _walk(data_type):
        if isinstance(part, MapType) and not isinstance(part.key, StringType | AnyType):
            raise UnsupportedFeature.of(
                "json-map-key",
                f"table `{table.name}`: column `{column}` is {with_article(part)}:"
                " the keys of a JSON object are STRING",
                table.span_of(column),
            )


def _unsupported_in_avro(name: str, data_type: DataType) -> str | None:
    """Return the part of a field that Avro does not support, as a noun phrase.

    None if it supports the field.
    """
    if _AVRO_NAME.fullmatch(name) is None:
        return f"a field named `{name}`, as its names are letters, digits and `_`"
    match data_type:
        case RowType():
            return next(
                filter(None, (_unsupported_in_avro(field.name, field.type) for field in data_type.fields)), None
            )
        case ArrayType():
            return _unsupported_in_avro("element", data_type.element)
        case MapType():
            has_string_keys = isinstance(data_type.key, StringType | AnyType)
            return _unsupported_in_avro("value", data_type.value) if has_string_keys else with_article(data_type)
        case TimestampType() if data_type.precision > 6:
            return with_article(data_type)
        case BooleanType() | NumericType() | StringType() | BytesType() | TemporalType() | AnyType():
            return None
        case _:
            return with_article(data_type)


def _walk(data_type: DataType) -> Iterator[DataType]:
    yield data_type
    match data_type:
        case ArrayType():
            yield from _walk(data_type.element)
        case MapType():
            yield from _walk(data_type.key)
            yield from _walk(data_type.value)
        case RowType():
            for field in data_type.fields:
                yield from _walk(field.type)
