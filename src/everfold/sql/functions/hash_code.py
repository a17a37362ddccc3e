"""HASH_CODE: the `hashCode` of Java's class for a value, as in Flink."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan.expressions import Call
from everfold.sql.functions.cast_to_text import format_value
from everfold.sql.functions.coercion import kind
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.writer import Writer
from everfold.types import DOUBLE, INT, DataType, DecimalType, IntegerType, TimestampType

_KINDS = frozenset(("boolean", "integer", "decimal", "floating", "string", "date", "time", "timestamp"))
_WORD = 1 << 32
_DECIMAL_WORDS = 4
"""Words of 32 bits in an unscaled decimal of 38 digits."""


def _hash_code_rule(args: Args) -> Typed | None:
    if len(args) != 1 or kind(args[0].type) not in _KINDS:
        return None
    return args, INT.as_nullable(args[0].type.nullable)


def _hash_code(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    name = writer.new_variable()
    low = f"(CAST({_hash(writer, call.args[0].type, name)} AS BIGINT) & {_WORD - 1})"
    return writer.let(name, texts[0], f"CAST((({low} + {_WORD // 2}) & {_WORD - 1}) - {_WORD // 2} AS INT)")


def _hash(writer: Writer, source: DataType, name: str) -> str:
    """Return the SQL of an integer whose lowest 32 bits are the hash of a variable."""
    match source:
        case IntegerType(bits=64):
            return _combine_words(writer, name)
        case TimestampType():
            return _hash_timestamp(writer, name)
        case DecimalType():
            return _hash_decimal(writer, source, name)
    match kind(source):
        case "floating":
            is_double = source.as_nullable() == DOUBLE
            return (_hash_floating_in_spark if writer.spark else _hash_floating_in_duckdb)(writer, name, is_double)
        case "boolean":
            return f"CASE WHEN {name} THEN 1231 WHEN NOT {name} THEN 1237 END"
        case "string":
            return _hash_string(writer, name)
        case "date":
            return f"unix_date({name})" if writer.spark else f"date_diff('day', DATE '1970-01-01', {name})"
    return name


def _combine_words(writer: Writer, text: str) -> str:
    """Combine both words of a BIGINT, as Java's `Long.hashCode`."""
    return f"({text} ^ shiftright({text}, 32))" if writer.spark else f"xor({text}, {text} >> 32)"


def _hash_timestamp(writer: Writer, name: str) -> str:
    """Hash milliseconds, and nanoseconds within the millisecond."""
    micros, fraction, millis = (writer.new_variable() for _ in range(3))
    total = f"({_combine_words(writer, millis)} & {_WORD - 1}) * 31 + {fraction} * 1000"
    micros_text = f"unix_micros(CAST({name} AS TIMESTAMP))" if writer.spark else f"epoch_us({name})"
    floor = f"({micros} - {fraction}) {'div' if writer.spark else '//'} 1000"
    body = writer.let(fraction, f"((({micros} % 1000) + 1000) % 1000)", writer.let(millis, floor, total))
    return writer.let(micros, micros_text, body)


def _hash_string(writer: Writer, name: str) -> str:
    """Hash the UTF-16 units of a string, as Java's `String.hashCode`.

    Flink then drops the sign.
    """
    total, code, unsigned = (writer.new_variable() for _ in range(3))
    # Both halves of a character beyond U+FFFF: D800 and DC00 plus ten bits of its code minus 10000.
    high, low = f"(55232 + ({code} >> 10))", f"(56320 + ({code} & 1023))"
    units = f"CASE WHEN {code} < 65536 THEN {total} * 31 + {code} ELSE ({total} * 31 + {high}) * 31 + {low} END"
    step = f"({units}) & {_WORD - 1}"
    if writer.spark:
        codes = f"transform(split({name}, ''), {code} -> CAST(ascii({code}) AS BIGINT))"
        step = step.replace(f"{code} >> 10", f"shiftright({code}, 10)")
        hashed = f"aggregate({codes}, CAST(0 AS BIGINT), ({total}, {code}) -> {step})"
    else:
        # `unicode` of an empty string is -1.
        codes = f"list_transform(string_split({name}, ''), lambda {code}: CAST(greatest(unicode({code}), 0) AS BIGINT))"
        hashed = f"list_reduce({codes}, lambda {total}, {code}: {step}, CAST(0 AS BIGINT))"
    return writer.let(unsigned, hashed, f"least({unsigned}, {_WORD} - {unsigned})")


