"""CAST between collections, element by element."""

from __future__ import annotations

from collections.abc import Callable

from everfold.sql.functions.cast_to_text import quote_field
from everfold.sql.functions.writer import Writer
from everfold.types import ArrayType, DataType, MapType, RowType

Convert = Callable[[DataType, DataType, str], str]


def to_collection(writer: Writer, source: DataType, target: DataType, text: str, convert: Convert) -> str:
    """Return the SQL of an array, map or row with every part converted."""
    if writer.type(source) == writer.type(target) and _alike(source, target):
        return text
    item = writer.new_variable()
    match source, target:
        case (ArrayType(), ArrayType()):
            each = convert(source.element, target.element, item)
            if writer.spark:
                return f"transform({text}, {item} -> {each})"
            return f"CAST(list_transform({text}, lambda {item}: {each}) AS {target.duckdb})"
        case (MapType(), MapType()):
            key, value = (
                convert(source.key, target.key, f"{item}.key"),
                convert(source.value, target.value, f"{item}.value"),
            )
            if writer.spark:
                return f"map_from_entries(transform(map_entries({text}), {item} -> struct({key} AS key, {value} AS value)))"
            pairs = f"list_transform(map_entries({text}), lambda {item}: struct_pack(k := {key}, v := {value}))"
            return f"CAST(map_from_entries({pairs}) AS {target.duckdb})"
        case (RowType(), RowType()):
            parts = []
            for one, other in zip(source.fields, target.fields, strict=True):
                value = convert(one.type, other.type, f"{item}.{quote_field(writer, one.name)}")
                name = quote_field(writer, other.name)
                parts.append(f"{value} AS {name}" if writer.spark else f"{name} := {value}")
            made = ("struct" if writer.spark else "struct_pack") + "(" + ", ".join(parts) + ")"
            return writer.let(item, text, f"CASE WHEN {item} IS NOT NULL THEN {made} END")
    raise AssertionError((source, target))


def _alike(source: DataType, target: DataType) -> bool:
    """Return whether both types differ at most in nullability, which the engines ignore."""
    match source, target:
        case (ArrayType(), ArrayType()):
            return _alike(source.element, target.element)
        case (MapType(), MapType()):
            return _alike(source.key, target.key) and _alike(source.value, target.value)
        case (RowType(), RowType()):
            return all(
                one.name == other.name and _alike(one.type, other.type)
                for one, other in zip(source.fields, target.fields, strict=True)
            )
    return source.same_as(target)
