"""Dates, times and timestamps: parts, rounding, differences, conversion to strings and numbers.

The parts of a TIMESTAMP_LTZ are those in the session's zone. FLOOR … TO WEEK rounds to Sunday;
EXTRACT WEEK returns the ISO week. Source: asked of Flink 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.cast_from_text import matches, parse_date, parse_timestamp
from everfold.sql.functions.cast_to_text import format_timestamp
from everfold.sql.functions.casts import millis_in_duckdb, time_of_day_sql, truncate_timestamp, wrap_integer
from everfold.sql.functions.coercion import convert_to, kind
from everfold.sql.functions.entry import Args, Function, Rule, Typed
from everfold.sql.functions.patterns import find_spark_unsupported, strftime_sql, strptime_format
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.writer import Writer
from everfold.types import (
    BIGINT,
    INT,
    STRING,
    TIMESTAMP3,
    DataType,
    FloatingType,
    IntegerType,
    IntervalType,
    StringType,
    TimestampType,
    TimeType,
)

Write = Callable[[Writer, Call, Sequence[str]], str]
STANDARD = "yyyy-MM-dd HH:mm:ss"
MILLIS = {"SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000, "WEEK": 604_800_000}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DATE_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")
_CUT_UNITS = (*_DATE_UNITS, "HOUR", "MINUTE", "SECOND", "MILLISECOND")
_LONG_MIN = -(1 << 63)
_YEAR_1, _YEAR_10000 = -62_135_596_800, 253_402_300_800
"""The first second of a year, since 1970."""
_MAX_SECONDS = 9_223_372_000_000
"""The time from 1970 on, and back, that both engines can represent in microseconds, less a year."""

_SPARK_PARTS = {
    "YEAR": "year({w})", "QUARTER": "quarter({w})", "MONTH": "month({w})", "WEEK": "weekofyear({w})", "DAY": "dayofmonth({w})",
    "DOW": "dayofweek({w})", "ISODOW": "(weekday({w}) + 1)", "DOY": "dayofyear({w})", "ISOYEAR": "extract(YEAROFWEEK FROM {w})",
    "HOUR": "hour({w})", "MINUTE": "minute({w})", "SECOND": "second({w})", "DECADE": "(year({w}) div 10)",
    "CENTURY": "((year({w}) + 99) div 100)", "MILLENNIUM": "((year({w}) + 999) div 1000)",
    "MILLISECOND": "pmod(unix_millis(CAST({w} AS TIMESTAMP)), 1000)", "MICROSECOND": "pmod(unix_micros(CAST({w} AS TIMESTAMP)), 1000000)",
    "NANOSECOND": "(pmod(unix_micros(CAST({w} AS TIMESTAMP)), 1000000) * 1000)", "EPOCH": "unix_seconds(CAST({w} AS TIMESTAMP))",
}  # fmt: skip
_DUCKDB_PARTS = {
    "YEAR": "year({w})", "QUARTER": "quarter({w})", "MONTH": "month({w})", "WEEK": "week({w})", "DAY": "day({w})",
    "DOW": "(dayofweek({w}) + 1)", "ISODOW": "isodow({w})", "DOY": "dayofyear({w})", "ISOYEAR": "isoyear({w})",
    "HOUR": "hour(CAST({w} AS TIMESTAMP))", "MINUTE": "minute(CAST({w} AS TIMESTAMP))", "SECOND": "second(CAST({w} AS TIMESTAMP))",
    "DECADE": "(year({w}) // 10)", "CENTURY": "((year({w}) + 99) // 100)", "MILLENNIUM": "((year({w}) + 999) // 1000)",
    "MILLISECOND": "(millisecond(CAST({w} AS TIMESTAMP)) % 1000)", "MICROSECOND": "(microsecond(CAST({w} AS TIMESTAMP)) % 1000000)",
    "NANOSECOND": "(microsecond(CAST({w} AS TIMESTAMP)) % 1000000 * 1000)", "EPOCH": "epoch(date_trunc('second', CAST({w} AS TIMESTAMP)))",
}  # fmt: skip
_TIME_PARTS = {"HOUR": (3_600_000, 24), "MINUTE": (60_000, 60), "SECOND": (1000, 60), "MILLISECOND": (1, 1000)}
_INTERVAL_PARTS = {
    "millis": {"DAY": (86_400_000, 0), **_TIME_PARTS},
    "months": {"YEAR": (12, 0), "QUARTER": (3, 0), "MONTH": (1, 12)},
    "time": _TIME_PARTS,
}


def constant_string(arg: Expr) -> str:
    """Return the value of a constant string argument."""
    return str(arg.value) if isinstance(arg, Literal) else ""


def wall_clock_sql(writer: Writer, type: DataType, text: str) -> str:
    """Return the wall-clock time of a point in time; of an instant, in the session's zone."""
    return writer.local(text) if kind(type) == "ltz" else text


