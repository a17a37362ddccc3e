"""Convert columns of texts to the values of Flink types, many at once.

Only texts whose value is beyond doubt are converted here: the others are left to the function that
converts a single text (`text_decode.converter`), which also knows why a text is not a value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from everfold.connectors.arrow_arrays import view_bytes
from everfold.connectors.formats.text_decode import TextRules
from everfold.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    StringType,
    TimestampType,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
"""The regular expression of numbers in JSON."""
_DECIMAL = r"^-?\d{1,38}(\.\d{1,38})?$"
_MAX_FRACTION = 6


def is_convertible(of: DataType) -> bool:
    """Return whether texts of a type can be converted here."""
    return isinstance(
        of, BooleanType | IntegerType | FloatingType | DecimalType | StringType | DateType | TimestampType
    )


def convert_texts(texts: pa.StringArray, of: DataType, rules: TextRules) -> Any:
    """Return the values of texts. Raises ArrowInvalid if a text is not beyond doubt.

    texts: NULL stands for NULL.
    """
    import numpy as np
    import pyarrow as pa

    if isinstance(of, StringType):
        return texts
    if not texts.null_count:
        return _convert_all(texts, of, rules)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    positions = pa.array(np.cumsum(valid) - 1, mask=~valid)
    if not valid.any():
        return pa.nulls(len(texts), of.arrow)
    return _convert_all(texts.drop_null(), of, rules).take(positions)


def _convert_all(texts: pa.StringArray, of: DataType, rules: TextRules) -> Any:
    """Return the values of texts, none of which is NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(texts):
        return pa.nulls(0, of.arrow)
    if not pc.min(pc.binary_length(texts)).as_py():
        raise pa.ArrowInvalid("an empty text")
    match of:
        case BooleanType():
            values = pc.equal(texts, "true")
            _require(pc.or_(values, pc.equal(texts, "false")))
        case IntegerType():
            values = _to_integers(texts, of)
        case FloatingType():
            _require(pc.match_substring_regex(texts, f"^{NUMBER}$"))
            values = texts.cast(of.arrow)
        case DecimalType():
            _require(pc.match_substring_regex(texts, _DECIMAL))
            values = check_decimals(texts.cast(of.arrow), of)
        case DateType() | TimestampType():
            if not _are_times(texts, _time_shape(of, rules, texts)):
                _require(pc.match_substring_regex(texts, _time_pattern(of, rules)))
            values = texts.cast(of.arrow)
        case _:
            raise pa.ArrowInvalid(f"texts of {of.sql}")
    return values


def check_decimals(values: Any, of: DecimalType) -> Any:
    """Return the values of a DECIMAL. Raises ArrowInvalid if one has too many digits.

    Arrow compares the digits before it adds zeros to the fraction.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    extremes = pc.min_max(values).as_py()
    limit = Decimal(10) ** (of.precision - of.scale)
    if any(extreme is not None and abs(extreme) >= limit for extreme in extremes.values()):
        raise pa.ArrowInvalid("a decimal with too many digits")
    return values


def _require(are_regular: Any) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(are_regular, min_count=0).as_py():
        raise pa.ArrowInvalid("a text of another form")


def _to_integers(texts: pa.StringArray, of: IntegerType) -> pa.Array:
    """Return the values of texts.

    Those that do not begin with one of the digits 1 to 9 are compared with the text of their value:
    Arrow also takes `007`, `0x7` and `-0`. That takes four times as long as the cast.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    values = texts.cast(of.arrow)
    others = np.flatnonzero(first_bytes(texts) - np.uint8(ord("1")) > 8)
    if others.size:
        rest = pa.array(others)
        _require(pc.equal(values.take(rest).cast(pa.string()), texts.take(rest)))
    return values


def _time_shape(of: TimestampType | DateType, rules: TextRules, texts: pa.StringArray) -> str:
    """Return the shape (`_are_times`) that `_time_pattern` accepts with the length of the first
    text.
    """
    if isinstance(of, DateType):
        return "0000-00-00"
    zone = rules.zone if of.local_zone else ""
    shape = f"0000-00-00{rules.separator}00:00:00"
    digits = len(texts[0].as_py()) - len(shape) - len(zone) - 1
    return shape + (f".{'0' * digits}" if 1 <= digits <= min(of.precision, _MAX_FRACTION) else "") + zone


def _time_pattern(of: TimestampType | DateType, rules: TextRules) -> str:
    """Return the regular expression of the texts that Arrow converts as Flink does."""
    date = r"(1[6-9]|[2-9]\d)\d\d-\d\d-\d\d"
    if isinstance(of, DateType):
        return f"^{date}$"
    digits = min(of.precision, _MAX_FRACTION)
    fraction = rf"(\.\d{{1,{digits}}})?" if digits else ""
    zone = rules.zone if of.local_zone else ""
    return rf"^{date}{rules.separator}\d\d:\d\d:\d\d{fraction}{zone}$"


def _are_times(texts: pa.StringArray, shape: str) -> bool:
    """Return whether all texts have a shape and begin with a year from 1600 on.

    shape: a text in which `0` stands for any digit.
    """
    import numpy as np

    starts, content = view_bytes(texts)
    own = content[starts[0] : starts[-1]]
    if len(own) != len(texts) * len(shape) or (np.diff(starts) != len(shape)).any():
        return False
    least, most = (np.frombuffer(each.encode(), np.uint8) for each in (shape, shape.replace("0", "9")))
    rows = own.reshape(len(texts), len(shape))
    if (rows - least > most - least).any():  # what is less than the least wraps around
        return False
    century = rows[:, 0].astype(np.uint16) * 10 + rows[:, 1]
    return bool((century >= ord("1") * 10 + ord("6")).all())


def first_bytes(texts: pa.StringArray) -> np.ndarray:
    """Return the first byte of each text; none may be empty or NULL."""
    starts, content = view_bytes(texts)
    return content.take(starts[:-1])
