"""Strings of numbers and times as Flink and Java write them: what all formats of values share."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

LEAST_DOUBLES = {
    "5e-324": "4.9E-324",
    "1e-323": "9.9E-324",
    "5e-323": "4.9E-323",
    "6e-323": "5.9E-323",
    "7e-323": "6.9E-323",
    "8e-323": "7.9E-323",
    "9e-323": "8.9E-323",
    "1e-322": "9.9E-323",
}
LEAST_FLOATS = {
    "1e-45": "1.4E-45",
    "3e-45": "2.8E-45",
    "4e-45": "4.2E-45",
    "6e-45": "5.6E-45",
    "8e-45": "8.4E-45",
    "1e-44": "9.8E-45",
    "3e-44": "2.9E-44",
    "4e-44": "4.1E-44",
    "1e-43": "9.9E-44",
}
"""Numbers that one digit identifies, for which Java writes two digits that are nearer to them."""


def format_float(value: float, *, single: bool = False) -> str:
    """Format a DOUBLE, or a FLOAT (`single`), like Java: 1.0, 1.0E10, NaN, -Infinity.

    It has the fewest digits that identify the number, at least two, and an exponent below 0.001 and
    from 10 million on.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = _shortest_single(value) if single else repr(value)
    least = (LEAST_FLOATS if single else LEAST_DOUBLES).get(shortest.removeprefix("-"))
    if least is not None:
        return f"-{least}" if value < 0 else least
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") or "0"
    # The value is 0.text * 10**point.
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if text == "0":
        return f"{minus}0.0"
    if -3 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    if 0 < point <= 7:
        padded = text.ljust(point, "0")
        return f"{minus}{padded[:point]}.{padded[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _shortest_single(value: float) -> str:
    """Return the shortest decimal that is read as the same FLOAT."""
    import numpy as np

    return str(np.format_float_scientific(np.float32(value), unique=True, trim="-"))


def format_time(ms: int, digits: int | None = None) -> str:
    """Format a TIME. digits: of the fraction of the second; by default without trailing zeros."""
    seconds, rest = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(rest * 1000, digits)}"


def format_timestamp(value: datetime, digits: int | None = None, separator: str = " ") -> str:
    """Format a TIMESTAMP, an instant in UTC. digits: as for `format_time`."""
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return value.isoformat(separator, "seconds") + _fraction(value.microsecond, digits)


def _fraction(micros: int, digits: int | None) -> str:
    text = f"{micros:06}"
    text = text.rstrip("0") if digits is None else text.ljust(digits, "0")[:digits]
    return f".{text}" if text else ""