def _hash_decimal(writer: Writer, source: DecimalType, name: str) -> str:
    """Hash the words of the unscaled number, its sign, and the scale, as Java's `BigDecimal`."""
    size = writer.new_variable()
    total = "0"
    for index in reversed(range(_DECIMAL_WORDS)):
        total = f"({total} * 31 + {_word(writer, size, index)})"
    digits = f"replace(replace({format_value(writer, source, name)}, '.', ''), '-', '')"
    total = writer.let(size, f"CAST({digits} AS {'DECIMAL(38, 0)' if writer.spark else 'HUGEINT'})", total)
    return f"({total} * CASE WHEN {name} < 0 THEN -31 ELSE 31 END + {source.scale})"


def _word(writer: Writer, size: str, index: int) -> str:
    """Return a word of 32 bits of a number below 2^127, from the lowest one on."""
    if not writer.spark:
        return f"CAST(({size} // {_WORD**index}) % {_WORD} AS BIGINT)"
    # `div` returns a BIGINT.
    half = f"({size} % {_WORD**2})" if index < 2 else f"({size} div {_WORD**2})"
    return f"CAST({half} {'div' if index % 2 else '%'} {_WORD} AS BIGINT)"


def _hash_floating_in_duckdb(writer: Writer, name: str, is_double: bool) -> str:
    if is_double:
        bits = writer.new_variable()
        finite = writer.let(bits, f"CAST(CAST({name} AS BIT) AS BIGINT)", _combine_words(writer, bits))
    else:
        finite = f"CAST(CAST({name} AS BIT) AS INT)"
    return f"CASE WHEN isnan({name}) THEN {_HASH_OF_NAN[is_double]} ELSE {finite} END"


def _hash_floating_in_spark(writer: Writer, name: str, is_double: bool) -> str:
    """Hash the bits, which Spark shows only in Java's hexadecimal form: ``-0x1.8p3``."""
    form, digits = writer.new_variable(), writer.new_variable()
    exponent = f"CAST(substring_index({form}, 'p', -1) AS BIGINT)"
    is_subnormal = f"contains({form}, '0x0.')"
    if is_double:
        high = f"CASE WHEN {is_subnormal} THEN 0 ELSE {exponent} + 1023 END * {1 << 20} + {_read_digits(digits, 1, 5)}"
        bits = f"(({high}) ^ {_read_digits(digits, 6, 8)})"
    else:
        subnormal = f"CAST(abs(CAST({name} AS DOUBLE)) / {2.0**-149!r}D AS BIGINT)"
        is_subnormal = f"({is_subnormal} OR {exponent} < -126)"
        normal = f"({exponent} + 127) * {1 << 23} + {_read_digits(digits, 1, 6)} div 2"
        bits = f"CASE WHEN {is_subnormal} THEN {subnormal} ELSE {normal} END"
    signed = f"{bits} + CASE WHEN startswith({form}, '-') THEN {_WORD // 2} ELSE 0 END"
    signed = writer.let(digits, f"rpad(split_part(split_part({form}, 'p', 1), '.', 2), 13, '0')", signed)
    finite = writer.let(form, f"format_string('%a', {name})", signed)
    infinity = _HASH_OF_INFINITY[is_double]
    return (
        f"CASE WHEN isnan({name}) THEN {_HASH_OF_NAN[is_double]} "
        f"WHEN {name} = double('Infinity') THEN {infinity} "
        f"WHEN {name} = double('-Infinity') THEN {infinity + _WORD // 2} "
        f"WHEN {name} IS NOT NULL THEN {finite} END"
    )


def _read_digits(digits: str, first: int, count: int) -> str:
    return f"CAST(conv(substring({digits}, {first}, {count}), 16, 10) AS BIGINT)"


_HASH_OF_NAN = {False: 0x7FC00000, True: 0x7FF80000}
_HASH_OF_INFINITY = {False: 0x7F800000, True: 0x7FF00000}
"""By whether the type is DOUBLE."""


FUNCTIONS = (
    Function(
        name="HASH_CODE",
        rule=_hash_code_rule,
        spark=_hash_code,
        duckdb=_hash_code,
        doc="Hash code of a value as an INT, as of Java's class for the type.",
        usage="HASH_CODE(<BOOLEAN, number, STRING, DATE, TIME or TIMESTAMP>)",
    ),
)
