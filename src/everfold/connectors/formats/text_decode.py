"""Convert strings to values of Flink types, with the same result in Catalyst and in Python.

The rules are those of Flink 2.3 (asked of it, 2026-11), but stricter in four cases in which Flink
changes a value silently. These are errors here: a BOOLEAN that is neither true nor false, a DECIMAL
that does not fit, a day that does not exist (30 February), and characters after the value.
TIMESTAMP(p) keeps p digits of the fraction.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from everfold.engine_literals import spark_string
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    FloatType,
    IntegerType,
    IntervalType,
    StringType,
    TimestampType,
    TimeType,
)

_YEAR = r"(?!0000)\d{4}"
_DATE = _YEAR + r"-\d\d-\d\d"
_LOOSE_DATE = _YEAR + r"-\d{1,2}-\d{1,2}"
_MINUTES = r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?"
_SECONDS = r"\d\d:\d\d:\d\d(\.\d{1,9})?"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_FLOATING = r"[+-]?(?:NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?)"
_HEXADECIMAL = r"([+-]?0[xX](?=[\da-fA-F.]*[\da-fA-F])[\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+)[dDfF]?"
_NON_FINITE = ("inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "nan")
_SPACES = "".join(map(chr, range(0x21)))
"""The characters that Java's `trim` removes: spaces and control characters, no other Unicode."""
_INTEGER_SPACES = _SPACES + "\x7f"
"""The characters that Spark trims from an integer."""
_TRUNCATED = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?"
_BASE64 = r"([A-Za-z0-9+/]+={0,2})?"
_INTERVAL_BITS = {False: 64, True: 32}
_MICROS = 6
_TIE, _TIE_BITS = 1 << 28, (1 << 29) - 1
"""The low bits of a double (those beyond a single) if it is halfway between two singles."""
_MOST_EXPONENT = 1 << 31


@dataclass(frozen=True, slots=True)
class TextRules:
    """The syntax of times, and other rules that differ between formats.

    separator: between date and time of a TIMESTAMP. minutes: whether a TIMESTAMP may have no
    seconds. time_minutes: whether a TIME may have no seconds. zone: the suffix for UTC that a
    TIMESTAMP_LTZ must have, "" for none. fractions: whether an INT or BIGINT may have a fraction,
    which is truncated. loose_dates: whether months and days of a DATE may have one digit.
    """

    separator: str = " "
    minutes: bool = False
    time_minutes: bool = False
    zone: str = "Z"
    fractions: bool = False
    loose_dates: bool = False

    def pattern(self, of: DataType) -> str:
        """Return the regular expression that an entire DATE, TIME or TIMESTAMP must match."""
        match of:
            case DateType():
                return _LOOSE_DATE if self.loose_dates else _DATE
            case TimeType():
                return _MINUTES if self.time_minutes else _SECONDS
            case _:
                assert isinstance(of, TimestampType)
                return (
                    _DATE
                    + self.separator
                    + (_MINUTES if self.minutes else _SECONDS)
                    + (self.zone if of.local_zone else "")
                )


class BadValue(ValueError):
    """A record cannot be read.

    column: the path of the field, None if the record as a whole is wrong.
    """

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.column = column


def excerpt(text: object, length: int = 80) -> str:
    """Return the start of a string as one line that is safe on a terminal.

    Characters that cannot be printed are escaped (`\\x1b`).
    """
    start = str(text)[: length + 1]
    line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in start)
    return line if len(line) <= length else line[: length - 1] + "…"


# --- Catalyst -------------------------------------------------------------------------------------


def convert_sql(text: str, of: DataType, rules: TextRules) -> str:
    """Return Spark SQL that converts the STRING expression `text`.

    The value is NULL if the string is NULL or invalid.
    """
    match of:
        case StringType():
            return text
        case BooleanType():
            trimmed = f"lower(trim({spark_string(_SPACES)} FROM {text}))"
            return f"CASE {trimmed} WHEN 'true' THEN true WHEN 'false' THEN false END"
        case IntegerType() | IntervalType():
            whole = f"try_cast({text} AS {of.spark})"
            if rules.fractions and of.spark in ("INT", "BIGINT"):
                cut = f"try_cast(try_cast({text} AS DECIMAL(38,10)) AS {of.spark})"
                return f"coalesce({whole}, IF(rlike({text}, {_whole(_TRUNCATED)}), {cut}, NULL))"
            return whole
        case FloatingType():
            return f"try_cast({text} AS {of.spark})"
        case DecimalType():
            # Java accepts the digits of all scripts.
            return f"IF(octet_length({text}) = char_length({text}), try_cast({text} AS {of.spark}), NULL)"
        case BytesType():
            return f"IF(rlike({text}, {_whole(_BASE64)}), try_to_binary({text}, 'base64'), NULL)"
        case DateType():
            return f"IF(rlike({text}, {_whole(rules.pattern(of))}), try_cast({text} AS DATE), NULL)"
        case TimeType():
            instant = f"try_cast(concat('1970-01-01 ', {text}) AS TIMESTAMP)"
            return f"IF(rlike({text}, {_whole(rules.pattern(of))}), CAST(unix_millis({instant}) AS INT), NULL)"
        case TimestampType():
            digits = min(of.precision, _MICROS)
            body = text
            if of.local_zone and rules.zone:
                body = f"left({body}, length({body}) - {len(rules.zone)})"
            body = f"substring({body}, 1, {20 + digits if digits else 19})"
            value = f"try_cast({body} AS {of.spark})"
            return f"IF(rlike({text}, {_whole(rules.pattern(of))}), {value}, NULL)"
        case _:
            raise AssertionError(f"{of} is not written as one string")


