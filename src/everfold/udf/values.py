"""Convert values of functions from Arrow columns to Python and back.

Returned values are checked: a value of another type is never converted to fit.

| type | in Python |
| --- | --- |
| TIME | datetime.time |
| TIMESTAMP, TIMESTAMP_LTZ | datetime.datetime without, with a time zone (UTC) |
| INTERVAL DAY TO SECOND, YEAR TO MONTH | datetime.timedelta, int |
| ARRAY, MAP, MULTISET, ROW | list, dict, dict of counts, Row |

Numbers of other libraries are accepted for int and float; a list, a tuple or a dict by field names
is accepted for ROW.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from numbers import Real
from typing import TYPE_CHECKING, Any

from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)
from everfold.udf.row import Row
from everfold.udf.views import ListView, MapView

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]
_MILLISECOND = timedelta(milliseconds=1)
_EXACT: tuple[tuple[type[DataType], type], ...] = (
    (BooleanType, bool),
    (IntegerType, int),
    (StringType, str),
    (BytesType, bytes),
    (DateType, date),
)
"""Python types whose values Arrow accepts as they are, unless they are too large."""


class WrongValue(Exception):
    """A value that is not of its declared type.

    why: what is wrong, to follow the value in a sentence. at: the position in the column.
    """

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.why, self.at = why, at


# --- out of Arrow ---------------------------------------------------------------------------------


def python_values(column: pa.Array | pa.ChunkedArray, of: DataType, *, views: bool = False) -> list[Any]:
    """Return the Python values of a column.

    views: lists and dicts become views, as in accumulators.
    """
    values: list[Any] = column.to_pylist()
    convert = _reader(of, views)
    return values if convert is None else list(map(_unless_none(convert), values))


def round_trip(of: DataType, *, views: bool = False) -> Convert:
    """Return the conversion that storing a value in a column and reading it again would do.

    The conversion raises WrongValue if the value is not of the type.
    """
    write, read = _writer(of), _unless_none(_reader(of, views))
    return lambda value: read(write(value))


def _unless_none(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _reader(of: DataType, views: bool) -> Convert | None:
    """Return the conversion from Arrow's value to the function's, None if they are the same."""
    match of:
        case TimeType():
            return lambda milliseconds: (datetime.min + timedelta(milliseconds=milliseconds)).time()
        case IntervalType(months=False):
            return lambda milliseconds: timedelta(milliseconds=milliseconds)
        case TimestampType(local_zone=True):
            return lambda value: value.astimezone(UTC)
        case ArrayType():
            element = _reader(of.element, views)
            made = ListView if views else list
            if element is None and not views:
                return None
            each = _unless_none(element)
            return lambda values: made(map(each, values))
        case MapType():
            return _map_reader(of, views)
        case RowType():
            names = tuple(field.name for field in of.fields)
            reads = [_unless_none(_reader(field.type, views)) for field in of.fields]
            return lambda value: Row.of(names, [read(field) for read, field in zip(reads, value.values(), strict=True)])
        case _:
            return None


def _map_reader(of: MapType, views: bool) -> Convert:
    key, item = _unless_none(_reader(of.key, views)), _unless_none(_reader(of.value, views))
    made = MapView if views else dict

    def read(entries: Sequence[Any]) -> dict[Any, Any]:
        # Arrow returns maps as pairs, and lists of structs as dicts.
        pairs = (each.values() if isinstance(each, dict) else each for each in entries)
        return made((key(one), item(other)) for one, other in pairs)

    return read


# --- into Arrow -----------------------------------------------------------------------------------


def arrow_column(values: Sequence[Any], of: DataType) -> pa.Array:
    """Return a column of values returned by functions.

    Raises WrongValue for the first value that is not of the type.
    """
    import pyarrow as pa

    exact = next((known for family, known in _EXACT if isinstance(of, family)), None)
    if exact is not None and set(map(type, values)) <= ({exact, type(None)} if of.nullable else {exact}):
        try:
            return pa.array(values, of.arrow)
        except (pa.ArrowException, OverflowError, ValueError):
            pass  # A value does not fit. The loop below finds it.
    write = _writer(of)
    made = []
    for at, value in enumerate(values):
        try:
            made.append(write(value))
        except WrongValue as wrong:
            raise WrongValue(wrong.why, at) from None
    return pa.array(made, of.arrow)


def _writer(of: DataType) -> Convert:
    """Return the conversion from the function's value to Arrow's."""
    write = next(maker for family, maker in _WRITERS if isinstance(of, family))(of)

    nullable = of.nullable

    def check(value: Any) -> Any:
        made = None if value is None else write(value)
        if made is None and (value is not None or not nullable):
            raise WrongValue(f"is not of type {of}")
        return made

    return check


# Each of these returns the writer of a type. A writer returns None for a value of another type.


def _boolean(of: DataType) -> Convert:
    return lambda value: bool(value) if type(value).__name__ in ("bool", "bool_") else None


def _integer(of: DataType) -> Convert:
    assert isinstance(of, IntegerType)
    half = 1 << of.bits - 1

    def write(value: Any) -> int | None:
        if type(value) is not int:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                return None
            value = operator.index(value)
        if not -half <= value < half:
            raise WrongValue(f"is too large for {of.sql}")
        return int(value)

    return write


def _floating(of: DataType) -> Convert:
    def write(value: Any) -> float | None:
        if type(value) is float:
            return value
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else None

    return write


def _decimal(of: DataType) -> Convert:
    assert isinstance(of, DecimalType)
    step, most = Decimal(1).scaleb(-of.scale), Decimal(10) ** (of.precision - of.scale)

    def write(value: Any) -> Decimal | None:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            return None
        with localcontext() as context:
            context.prec = 100
            try:
                made = Decimal(value).quantize(step, ROUND_HALF_UP)
            except InvalidOperation:
                return None
            if not made.is_finite():
                return None
            if abs(made) >= most:
                raise WrongValue(f"is too large for {of.sql}")
            return made

    return write


def _string(of: DataType) -> Convert:
    def write(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        try:
            value.encode()
        except UnicodeEncodeError:
            raise WrongValue("contains half of a surrogate pair, which STRING cannot hold") from None
        return str(value)

    return write


def _bytes(of: DataType) -> Convert:
    return lambda value: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _date(of: DataType) -> Convert:
    return lambda value: value if isinstance(value, date) and not isinstance(value, datetime) else None


def _time(of: DataType) -> Convert:
    def write(value: Any) -> int | None:
        if not isinstance(value, time):
            return None
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000

    return write


def _timestamp(of: DataType) -> Convert:
    assert isinstance(of, TimestampType)
    step = 10 ** (6 - of.precision)

    def write(value: Any) -> datetime | None:
        if not isinstance(value, datetime):
            return None
        if (value.utcoffset() is None) == of.local_zone:
            if of.local_zone:
                raise WrongValue(f"has no time zone, but {of.sql} requires one")
            raise WrongValue(f"has a time zone, but {of.sql} has none")
        return value.replace(microsecond=value.microsecond - value.microsecond % step)

    return write


def _interval(of: DataType) -> Convert:
    assert isinstance(of, IntervalType)
    if of.months:
        return lambda value: value if type(value) is int else None
    return lambda value: value // _MILLISECOND if isinstance(value, timedelta) else None


def _array(of: DataType) -> Convert:
    assert isinstance(of, ArrayType)
    element = _writer(of.element)

    def write(value: Any) -> list[Any] | None:
        if (
            isinstance(value, str | bytes | dict | Row)
            or not hasattr(value, "__len__")
            or not hasattr(value, "__iter__")
        ):
            return None
        return [_inside(f"element {at + 1}", element, each) for at, each in enumerate(value)]

    return write


def _map(of: DataType) -> Convert:
    assert isinstance(of, MapType)
    key, item = _writer(of.key), _writer(of.value)

    def write(value: Any) -> list[tuple[Any, Any]] | None:
        if not isinstance(value, Mapping):
            return None
        return [
            (_inside("a key", key, one), _inside(f"the value of key {one!r}", item, other))
            for one, other in value.items()
        ]

    return write


def _row(of: DataType) -> Convert:
    assert isinstance(of, RowType)
    fields = [(field.name, _writer(field.type)) for field in of.fields]

    def write(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, Row | list | tuple):
            if not isinstance(value, Mapping) or set(value) != {name for name, _ in fields}:
                return None
            value = [value[name] for name, _ in fields]
        if len(value) != len(fields):
            return None
        made, at = {}, ""
        try:
            for (at, field), each in zip(fields, value, strict=True):
                made[at] = field(each)
        except WrongValue as wrong:
            raise WrongValue(f"has field `{at}` that {wrong.why}") from None
        return made

    return write


def _inside(where: str, write: Convert, value: Any) -> Any:
    try:
        return write(value)
    except WrongValue as wrong:
        raise WrongValue(f"has {where} that {wrong.why}") from None


_WRITERS: tuple[tuple[type[DataType], Callable[[DataType], Convert]], ...] = (
    (BooleanType, _boolean),
    (IntegerType, _integer),
    (FloatingType, _floating),
    (DecimalType, _decimal),
    (StringType, _string),
    (BytesType, _bytes),
    (DateType, _date),
    (TimeType, _time),
    (TimestampType, _timestamp),
    (IntervalType, _interval),
    (ArrayType, _array),
    (MapType, _map),
    (RowType, _row),
)
