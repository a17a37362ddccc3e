"""The columns of a topic, from the fields and storage formats that Lenses SQL declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold import types
from everfold.errors import EverfoldError, Span, SqlError
from everfold.plan.topic_storage import KEY, META, PRIMITIVES, VALUE, find_primitive
from everfold.sql.statements import ColumnDef, MetadataColumn, OptionDef, PhysicalColumn
from everfold.types import DataType, RowField, RowType

METADATA: dict[str, DataType] = {
    "timestamp": types.TIMESTAMP_LTZ3,
    "offset": types.BIGINT,
    "partition": types.INT,
}
"""The fields of `_meta`."""


@dataclass(frozen=True, slots=True)
class FieldDef:
    """A declared field. path: its name, after that of its facet if it is written."""

    path: tuple[str, ...]
    type: DataType
    type_span: Span
    span: Span


def build_topic_columns(
    fields: Sequence[FieldDef], key: OptionDef, value: OptionDef, name_span: Span
) -> tuple[ColumnDef, ...]:
    """Return the column `_key`, the columns of the value, and those of `_meta`.

    key, value: the storage formats. Raises SqlError `wrong-format`, `wrong-field`.
    """
    in_key = [field for field in fields if field.path[0] == KEY]
    in_value = [field for field in fields if field.path[0] != KEY]
    return (_key_column(in_key, key), *_value_columns(in_value, value), *_meta_columns(name_span))


def _key_column(fields: Sequence[FieldDef], option: OptionDef) -> PhysicalColumn:
    """Return the `_key` column: as declared, of the format's type, or a ROW of the key's fields."""
    storage_format = option.value.upper()
    type_of_format = PRIMITIVES.get(storage_format)
    whole = [field for field in fields if field.path == (KEY,)]
    parts = [_require_name(field, field.path[1:]) for field in fields if field.path != (KEY,)]
    if len(fields) > 1 and whole:
        raise _wrong_format("`_key` is declared as a whole and by its fields, or twice", fields[1].span)
    if parts:
        row = RowType(fields=tuple(RowField(name=part.name, type=part.type) for part in parts))
        column = PhysicalColumn(name=KEY, type=row, type_span=parts[0].type_span, span=parts[0].span)
    elif whole:
        column = _require_name(whole[0], (KEY,))
    elif type_of_format is not None:
        return PhysicalColumn(name=KEY, type=type_of_format, type_span=option.span, span=option.span)
    if not fields or (type_of_format is None and not isinstance(column.type, RowType)):
        raise _wrong_format(f"a key in {storage_format} needs fields, but none is declared", option.span)
    if type_of_format is not None and find_primitive(column.type) != storage_format:
        raise _wrong_format(f"a key in {storage_format} is {type_of_format.sql}, not {column.type.sql}", column.span)
    return column


def _value_columns(fields: Sequence[FieldDef], option: OptionDef) -> tuple[PhysicalColumn, ...]:
    """Return the fields of the value, or `_value` itself if its format is a primitive one."""
    storage_format = option.value.upper()
    type_of_format = PRIMITIVES.get(storage_format)
    columns = tuple(
        _require_name(field, field.path[1:] if field.path[0] == VALUE and len(field.path) > 1 else field.path)
        for field in fields
    )
    whole = next((column for column in columns if column.name == VALUE), None)
    if type_of_format is None:
        if not columns or whole is not None:
            span = option.span if whole is None else whole.span
            raise _wrong_format(f"a value in {storage_format} needs fields, but none is declared", span)
        return columns
    if not columns:
        return (PhysicalColumn(name=VALUE, type=type_of_format, type_span=option.span, span=option.span),)
    if len(columns) > 1 or whole is None or find_primitive(whole.type) != storage_format:
        raise _wrong_format(f"a value in {storage_format} is `_value {type_of_format.sql}`", columns[0].span)
    return columns


def _require_name(field: FieldDef, path: tuple[str, ...]) -> PhysicalColumn:
    """Return the column of a field. Raises SqlError `wrong-field` if its path is not one name."""
    if len(path) > 1 or path[0] == META:
        help_text = f"declare a structure: `{path[0]} ROW<{path[-1]} {field.type.sql}>`"
        raise SqlError.of("wrong-field", f"`{'.'.join(field.path)}` is not a field", field.span, help_text)
    return PhysicalColumn(name=path[0], type=field.type, type_span=field.type_span, span=field.span)


def _wrong_format(message: str, span: Span) -> EverfoldError:
    return SqlError.of(
        "wrong-format", message, span, "FORMAT (key, value) sets the storage formats of the key and the value"
    )


def _meta_columns(span: Span) -> tuple[ColumnDef, ...]:
    return tuple(
        MetadataColumn(name=f"{META}.{name}", type=data_type, key=name, virtual=True, type_span=span, span=span)
        for name, data_type in METADATA.items()
    )
