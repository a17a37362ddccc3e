"""Numeric functions.

Logarithms and roots outside their domain are NaN or -Infinity, as in Java, where Spark returns NULL
and DuckDB fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Literal
from everfold.sql.functions.arithmetic import negate_in_spark
from everfold.sql.functions.casts import wrap_integer
from everfold.sql.functions.coercion import convert_to
from everfold.sql.functions.entry import Args, Function, Typed
from everfold.sql.functions.signatures import signature
from everfold.sql.functions.writer import Writer
from everfold.types import INT, DataType, DecimalType, FloatingType, IntegerType

Write = Callable[[Writer, Call, Sequence[str]], str]


def _whole(type: DataType) -> DataType:
    return DecimalType(precision=type.precision, scale=0) if isinstance(type, DecimalType) else type


def _whole_rule(args: Args) -> Typed | None:
    typed = signature("NUMERIC -> =0")(args)
    return (typed[0], _whole(typed[1])) if isinstance(typed, tuple) else None


def _rounding(word: str) -> Write:
    """Return the writer of CEIL or FLOOR: integers stay as they are, decimals are exact."""

    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        if isinstance(call.type, IntegerType):
            return texts[0]
        if isinstance(call.type, DecimalType):
            return f"CAST({word}({texts[0]}) AS {writer.type(call.type)})"
        if writer.spark:
            # Spark returns BIGINT for doubles: keep large numbers, NaN and infinities as they are.
            inside = f"CAST({word}({texts[0]}) AS {call.type.spark})"
            return f"CASE WHEN abs({texts[0]}) < 4503599627370496 THEN {inside} ELSE {texts[0]} END"
        return f"CAST({word}({texts[0]}) AS {writer.type(call.type)})"

    return write


def _digits_rule(args: Args) -> Typed | None:
    """Type ROUND and TRUNCATE: a decimal keeps its integer digits and the requested scale."""
    typed = signature("NUMERIC INT? -> =0")(args)
    if not isinstance(typed, tuple):
        return None
    args, result = typed
    digits = args[1].value if len(args) > 1 and isinstance(args[1], Literal) else 0 if len(args) == 1 else None
    if isinstance(result, DecimalType) and isinstance(digits, int) and digits < result.scale:
        kept = max(digits, 0)
        result = DecimalType(precision=min(result.precision - result.scale + 1 + kept, 38), scale=kept)
    if len(args) == 1:
        args = (*args, convert_to(Literal(value=0, type=INT), INT))
    return args, result


def _round(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    """Round half up, away from zero; a double is rounded by its decimal digits."""
    value = texts[0]
    name = writer.type(call.type)
    constant = call.args[1].value if isinstance(call.args[1], Literal) else None
    if not isinstance(constant, int):
        raise writer.unsupported(call, "the number of digits must be a constant")
    if isinstance(call.type, FloatingType):
        return _round_double(writer, call, value, constant)
    if isinstance(call.type, IntegerType):
        if constant >= 0:
            return value
        return _round_to_unit(writer, call.type, value, 10**-constant, half=True)
    source = call.args[0].type
    assert isinstance(source, DecimalType)
    if constant >= source.scale:
        return f"CAST({value} AS {name})"
    return f"CAST(round({value}, {constant}) AS {name})"


def _round_to_unit(writer: Writer, type: IntegerType, value: str, unit: int, half: bool) -> str:
    """Round or truncate an integer to a multiple of the unit."""
    if unit > 10**18:
        return f"({value} * 0)"
    wide = "DECIMAL(38,0)" if writer.spark else "HUGEINT"
    if writer.spark:
        cut = f"(CAST({value} AS BIGINT) div {unit})"
        cut = f"CAST(round(CAST({value} AS {wide}), -{len(str(unit)) - 1}) AS BIGINT)" if half else f"({cut} * {unit})"
        return f"CAST({cut} AS {type.spark})"
    lifted = f"CAST({value} AS {wide})"
    half_unit = f" + CASE WHEN {value} < 0 THEN -{unit // 2} ELSE {unit // 2} END" if half else ""
    return wrap_integer(f"(({lifted}{half_unit}) // {unit} * {unit})", type)


def _round_double(writer: Writer, call: Call, value: str, constant: int) -> str:
    name = writer.type(call.type)
    if writer.spark:
        return f"CAST(round({value}, {constant}) AS {name})"
    # From 1E15 on there are hardly any fractional digits; a decimal of 38 digits is exact.
    scale = min(max(constant, 0), 17)
    exact = f"TRY_CAST(CAST({value} AS VARCHAR) AS DECIMAL(38,{max(scale + 1, 18)}))"
    rounded = f"CAST(round({exact}, {constant}) AS {name})"
    return f"CASE WHEN isfinite({value}) AND abs({value}) < 1e18 THEN coalesce({rounded}, {value}) ELSE {value} END"


def _truncate(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    value, constant = texts[0], call.args[1].value if isinstance(call.args[1], Literal) else None
    if not isinstance(constant, int):
        raise writer.unsupported(call, "the number of digits must be a constant")
    name = writer.type(call.type)
    if isinstance(call.type, IntegerType):
        return value if constant >= 0 else _round_to_unit(writer, call.type, value, 10**-constant, half=False)
    source = call.args[0].type
    if isinstance(source, DecimalType):
        if constant >= source.scale:
            return f"CAST({value} AS {name})"
        cut = f"CASE WHEN {value} < 0 THEN ceil({value}, {constant}) ELSE floor({value}, {constant}) END"
        if not writer.spark:
            unit = f"CAST('{10**-constant if constant < 0 else 1}' AS DECIMAL(38,0))"
            cut = (
                f"(CAST(trunc({value} / {unit}) AS DECIMAL(38,0)) * {unit})"
                if constant < 0
                else f"trunc({value}, {constant})"
            )
        return f"CAST({cut} AS {name})"
    text = "STRING" if writer.spark else "VARCHAR"
    scale = min(max(constant, 0), 17)
    decimal = f"DECIMAL(38,{max(scale + 1, 18)})"
    exact = f"CAST({value} AS {decimal})" if writer.spark else f"TRY_CAST(CAST({value} AS {text}) AS {decimal})"
    if writer.spark:
        cut = f"CASE WHEN {value} < 0 THEN ceil({exact}, {constant}) ELSE floor({exact}, {constant}) END"
    elif constant >= 0:
        cut = f"trunc({exact}, {constant})"
    else:
        cut = f"(CAST(trunc({value} / {10**-constant}) AS DOUBLE) * {10**-constant})"
    finite = f"abs({value}) < 1e18" if not writer.spark else f"abs({value}) < 1e18D"
    return f"CASE WHEN {finite} THEN coalesce(CAST({cut} AS {name}), {value}) ELSE {value} END"


def _abs_spark(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if isinstance(call.type, DecimalType):
        return f"CASE WHEN {texts[0]} < 0 THEN {negate_in_spark(texts[0], call.type)} ELSE {texts[0]} END"
    return f"abs({texts[0]})"


def _abs_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if isinstance(call.type, IntegerType):
        return wrap_integer(f"abs(CAST({texts[0]} AS HUGEINT))", call.type)
    return f"abs({texts[0]})"


def _sign(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    text = f"CAST(sign({texts[0]}) AS {writer.type(call.type)})"
    if isinstance(call.type, FloatingType):
        return f"CASE WHEN isnan({texts[0]}) THEN {texts[0]} ELSE {text} END"
    return text


def _log(text: str, word: str) -> str:
    """Return SQL of a logarithm: -Infinity for 0, NaN for negative numbers."""
    return f"CASE WHEN {text} > 0 THEN {word}({text}) WHEN {text} = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN {text} < 0 THEN CAST('NaN' AS DOUBLE) END"


def _log_rule(args: Args) -> Typed | None:
    return signature("DOUBLE DOUBLE? -> DOUBLE")(args)  # type: ignore[return-value]


def _log_text(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return _log(texts[0], "ln")
    above, below = _log(texts[1], "ln"), _log(texts[0], "ln")
    if writer.spark:
        return writer.bind_once(below, f"IF(\x03 = 0, ({above}) * power(\x03, -1D), ({above}) / \x03)")
    return f"(({above}) / ({below}))"


def _double(name: str, spark: str, doc: str, *aliases: str, duckdb: str | None = None, arity: int = 1) -> Function:
    return Function(
        name=name,
        rule=signature(" ".join(["DOUBLE"] * arity) + " -> DOUBLE"),
        spark=spark,
        duckdb=spark if duckdb is None else duckdb,
        doc=doc,
        usage=f"{name}({', '.join(['<NUMERIC>'] * arity)})",
        aliases=aliases,
    )


def _nan_outside(limit: str, word: str) -> str:
    return f"CASE WHEN {limit} THEN {word}({{0}}) WHEN {{0}} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"


_FINITE = "CASE WHEN isfinite({{0}}) THEN {0}({{0}}) WHEN {{0}} IS NOT NULL THEN CAST('NaN' AS DOUBLE) END"

FUNCTIONS = (
    Function(name="ABS", rule=signature("NUMERIC -> =0"), spark=_abs_spark, duckdb=_abs_duckdb, doc="Absolute value.", usage="ABS(<NUMERIC>)"),
    Function(name="SIGN", rule=signature("NUMERIC -> =0"), spark=_sign, duckdb=_sign, doc="Sign of a number: -1, 0 or 1.", usage="SIGN(<NUMERIC>)"),
    Function(name="CEIL", rule=_whole_rule, spark=_rounding("ceil"), duckdb=_rounding("ceil"), aliases=("CEILING",),
             doc="Rounds up to an integer, or up to a unit of time.", usage="CEIL(<NUMERIC>), CEIL(<TIMESTAMP> TO <unit>)"),
    Function(name="FLOOR", rule=_whole_rule, spark=_rounding("floor"), duckdb=_rounding("floor"),
             doc="Rounds down to an integer, or down to a unit of time.", usage="FLOOR(<NUMERIC>), FLOOR(<TIMESTAMP> TO <unit>)"),
    Function(name="ROUND", rule=_digits_rule, spark=_round, duckdb=_round, doc="Rounds half up to a number of digits after the point; a negative number counts digits before it.",
             usage="ROUND(<NUMERIC>[, <INT>])"),
    Function(name="TRUNCATE", rule=_digits_rule, spark=_truncate, duckdb=_truncate, doc="Truncates toward zero to a number of digits after the point.",
             usage="TRUNCATE(<NUMERIC>[, <INT>])"),
    _double("POWER", "power({0}, {1})", "The first number raised to the power of the second.", arity=2,
            duckdb="CASE WHEN abs({0}) = 1 AND NOT isfinite({1}) THEN CAST('NaN' AS DOUBLE) ELSE power({0}, {1}) END"),
    _double("SQRT", "sqrt({0})", "Square root.", duckdb="CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({0}) END"),
    _double("EXP", "exp({0})", "e raised to the power of a number."),
    _double("LN", _log("{0}", "ln"), "Natural logarithm."),
    _double("LOG10", _log("{0}", "log10"), "Logarithm to base 10."),
    _double("LOG2", "(" + _log("{0}", "ln") + ") / ln(2D)", "Logarithm to base 2.", duckdb="(" + _log("{0}", "ln") + ") / ln(2)"),
    Function(name="LOG", rule=_log_rule, spark=_log_text, duckdb=_log_text, doc="Natural logarithm, or the logarithm to a given base.",
             usage="LOG([<NUMERIC base>, ]<NUMERIC>)"),
    _double("SIN", "sin({0})", "Sine.", duckdb=_FINITE.format("sin")),
    _double("COS", "cos({0})", "Cosine.", duckdb=_FINITE.format("cos")),
    _double("TAN", "tan({0})", "Tangent.", duckdb=_FINITE.format("tan")),
    _double("COT", "cot({0})", "Cotangent.", duckdb=_FINITE.format("cot")),
    _double("ASIN", "asin({0})", "Arc sine.", duckdb=_nan_outside("{0} BETWEEN -1 AND 1", "asin")),
    _double("ACOS", "acos({0})", "Arc cosine.", duckdb=_nan_outside("{0} BETWEEN -1 AND 1", "acos")),
    _double("ATAN", "atan({0})", "Arc tangent."),
    _double("ATAN2", "atan2({0}, {1})", "Angle of the point (x, y); the arguments are (y, x).", arity=2),
    _double("SINH", "sinh({0})", "Hyperbolic sine."),
    _double("COSH", "cosh({0})", "Hyperbolic cosine."),
    _double("TANH", "tanh({0})", "Hyperbolic tangent."),
    _double("DEGREES", "degrees({0})", "Converts radians to degrees."),
    _double("RADIANS", "radians({0})", "Converts degrees to radians."),
    Function(name="PI", rule=signature(" -> DOUBLE NOT NULL"), spark="pi()", duckdb="pi()", doc="The number π.", usage="PI()"),
    Function(name="E", rule=signature(" -> DOUBLE NOT NULL"), spark="e()", duckdb="exp(CAST(1 AS DOUBLE))", doc="The number e, the base of the natural logarithm.", usage="E()"),
    Function(name="RAND", rule=signature(" -> DOUBLE NOT NULL"), spark="rand()", duckdb="random()", deterministic=False,
             doc="Random number from 0 (inclusive) to 1 (exclusive); a batch that is repeated after a crash gets another one.", usage="RAND()"),
    Function(name="RAND_INTEGER", rule=signature("INT -> INT"), spark="CAST(floor(rand() * {0}) AS INT)", duckdb="CAST(floor(random() * {0}) AS INTEGER)",
             deterministic=False, doc="Random integer from 0 (inclusive) to the given number (exclusive); a repeated batch gets another one.", usage="RAND_INTEGER(<INT>)"),
)  # fmt: skip
