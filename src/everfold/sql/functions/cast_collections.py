"""CAST between collections, element by element; TRY_CAST is NULL if any element fails."""

from __future__ import annotations

from collections.abc import Callable

from everfold.sql.functions.build_map import build_map
from everfold.sql.functions.cast_to_text import quote_field
from everfold.sql.functions.writer import Writer
from everfold.types import ArrayType, DataType, MapType, RowType

Convert = Callable[[DataType, DataType, str], str]
"""Returns the SQL of a part converted from one type to another."""
Fails = Callable[[DataType, DataType, str], str | None]
"""Returns the SQL of whether the conversion of a part fails, None if it never does."""


def to_collection(writer: Writer, source: DataType, target: DataType, text: str, convert: Convert) -> str:
    """Return the SQL of an array, map or row with every part converted."""
    if writer.type(source) == writer.type(target) and _alike(source, target):
        return text
    item = writer.new_variable()
    match source, target:
        case (ArrayType(), ArrayType()):
            whole = _transform(writer, text, item, convert(source.element, target.element, item))
            return whole if writer.spark else f"CAST({whole} AS {target.duckdb})"
        case (MapType(), MapType()):
            keys, values = writer.new_variable(), writer.new_variable()
            arrays = {
                keys: _transform(writer, f"map_keys({text})", item, convert(source.key, target.key, item)),
                values: _transform(writer, f"map_values({text})", item, convert(source.value, target.value, item)),
            }
            whole = writer.let_all(arrays, build_map(writer, keys, values))
            return whole if writer.spark else f"CAST({whole} AS {target.duckdb})"
        case (RowType(), RowType()):
            parts = []
            for one, other in zip(source.fields, target.fields, strict=True):
                value = convert(one.type, other.type, f"{item}.{quote_field(writer, one.name)}")
                name = quote_field(writer, other.name)
                parts.append(f"{value} AS {name}" if writer.spark else f"{name} := {value}")
            made = ("struct" if writer.spark else "struct_pack") + "(" + ", ".join(parts) + ")"
            return writer.let(item, text, f"CASE WHEN {item} IS NOT NULL THEN {made} END")
    raise AssertionError((source, target))


def collection_fails(writer: Writer, source: DataType, target: DataType, text: str, fails: Fails) -> str | None:
    """Return the SQL of whether the conversion of any part fails, None if that is impossible.

    text: short SQL, used several times.
    """
    item = writer.new_variable()
    match source, target:
        case (ArrayType(), ArrayType()):
            found = [_any(writer, text, item, fails(source.element, target.element, item))]
        case (MapType(), MapType()):
            found = [
                _any(writer, f"map_keys({text})", item, fails(source.key, target.key, item)),
                _any(writer, f"map_values({text})", item, fails(source.value, target.value, item)),
            ]
        case (RowType(), RowType()):
            found = [
                fails(one.type, other.type, f"{text}.{quote_field(writer, one.name)}")
                for one, other in zip(source.fields, target.fields, strict=True)
            ]
        case _:
            raise AssertionError((source, target))
    return " OR ".join(filter(None, found)) or None


def _transform(writer: Writer, array: str, item: str, text: str) -> str:
    if writer.spark:
        return f"transform({array}, {item} -> {text})"
    return f"list_transform({array}, lambda {item}: {text})"


def _any(writer: Writer, array: str, item: str, test: str | None) -> str | None:
    """Return the SQL of whether any item of an array passes a test."""
    if test is None:
        return None
    if writer.spark:
        return f"exists({array}, {item} -> {test})"
    return f"length(list_filter({array}, lambda {item}: {test})) > 0"


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