def _whole(pattern: str) -> str:
    return spark_string(rf"\A(?:{pattern})\z")


# --- Python ---------------------------------------------------------------------------------------


def converter(of: DataType, rules: TextRules) -> Callable[[str], object]:
    """Return a function that converts a string to the value that Arrow accepts for the type.

    It raises ValueError if the string is invalid.
    """
    match of:
        case StringType():
            return lambda text: text
        case BooleanType():
            return _boolean
        case IntegerType() | IntervalType():
            bits = of.bits if isinstance(of, IntegerType) else _INTERVAL_BITS[of.months]
            cut = rules.fractions and bits >= 32
            return lambda text: _integer(text, bits, cut)
        case FloatingType():
            return _single if isinstance(of, FloatType) else _double
        case DecimalType():
            return lambda text: _decimal(text, of.precision, of.scale)
        case BytesType():
            return _bytes
        case DateType():
            return lambda text: _date(text, rules.pattern(of))
        case TimeType():
            return lambda text: _time(text, rules.pattern(of))
        case TimestampType():
            return lambda text: _timestamp(text, of, rules)
        case _:
            raise AssertionError(f"{of} is not written as one string")


def _boolean(text: str) -> bool:
    folded = text.strip(_SPACES).lower()
    if folded not in ("true", "false"):
        raise ValueError(text)
    return folded == "true"


def _integer(text: str, bits: int, cut: bool) -> int:
    text = text.strip(_INTEGER_SPACES)
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        value = int(text)
    elif cut and re.fullmatch(_TRUNCATED, text, re.ASCII):
        value = int(_decimal(text, 38, 10))
    else:
        raise ValueError(text)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _double(text: str) -> float:
    text = text.strip(_SPACES)
    if re.fullmatch(_FLOATING, text, re.ASCII):
        return float(text.rstrip("dDfF"))
    if text.lower() in _NON_FINITE:
        return float(text)
    hexadecimal = re.fullmatch(_HEXADECIMAL, text, re.ASCII)
    if hexadecimal is None:
        raise ValueError(text)
    return float.fromhex(hexadecimal.group(1))


def _single(text: str) -> float:
    value = _double(text)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    if bits & _TIE_BITS == _TIE and re.fullmatch(_NUMBER, text.strip(_SPACES), re.ASCII):
        # The double is halfway between two singles, so the further digits decide.
        exact, halfway = Decimal(text.strip(_SPACES)), Decimal(value)
        if exact != halfway:
            (value,) = struct.unpack("<d", struct.pack("<Q", bits + (1 if abs(exact) > abs(halfway) else -1)))
    try:
        single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return single


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    text = text.strip(_SPACES)
    found = re.fullmatch(_NUMBER, text, re.ASCII)
    if found is None or abs(int((found.group(2) or "e0")[1:])) >= _MOST_EXPONENT:
        raise ValueError(text)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 2000, MAX_EMAX, MIN_EMIN
        try:
            value = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        except InvalidOperation:
            raise ValueError(text) from None
    if abs(value) >= Decimal(10) ** (precision - scale):
        raise ValueError(text)
    return value or abs(value)


def _bytes(text: str) -> bytes:
    try:
        if re.fullmatch(_BASE64, text, re.ASCII) is None or ("=" in text and len(text) % 4):
            raise ValueError(text)
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise ValueError(text) from None


def _check_pattern(text: str, pattern: str) -> None:
    if re.fullmatch(pattern, text, re.ASCII) is None:
        raise ValueError(text)


def _date(text: str, pattern: str) -> date:
    _check_pattern(text, pattern)
    year, month, day = text.split("-")
    return date(int(year), int(month), int(day))


def _clock(text: str) -> tuple[time, int]:
    """Parse a time of day: the time without its fraction, and the fraction in microseconds."""
    whole, _, fraction = text.partition(".")
    return time.fromisoformat(whole), int(fraction[:_MICROS].ljust(_MICROS, "0") or 0)


def _time(text: str, pattern: str) -> int:
    _check_pattern(text, pattern)
    whole, micros = _clock(text)
    return ((whole.hour * 60 + whole.minute) * 60 + whole.second) * 1000 + micros // 1000


def _timestamp(text: str, of: TimestampType, rules: TextRules) -> datetime:
    _check_pattern(text, rules.pattern(of))
    if of.local_zone and rules.zone:
        text = text[: -len(rules.zone)]
    day, _, clock = text.partition(rules.separator)
    whole, micros = _clock(clock)
    unit = 10 ** max(0, _MICROS - of.precision)
    value = datetime.combine(_date(day, _DATE), whole).replace(microsecond=micros // unit * unit)
    return value.replace(tzinfo=UTC) if of.local_zone else value
