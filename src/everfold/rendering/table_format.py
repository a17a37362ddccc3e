"""Tables as Flink's SQL client prints them: a frame of `+---+`, right-aligned cells, `<NULL>`.

As in the SQL client, column widths depend on the content if all rows are known, and on the types if
rows are printed as they arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.cells import cell_len

from everfold.far_times import to_zone
from everfold.rendering import cells
from everfold.types import (
    ArrayType,
    BigIntType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    IntType,
    MapType,
    RowType,
    Schema,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
)

NULL = "<NULL>"
MAX_COLUMN_WIDTH = 30
"""Cells are truncated to this display width. Option `sql-client.display.max-column-width`."""
_ELLIPSIS = "..."


def format_value(value: Any, type: DataType, zone: str = "UTC") -> str:
    """Return a value as the SQL client prints it; TIMESTAMP_LTZ in the time zone `zone`."""
    match type:
        case _ if value is None:
            return "NULL"
        case TimestampType(local_zone=True):
            return str(cells.write(_in_zone(value, zone), type)).removesuffix("Z")
        case BytesType():
            return f"x'{bytes(value).hex()}'"
        case ArrayType():
            return "[" + ", ".join(format_value(each, type.element, zone) for each in value) + "]"
        case MapType():
            pairs = value.items() if isinstance(value, Mapping) else value
            return (
                "{"
                + ", ".join(f"{format_value(k, type.key, zone)}={format_value(v, type.value, zone)}" for k, v in pairs)
                + "}"
            )
        case RowType():
            return "(" + ", ".join(format_value(value[field.name], field.type, zone) for field in type.fields) + ")"
        case _:
            return str(cells.write(value, type))


def _in_zone(value: datetime, zone: str) -> datetime:
    """Return the local time of an instant in a zone."""
    return to_zone(value, ZoneInfo(zone)).replace(tzinfo=None)


def format_cells(row: Sequence[Any], schema: Schema, zone: str = "UTC") -> list[str | None]:
    """Return the cells of a row."""
    return [
        None if value is None else format_value(value, field.type, zone)
        for value, field in zip(row, schema, strict=True)
    ]


def widths_by_content(names: Sequence[str], rows: Iterable[Sequence[str | None]], most: int | None) -> list[int]:
    """Return the width of the widest cell of each column, at most `most`."""
    widths = [cell_len(name) for name in names]
    for row in rows:
        widths = [max(width, cell_len(_text(cell))) for width, cell in zip(widths, row, strict=True)]
    return widths if most is None else [min(width, most) for width in widths]


def widths_by_type(schema: Schema, most: int) -> list[int]:
    """Return the width of any value of the columns' types; `most` for strings and collections."""
    return [max(cell_len(field.name), _type_width(field.type, most), len(NULL)) for field in schema]


def _type_width(type: DataType, most: int) -> int:
    match type:
        case TinyIntType() | SmallIntType() | IntType() | BigIntType():
            return type.digits + 1
        case DecimalType():
            return type.precision + 2
        case BooleanType():
            return len("FALSE")
        case DateType():
            return len("2020-04-15")
        case TimeType():
            return len("08:05:00") + (type.precision + 1 if type.precision else 0)
        case TimestampType():
            return len("2020-04-15 08:05:00") + (type.precision + 1 if type.precision else 0)
        case _:
            return most


def _text(cell: str | None) -> str:
    return NULL if cell is None else cell.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def rule(widths: Sequence[int]) -> str:
    """Return a horizontal line of the frame."""
    return "+" + "+".join("-" * (width + 2) for width in widths) + "+"


def line(row: Sequence[str | None], widths: Sequence[int], *, null: str = NULL) -> str:
    """Return a row as a line: cells are right-aligned, and truncated if they are too wide."""
    fitted = (_fit(null if cell is None else _text(cell), width) for cell, width in zip(row, widths, strict=True))
    return "| " + " | ".join(fitted) + " |"


def _fit(text: str, width: int) -> str:
    if (used := cell_len(text)) <= width:
        return " " * (width - used) + text
    kept = ""
    for character in text:
        if cell_len(kept + character) > max(0, width - len(_ELLIPSIS)):
            break
        kept += character
    return " " * (width - len(_ELLIPSIS) - cell_len(kept)) + kept + _ELLIPSIS[: max(0, width)]


def table(
    names: Sequence[str], rows: Sequence[Sequence[str | None]], *, most: int | None = MAX_COLUMN_WIDTH, null: str = NULL
) -> Iterator[str]:
    """Yield the lines of a table, including the frame and the row count.

    null: the string for NULL (DESCRIBE: empty).
    """
    if rows:
        filled = [[null if cell is None else cell for cell in row] for row in rows]
        widths = widths_by_content(names, filled, most)
        yield rule(widths)
        yield line(names, widths)
        yield rule(widths)
        for row in filled:
            yield line(row, widths)
        yield rule(widths)
    yield count(len(rows))


def count(rows: int) -> str:
    """Return the line below a table."""
    return "Empty set" if rows == 0 else f"{rows} row{'s' if rows != 1 else ''} in set"
