"""Values of Parquet files in the types of a table.

A value that the table's type does not have is an error with its row: a time outside of the years 1
to 9999, a time of day beyond 24 hours, a string that is not UTF-8, a decimal with too many digits.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.connectors.arrow_arrays import list_offsets
from everfold.connectors.formats.format import RecordColumn
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.types import (
    ArrayType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first day of year 1 and the last one of year 9999, in days since 1970."""
_DAY_S, _DAY_MS = 86_400, 86_400_000
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}
UUID_NAME = "arrow.uuid"
"""Arrow's name of the extension type of a UUID."""


class _BadValue(ValueError):
    """A value that the table's type does not have."""


def convert_column(values: pa.Array, column: RecordColumn, path: Path, table: Table, first_row: int) -> pa.Array:
    """Return values of a file in the table's type.

    first_row: the number of the first value in the file, from 1. Raises ConnectorError `bad-file`.
    """
    try:
        return convert_values(values, column.type)
    except ValueError:
        index, reason = _find_bad_value(values, column.type)
    where = f"table `{table.name}`: column `{column.name}` of `{path}` row {first_row + index:,}"
    raise ConnectorError.of("bad-file", f"{where}: {reason}")


def _find_bad_value(values: pa.Array, to: DataType) -> tuple[int, str]:
    """Return the index of the first value that cannot be converted, and the reason."""
    good, bad = 0, len(values)  # the first `good` values can be converted, the first `bad` cannot
    reason = ""
    while bad - good > 1 or not reason:
        middle = (good + bad + 1) // 2 if bad - good > 1 else bad
        try:
            convert_values(values.slice(good, middle - good), to)
            good = middle
        except ValueError as wrong:
            bad, reason = middle, (str(wrong).splitlines() or [""])[0]
    return good, reason


def convert_values(values: pa.Array, to: DataType) -> pa.Array:
    """Return values in a table's type that `is_convertible` has accepted.

    Raises ValueError with the reason for a value that the type does not have.
    """
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kinds.is_null(values.type):
        return pa.nulls(len(values), to.arrow)
    if isinstance(values.type, pa.BaseExtensionType):
        is_uuid, values = values.type.extension_name == UUID_NAME, values.storage
        if is_uuid and isinstance(to, StringType):
            return _format_uuids(values)
    match to:
        case TimestampType():
            return _convert_times(values, to)
        case DateType():
            days = values.cast(pa.date32())
            _check_years(days.view(pa.int32()), "D", 1)
            return days
        case TimeType():
            times = values.cast(pa.time32("ms")).view(pa.int32()) if kinds.is_time32(values.type) else values
            times = times.cast(pa.int32())
            wrong = _find_outside(times, 0, _DAY_MS - 1)
            if wrong is not None:
                raise _BadValue(f"{wrong} ms are not a time of day")
            return times
        case StringType() | BytesType():
            return _convert_bytes(values, to)
        case DecimalType():
            converted = values.cast(to.arrow)
            converted.validate(full=True)
            return converted
        case ArrayType():
            elements = convert_values(values.flatten(), to.element)
            return pa.ListArray.from_arrays(list_offsets(values), elements, type=to.arrow)
        case MapType():
            entries = pa.struct([values.type.key_field, values.type.item_field])
            values = values.cast(pa.list_(entries))
            keys, items = values.flatten().flatten()
            keys, items = convert_values(keys, to.key), convert_values(items, to.value)
            return pa.MapArray.from_arrays(list_offsets(values), keys, items, type=to.arrow)
        case RowType():
            parts = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
            converted = [convert_values(parts[field.name], field.type) for field in to.fields]
            return pa.StructArray.from_arrays(converted, fields=list(to.arrow), mask=values.is_null())
        case _:
            return values.cast(to.arrow)


def _convert_bytes(values: pa.Array, to: DataType) -> pa.Array:
    import pyarrow as pa

    if isinstance(to, BytesType):
        return values.cast(pa.binary())
    try:
        values = values.cast(pa.string())
        values.validate(full=True)  # Arrow does not look at the bytes of a STRING column
    except pa.ArrowInvalid:
        raise _BadValue("it is not UTF-8") from None
    return values


def _convert_times(values: pa.Array, to: TimestampType) -> pa.Array:
    """Return timestamps in microseconds: the wall clock of UTC, with or without a zone."""
    import pyarrow as pa

    unit = values.type.unit
    if unit == "ns":
        values = _floor_to_micros(values)
    else:
        _check_years(values.view(pa.int64()), unit, _DAY_S * _UNITS[unit])
    return values.cast(pa.timestamp("us", values.type.tz)).cast(to.arrow)


def _floor_to_micros(values: pa.Array) -> pa.Array:
    """Truncate nanoseconds downwards. Arrow would round times before 1970 upwards."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nanos = values.view(pa.int64())
    micros = pc.divide(nanos, 1000)
    micros = pc.subtract(micros, pc.less(nanos, pc.multiply(micros, 1000)).cast(pa.int64()))
    return micros.view(pa.timestamp("us", values.type.tz))


def _check_years(numbers: pa.Array, unit: str, units_per_day: int) -> None:
    """Check times, which are numbers since 1970."""
    import numpy as np

    wrong = _find_outside(numbers, FIRST_DAY * units_per_day, (LAST_DAY + 1) * units_per_day - 1)
    if wrong is not None:
        year = np.array(wrong).astype(f"datetime64[{unit}]").astype("datetime64[Y]").astype(int) + 1970
        raise _BadValue(f"the year is {year}, not one from 1 to 9999")


def _find_outside(numbers: pa.Array, low: int, high: int) -> int | None:
    """Return a number outside of a range, None if there is none."""
    import pyarrow.compute as pc

    ends: dict[str, int | None] = pc.min_max(numbers).as_py()
    return next((end for end in ends.values() if end is not None and not low <= end <= high), None)


def _format_uuids(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [None if value is None else value.hex() for value in values.to_pylist()]
    digits = pa.array(texts, pa.string())
    parts = (pc.utf8_slice_codeunits(digits, begin, end) for begin, end in pairwise((0, 8, 12, 16, 20, 32)))
    return pc.binary_join_element_wise(*parts, "-")