# --- parts ---


def _extract_rule(args: Args) -> Typed | None:
    if len(args) != 2:
        return None
    of, unit = kind(args[1].type), constant_string(args[0])
    known = _INTERVAL_PARTS.get(of) or (_SPARK_PARTS if of in ("date", "timestamp", "ltz") else {})
    return ((args[0], args[1]), BIGINT) if unit in known else None


def _extract(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    source, unit = call.args[1].type, constant_string(call.args[0])
    big = writer.type(BIGINT)
    parts = _INTERVAL_PARTS.get(kind(source))
    if parts is not None:
        if unit == "QUARTER":
            return f"CAST(({texts[1]} % 12 - 1) {'div' if writer.spark else '//'} 3 + 1 AS {big})"
        size, modulus = parts[unit]
        whole = f"({texts[1]} {'div' if writer.spark else '//'} {size})"
        return f"CAST({whole if not modulus else f'({whole} % {modulus})'} AS {big})"
    wall = wall_clock_sql(writer, source, texts[1])
    return f"CAST({(_SPARK_PARTS if writer.spark else _DUCKDB_PARTS)[unit].format(w=wall)} AS {big})"


def _part(unit: str) -> Rule:
    def rule(args: Args) -> Expr | None:
        if len(args) != 1:
            return None
        pair = (Literal(value=unit, type=StringType(length=len(unit), fixed=True)), args[0])
        return None if _extract_rule(pair) is None else Call(function="EXTRACT", args=pair, type=BIGINT)

    return rule


# --- rounding ---


def _cut_rule(args: Args) -> Typed | None:
    if len(args) != 2 or constant_string(args[1]) not in _CUT_UNITS:
        return None
    of = kind(args[0].type)
    if of not in ("date", "time", "timestamp", "ltz") or (of == "time" and constant_string(args[1]) in _DATE_UNITS):
        return None
    return args, args[0].type


def _floor(writer: Writer, wall: str, unit: str) -> str:
    cast = "TIMESTAMP_NTZ" if writer.spark else "TIMESTAMP"
    if unit == "WEEK":
        # Weeks of both engines start on Monday.
        return f"(CAST(date_trunc('week', {wall} + INTERVAL '1' DAY) AS {cast}) - INTERVAL '1' DAY)"
    return f"CAST(date_trunc('{unit.lower()}', {wall}) AS {cast})"


def _step(writer: Writer, text: str, unit: str) -> str:
    if unit == "MILLISECOND":
        return f"({text} + INTERVAL '0.001' SECOND)" if writer.spark else f"({text} + to_milliseconds(1))"
    count, base = (3, "MONTH") if unit == "QUARTER" else (7, "DAY") if unit == "WEEK" else (1, unit)
    return f"({text} + INTERVAL '{count}' {base})"


def _cut(up: bool) -> Write:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        source, unit = call.args[0].type, constant_string(call.args[1])
        if isinstance(source, TimeType):
            size = MILLIS.get(unit, 1)
            value = f"({texts[0]} + {size - 1})" if up else texts[0]
            made = f"CAST(({value} {'div' if writer.spark else '//'} {size}) * {size} AS {writer.type(source)})"
            if not up:
                return made
            failed = f"CAST({writer.fail('time-overflow: the result of CEIL is after the end of the day')} AS {writer.type(source)})"
            return f"CASE WHEN {texts[0]} > {86_400_000 - size} THEN {failed} ELSE {made} END"
        if kind(source) == "date" and unit not in _DATE_UNITS:
            return texts[0]
        wall = wall_clock_sql(writer, source, texts[0])
        if kind(source) == "date":
            wall = f"CAST({texts[0]} AS {'TIMESTAMP_NTZ' if writer.spark else 'TIMESTAMP'})"
        cut = _floor(writer, wall, unit)
        if up:
            cut = writer.bind_once(cut, f"CASE WHEN \x03 < {wall} THEN {_step(writer, chr(3), unit)} ELSE \x03 END")
        if kind(source) == "date":
            return f"CAST({cut} AS DATE)"
        if kind(source) != "ltz":
            return cut
        if unit in _DATE_UNITS:
            return writer.instant(cut)
        # In an hour that occurs twice, the wall-clock time alone is ambiguous.
        between = f"({cut} - {wall})"
        return f"({texts[0]} + {between})"

    return write


# --- differences ---


def _add_rule(args: Args) -> Expr | None:
    if len(args) != 3 or kind(args[1].type) != "integer" or kind(args[2].type) not in ("date", "timestamp", "ltz"):
        return None
    unit, count, point = constant_string(args[0]), args[1], args[2]
    if unit not in MILLIS and unit not in MONTHS:
        return None
    of = IntervalType(months=unit in MONTHS)
    size = MONTHS[unit] if unit in MONTHS else MILLIS[unit]
    if kind(point.type) == "date" and unit in ("SECOND", "MINUTE", "HOUR"):
        point = convert_to(point, TimestampType(precision=6))
    interval: Expr
    if isinstance(count, Literal) and isinstance(count.value, int):
        interval = Literal(value=count.value * size, type=of)
    else:
        one = Literal(value=size, type=of)
        interval = Call(function="*", args=(one, convert_to(count, INT if of.months else BIGINT)), type=of)
    return Call(function="SHIFT", args=(point, interval), type=point.type)


def _diff_rule(args: Args) -> Typed | None:
    points = ("date", "timestamp", "ltz")
    if len(args) != 3 or any(kind(arg.type) not in points for arg in args[1:]):
        return None
    if constant_string(args[0]) not in MILLIS and constant_string(args[0]) not in MONTHS:
        return None
    a, b = args[1:]
    if kind(a.type) != kind(b.type):
        if "ltz" in (kind(a.type), kind(b.type)):
            return None
        a, b = (convert_to(each, TIMESTAMP3) if kind(each.type) == "date" else each for each in (a, b))
    return (args[0], a, b), INT


def _diff(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    unit, source = constant_string(call.args[0]), call.args[1].type
    if unit in MONTHS:
        # Instants are compared in UTC, as months are added to them in UTC.
        as_local = writer.spark and kind(source) == "ltz"
        start, end = (f"CAST({each} AS TIMESTAMP_NTZ)" if as_local else each for each in texts[1:])
        months = _months_between(writer, start, end, kind(source) == "date")
        whole = "div" if writer.spark else "//"
        return f"CAST({months if MONTHS[unit] == 1 else f'({months} {whole} {MONTHS[unit]})'} AS {writer.type(INT)})"
    if kind(source) == "date":
        days = f"datediff({texts[2]}, {texts[1]})" if writer.spark else f"({texts[2]} - {texts[1]})"
        millis = f"(CAST({days} AS BIGINT) * 86400000)"
    elif writer.spark:
        millis = f"(unix_millis(CAST({texts[2]} AS TIMESTAMP)) - unix_millis(CAST({texts[1]} AS TIMESTAMP)))"
    else:
        millis = f"({millis_in_duckdb(texts[2])} - {millis_in_duckdb(texts[1])})"
    if writer.spark:
        return f"CAST(({millis} div {MILLIS[unit]}) AS {INT.spark})"
    return wrap_integer(f"({millis} // {MILLIS[unit]})", INT)


def _months_between(writer: Writer, start: str, end: str, dates: bool) -> str:
    """Return the number of whole months from start to end.

    The start moved by so many months is not after the end; on the same day, the times decide.
    """
    a, b, m = writer.new_variable(), writer.new_variable(), writer.new_variable()
    day = [f"CAST({each} AS DATE)" for each in (a, b)]

    def later(date: str, count: str) -> str:
        return (
            f"add_months({date}, CAST({count} AS INT))"
            if writer.spark
            else f"CAST({date} + to_months(CAST({count} AS INTEGER)) AS DATE)"
        )

    apart = f"((year({b}) - year({a})) * 12 + month({b}) - month({a}))"
    short = f"CASE WHEN {day[0]} <= {day[1]} THEN CASE WHEN {later(day[0], apart)} > {day[1]} THEN 1 ELSE 0 END "
    short += f"WHEN {later(day[1], f'-{apart}')} > {day[0]} THEN -1 ELSE 0 END"
    whole = f"({apart} - {short})"
    if dates:
        body = m
    else:
        times = [time_of_day_sql(writer, each, 1) for each in (a, b)]
        body = f"({m} - CASE WHEN {later(day[0], m)} = {day[1]} AND {times[1]} < {times[0]} THEN 1 ELSE 0 END)"
    return writer.let(a, start, writer.let(b, end, writer.let(m, whole, body)))


# --- strings and numbers ---


def _parse(writer: Writer, call: Call, text: str, pattern: Expr | None, pattern_text: str) -> str:
    """Return SQL that parses a TIMESTAMP by a pattern (default: Flink's form); NULL if it fails."""
    constant = constant_string(pattern) if isinstance(pattern, Literal) else None
    if pattern is None or constant == STANDARD:
        return parse_timestamp(writer, text, 3)
    if constant == "":
        return writer.literal(None, TIMESTAMP3)
    if writer.spark:
        _check_spark(writer, call, constant)
        parsed = f"CAST(try_to_timestamp({text}, {pattern_text}) AS TIMESTAMP_NTZ)"
    else:
        words = strptime_format(constant) if constant is not None else None
        if words is None:
            raise writer.unsupported(
                call, "the pattern must be a constant of plain letters (yyyy MM dd HH mm ss SSS a E)"
            )
        parsed = f"try_strptime({text}, {writer.text(words)})"
    return truncate_timestamp(writer, parsed, 3) if constant is None or "S" in constant else parsed


def _check_spark(writer: Writer, call: Call, pattern: str | None) -> None:
    letter = find_spark_unsupported(pattern) if pattern is not None else None
    if letter is not None:
        raise writer.unsupported(call, f"Spark's patterns have no letter `{letter}`")


def _format(writer: Writer, call: Call, wall: str, pattern: Expr | None, pattern_text: str) -> str:
    constant = constant_string(pattern) if isinstance(pattern, Literal) else None
    if pattern is None:
        return format_timestamp(writer, wall, 0)
    if writer.spark:
        _check_spark(writer, call, constant)
        return f"date_format({wall}, {pattern_text})"
    text = strftime_sql(constant, "\x03") if constant is not None else None
    if text is None:
        raise writer.unsupported(call, "the pattern must be a constant of plain letters (yyyy MM dd HH mm ss SSS a E)")
    return writer.bind_once(wall, text)


def _optional(call: Call, texts: Sequence[str], at: int) -> tuple[Expr | None, str]:
    return (call.args[at], texts[at]) if len(texts) > at else (None, "")


def _to_timestamp(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return _parse(writer, call, texts[0], *_optional(call, texts, 1))


def _to_date(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return parse_date(writer, texts[0])
    return f"CAST({_parse(writer, call, texts[0], *_optional(call, texts, 1))} AS DATE)"


def _to_ltz_rule(args: Args) -> Typed | None:
    if args and kind(args[0].type) in ("integer", "decimal", "floating"):
        precision = args[1].value if len(args) == 2 and isinstance(args[1], Literal) else 3
        if len(args) > 2 or not isinstance(precision, int) or not 0 <= precision <= 6:
            return None
        target = BIGINT if kind(args[0].type) == "integer" else args[0].type
        digits = Literal(value=precision, type=INT.as_nullable(False))
        return (convert_to(args[0], target), digits), TimestampType(precision=max(precision, 3), local_zone=True)
    typed = signature("STRING STRING? STRING? -> LTZ3")(args)
    return typed if isinstance(typed, tuple) else None


def _to_ltz_from_number(writer: Writer, source: DataType, text: str, digits: int) -> str:
    """Return the SQL of an instant, given in units of 10^-digits seconds.

    It is NULL outside the years 1 to 9999; in Flink, outside the years 0 to 9999. NaN is 1970.
    """
    factor = 10 ** (6 - digits)
    first, end = _YEAR_1 * 10**digits, _YEAR_10000 * 10**digits
    inside = f"{text} BETWEEN {first} AND {end - 1}"
    if isinstance(source, IntegerType):
        micros = f"({text} * {factor}{'L' if writer.spark else ''})"
    elif isinstance(source, FloatingType):
        scaled = f"{text} * {factor // 1000 if factor >= 1000 else 1}"
        micros = f"(CAST(floor({scaled}) AS BIGINT) * {min(factor, 1000)})"
        inside += f" AND {text} < {end}"  # as a DOUBLE, the last microsecond may be the end
    else:
        cut = text if writer.spark else f"trunc({text})"
        micros = f"(CAST({cut} AS BIGINT) * {factor})"
    instant = "timestamp_micros" if writer.spark else "make_timestamp"
    nan = f" WHEN isnan({text}) THEN {instant}(0)" if isinstance(source, FloatingType) else ""
    return f"CASE WHEN {inside} THEN {instant}({micros}){nan} END"


def _to_ltz(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    source = call.args[0].type
    if not isinstance(source, StringType):
        digits = call.args[1]
        assert isinstance(digits, Literal)
        assert isinstance(digits.value, int)
        return _to_ltz_from_number(writer, source, texts[0], digits.value)
    wall = _parse(writer, call, texts[0], *_optional(call, texts, 1))
    if len(texts) == 1:
        # Unlike in TO_TIMESTAMP, Flink fails here if the string is not a time.
        failed = f"CASE WHEN {texts[0]} IS NOT NULL THEN {writer.fail_with_value('cast-failed', texts[0], 'is not a valid TIMESTAMP_LTZ')} END"
        wall = f"coalesce({wall}, CAST({failed} AS {writer.type(TIMESTAMP3)}))"
    if len(texts) < 3:
        return f"CAST({wall} AS TIMESTAMP)" if writer.spark else wall
    if writer.spark:
        return f"CAST(convert_timezone({texts[2]}, 'UTC', {wall}) AS TIMESTAMP)"
    return f"timezone('UTC', timezone({texts[2]}, {wall}))"


def _from_unixtime(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Return NULL for a time that the engines cannot represent."""
    seconds = f"CASE WHEN {texts[0]} BETWEEN -{_MAX_SECONDS} AND {_MAX_SECONDS} THEN {texts[0]} END"
    instant = f"timestamp_seconds({seconds})" if writer.spark else f"make_timestamp({seconds} * 1000000)"
    return _format(writer, call, writer.local(instant), *_optional(call, texts, 1))


def _unix_timestamp(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Return the smallest BIGINT for a string that is not a time, as in Flink."""
    if not texts:
        now = writer.now()
        return f"unix_seconds({now})" if writer.spark else f"CAST(floor(epoch({now})) AS BIGINT)"
    wall = _parse(writer, call, texts[0], *_optional(call, texts, 1))
    if len(texts) == 1 or constant_string(call.args[1]) == STANDARD:
        wall = f"CASE WHEN {matches(writer, texts[0], ' ')} THEN {wall} END"
    instant = writer.instant(wall)
    seconds = f"unix_seconds({instant})" if writer.spark else f"CAST(floor(epoch({instant})) AS BIGINT)"
    return f"CASE WHEN {texts[0]} IS NOT NULL THEN coalesce({seconds}, {writer.literal(_LONG_MIN, BIGINT)}) END"


def _format_rule(args: Args) -> Typed | None:
    if len(args) != 2 or kind(args[0].type) not in ("timestamp", "ltz", "string") or kind(args[1].type) != "string":
        return None
    point = args[0]
    if kind(point.type) == "string":
        point = Call(function="TRY_CAST", args=(point,), type=TIMESTAMP3, span=point.span)
    return (point, args[1]), STRING


def _date_format(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return _format(writer, call, wall_clock_sql(writer, call.args[0].type, texts[0]), call.args[1], texts[1])


def _convert_tz(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    wall = parse_timestamp(writer, texts[0], 0)
    if writer.spark:
        return format_timestamp(writer, f"convert_timezone({texts[1]}, {texts[2]}, {wall})", 0)
    return format_timestamp(writer, f"timezone({texts[2]}, timezone({texts[1]}, {wall}))", 0)


# --- now ---


def _now(writer: Writer) -> str:
    return f"date_trunc('millisecond', {writer.now()})"


def _moment(what: str) -> Write:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        now = _now(writer)
        if what == "instant":
            return now
        wall = writer.local(now)
        if what == "date":
            return f"CAST({wall} AS DATE)"
        return time_of_day_sql(writer, wall, 1000) if what == "time" else wall

    return write


def _now_entry(name: str, result: str, what: str, doc: str, *aliases: str) -> Function:
    """Return a function of the current time, which is fixed per batch, also when it is repeated."""
    return Function(
        name=name,
        rule=signature(f" -> {result} NOT NULL"),
        spark=_moment(what),
        duckdb=_moment(what),
        doc=doc,
        usage=f"{name}()" if name in ("NOW", "PROCTIME", "CURRENT_ROW_TIMESTAMP") else name,
        aliases=aliases,
    )


def _text_entry(name: str, rule: Rule, write: Write, doc: str, usage: str) -> Function:
    return Function(name=name, rule=rule, spark=write, duckdb=write, doc=doc, usage=usage)


def _part_entry(name: str, unit: str) -> Function:
    return Function(
        name=name,
        rule=_part(unit),
        spark="",
        duckdb="",
        doc=f"EXTRACT({unit} FROM …).",
        usage=f"{name}(<DATE, TIMESTAMP, TIMESTAMP_LTZ>)",
    )


FUNCTIONS = (
    _text_entry("EXTRACT", _extract_rule, _extract, "A field of a point in time or an interval.", "EXTRACT(<unit> FROM <DATE, TIME, TIMESTAMP, INTERVAL>)"),
    _part_entry("YEAR", "YEAR"),
    _part_entry("QUARTER", "QUARTER"),
    _part_entry("MONTH", "MONTH"),
    _part_entry("WEEK", "WEEK"),
    _part_entry("DAYOFYEAR", "DOY"),
    _part_entry("DAYOFMONTH", "DAY"),
    _part_entry("DAYOFWEEK", "DOW"),
    _part_entry("HOUR", "HOUR"),
    _part_entry("MINUTE", "MINUTE"),
    _part_entry("SECOND", "SECOND"),
    _text_entry("FLOOR_TO", _cut_rule, _cut(up=False), "Rounds a point in time down to a unit.", "FLOOR(<DATE, TIME, TIMESTAMP> TO <unit>)"),
    _text_entry("CEIL_TO", _cut_rule, _cut(up=True), "Rounds a point in time up to a unit.", "CEIL(<DATE, TIME, TIMESTAMP> TO <unit>)"),
    Function(name="TIMESTAMPADD", rule=_add_rule, spark="", duckdb="", doc="Adds a number of units to a point in time.",
             usage="TIMESTAMPADD(<unit>, <INT>, <DATE or TIMESTAMP>)"),
    _text_entry("TIMESTAMPDIFF", _diff_rule, _diff, "Number of whole units from the first point in time to the second.",
                "TIMESTAMPDIFF(<SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER or YEAR>, <point>, <point>)"),
    _text_entry("TO_TIMESTAMP", signature("STRING STRING? -> TIMESTAMP3"), _to_timestamp, "Parses a string as a TIMESTAMP; NULL if it is not one.",
                "TO_TIMESTAMP(<STRING>[, <STRING pattern>])"),
    _text_entry("TO_DATE", signature("STRING STRING? -> DATE"), _to_date, "Parses a string as a DATE; NULL if it is not one.", "TO_DATE(<STRING>[, <STRING pattern>])"),
    _text_entry("TO_TIMESTAMP_LTZ", _to_ltz_rule, _to_ltz, "Converts a number of seconds (0), milliseconds (3) or microseconds (6) since 1970, or a string, to an instant.",
                "TO_TIMESTAMP_LTZ(<NUMERIC>[, 0, 3 or 6]), TO_TIMESTAMP_LTZ(<STRING>[, <pattern>[, <zone>]])"),
    _text_entry("FROM_UNIXTIME", signature("BIGINT STRING? -> STRING"), _from_unixtime, "Formats a number of seconds since 1970, in the session's zone.",
                "FROM_UNIXTIME(<BIGINT>[, <STRING pattern>])"),
    _text_entry("UNIX_TIMESTAMP", signature(" -> BIGINT NOT NULL", "STRING STRING? -> BIGINT"), _unix_timestamp,
                "Seconds since 1970, of the current time or of a string in the session's zone.", "UNIX_TIMESTAMP([<STRING>[, <STRING pattern>]])"),
    _text_entry("DATE_FORMAT", _format_rule, _date_format, "Formats a point in time by a pattern.", "DATE_FORMAT(<TIMESTAMP or STRING>, <STRING pattern>)"),
    _text_entry("CONVERT_TZ", signature("STRING STRING STRING -> STRING"), _convert_tz, "Converts a timestamp string from one zone to another.",
                "CONVERT_TZ(<STRING>, <STRING from zone>, <STRING to zone>)"),
    _now_entry("CURRENT_TIMESTAMP", "LTZ3", "instant", "Current timestamp."),
    _now_entry("NOW", "LTZ3", "instant", "Current timestamp."),
    _now_entry("CURRENT_ROW_TIMESTAMP", "LTZ3", "instant", "Current timestamp."),
    _now_entry("PROCTIME", "LTZ3", "instant", "Current timestamp, as a time attribute."),
    _now_entry("LOCALTIMESTAMP", "TIMESTAMP3", "timestamp", "Current timestamp in the session's zone."),
    _now_entry("CURRENT_DATE", "DATE", "date", "Current date in the session's zone."),
    _now_entry("LOCALTIME", "TIME", "time", "Current time of day in the session's zone.", "CURRENT_TIME"),
)  # fmt: skip
