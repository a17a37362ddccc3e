"""Read JSON numbers exactly as written.

Spark's `from_json` reads numbers with a fraction or an exponent as DOUBLE.

A record that may have lost precision (`may_differ`) is parsed again after its numbers were
converted to strings (`quote_numbers`); `unmark` restores the original strings in the fields of that
record. `protect` and `restore` handle cases for which `try_parse_json` has no option: strings with
unescaped control characters, and with half of a surrogate pair.
"""

from __future__ import annotations

from collections.abc import Callable

from everfold.connectors.formats.nested import rewrite_scalars
from everfold.engine_literals import spark_identifier, spark_string
from everfold.types import (
    ArrayType,
    BytesType,
    DataType,
    DecimalType,
    FloatingType,
    FloatType,
    IntegerType,
    IntervalType,
    MapType,
    RowType,
    StringType,
)

NUMBER_MARK = "\ufffe"
"""First character of a number converted to a string: a noncharacter, which no string contains."""
_EXACT_DIGITS = 15
"""A number of up to this many digits is unchanged by conversion to a double."""
_SPACE = r"[ \t\r\n]*+"
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_UP_TO_NUMBER = rf'(?s)\G((?:[^"0-9-]++|{_STRING})*+)({_NUMBER})(?={_SPACE}(?:[,\]}}]|\z))'
_HAS_LONG_NUMBER = rf"[0-9.]{{{_EXACT_DIGITS + 1}}}"
_HAS_FRACTION = rf"[:,\[]{_SPACE}(?:-0|-?[0-9]++[.eE])"
_CONTROL = "".join(map(chr, range(0x20)))
_STAND_INS = "".join(map(chr, range(0xFDD0, 0xFDF0)))
"""32 Unicode noncharacters that replace the 32 control characters."""
_HIGH, _LOW = "[dD][89abAB][0-9a-fA-F]{2}", "[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"(?<!\\)((?:\\\\)*+)(?:\\u({_HIGH})(?!\\u{_LOW})|(?<!\\u{_HIGH})\\u({_LOW}))"
_HALF_STAND_IN = "\U0001fffe"


def _replace(text: str, pattern: str, by: str) -> str:
    return f"regexp_replace({text}, r'{pattern}', {spark_string(by)})"


def quote_numbers(record: str) -> str:
    """Return Spark SQL: a record with its numbers as strings that start with `NUMBER_MARK`.

    A record that is not JSON does not become JSON.
    """
    return _replace(record, _UP_TO_NUMBER, f'$1"{NUMBER_MARK}$2"')


def protect(record: str) -> str:
    """Return Spark SQL: a record with control characters and surrogate halves replaced.

    Only those in strings are replaced, by noncharacters.
    """
    whole = _replace(record, _HALF, f"$1{_HALF_STAND_IN}$2$3")
    spaces = _replace(whole, rf"(?s)({_STRING})|[\t\r\n]", "$1 ")
    return f"translate({spaces}, {spark_string(_CONTROL)}, {spark_string(_STAND_INS)})"


def restore(text: str) -> str:
    """Return Spark SQL: a string, object or array of a protected record, as it was before."""
    back = f"translate({text}, {spark_string(_STAND_INS[1:])}, {spark_string(_CONTROL[1:])})"
    # `translate` treats NUL specially.
    back = f"replace({back}, {spark_string(_STAND_INS[0])}, {spark_string(_CONTROL[0])})"
    half = f"replace({back}, {spark_string(_HALF_STAND_IN)}, {spark_string(chr(92) + 'u')})"
    return rf"IF(rlike({text}, r'\A[{{\[]'), {half}, {_replace(back, _HALF_STAND_IN + '[0-9a-fA-F]{4}', '?')})"


def unmark(field: str, of: DataType) -> str:
    """Return Spark SQL: a field of a record whose numbers were quoted, without the marks."""

    def unmark_scalar(text: str, of: DataType, _: str) -> str:
        if isinstance(of, StringType):
            return _replace(text, rf'\A{NUMBER_MARK}({_NUMBER})\z|"{NUMBER_MARK}({_NUMBER})"', "$1$2")
        return _replace(text, rf"\A{NUMBER_MARK}({_NUMBER})\z", "$1")

    return rewrite_scalars(field, of, unmark_scalar)


def may_differ(field: str, of: DataType, record: str) -> str | None:
    """Return Spark SQL: whether `from_json` may have read a field other than as written.

    None if it cannot differ.
    """
    tests = ((_number_may_differ, _HAS_LONG_NUMBER), (_string_may_differ, _HAS_FRACTION))
    found = [
        f"({sql}) AND rlike({record}, r'{pattern}')" for test, pattern in tests if (sql := _any_string(field, of, test))
    ]
    return " OR ".join(f"({each})" for each in (*found, _any_string(field, of, _is_infinite)) if each) or None


def _any_string(field: str, of: DataType, test: Callable[[str, DataType], str | None], depth: int = 0) -> str | None:
    """Return Spark SQL: whether any string in a field passes a test, None if none can."""
    item = f"t{depth}"
    match of:
        case ArrayType() | MapType():
            inner = _any_string(item, of.element if isinstance(of, ArrayType) else of.value, test, depth + 1)
            texts = field if isinstance(of, ArrayType) else f"map_values({field})"
            return None if inner is None else f"coalesce(exists({texts}, {item} -> {inner}), false)"
        case RowType():
            parts = [
                _any_string(f"{field}.{spark_identifier(part.name)}", part.type, test, depth) for part in of.fields
            ]
            return " OR ".join(part for part in parts if part) or None
        case _:
            passed = test(field, of)
            return None if passed is None else f"coalesce({passed}, false)"


def _number_may_differ(text: str, of: DataType) -> str | None:
    """Test a string read from a number of more than `_EXACT_DIGITS` digits."""
    match of:
        case DecimalType():
            # Rounded to the scale, the number differs only if the double is halfway between two, or
            # is less precise than the scale.
            dot = f"locate('.', {text})"
            halfway = f"endswith({text}, '5') AND length({text}) - {dot} = {of.scale + 1}"
            return f"contains({text}, 'E') OR ({dot} > 0 AND ({dot} + {of.scale} > {_EXACT_DIGITS} OR ({halfway})))"
        case IntegerType() | IntervalType():
            return f"contains({text}, '.')"
        case FloatType():
            # The single differs only if the double is halfway between two.
            double, single = f"try_cast({text} AS DOUBLE)", f"CAST(try_cast({text} AS FLOAT) AS DOUBLE)"
            other = f"(2 * {double} - {single})"
            return (
                f"contains({text}, '.') AND {double} <> {single} AND CAST(CAST({other} AS FLOAT) AS DOUBLE) = {other}"
            )
        case _:
            return None


def _string_may_differ(text: str, of: DataType) -> str | None:
    """Test a string read from a number, or from an object or array that may contain one."""
    if isinstance(of, BytesType):
        return f"contains({text}, '.')"  # `1e2` is valid base64, `100.0` is not
    if not isinstance(of, StringType):
        return None
    number = f"{text} < ':' AND rlike({text}, r'\\A(?:0|-?[0-9]+\\.[0-9E-]+)\\z')"
    return f"startswith({text}, '{{') OR startswith({text}, '[') OR ({number})"


def _is_infinite(text: str, of: DataType) -> str | None:
    """Test for a number outside the range of DOUBLE."""
    return f"contains({text}, 'Infinity')" if isinstance(of, StringType | FloatingType) else None
