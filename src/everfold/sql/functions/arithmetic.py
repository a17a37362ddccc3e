"""Operators + - * / % and the sign.

Integers wrap, quotients of integers truncate, decimals have Flink's precisions and round half up.
Spark (ANSI off) computes integers and decimals as Flink does, but returns NULL where Flink fails
(integer and decimal division by zero) or returns Infinity and NaN (doubles). DuckDB fails on
overflow, divides decimals as doubles and is limited to 38 digits within a product. There, integers
are computed with a wider type and wrapped, and wide decimals are computed as whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions.casts import wrap_integer
from everfold.sql.functions.coercion import (
    convert_to,
    decimal_of,
    kind,
    least_restrictive,
    product_type,
    quotient_type,
    remainder_type,
    sum_type,
)
from everfold.sql.functions.entry import Args, Function, Rule, Typed
from everfold.sql.functions.temporal_arithmetic import add_interval, scale_interval
from everfold.sql.functions.writer import Writer
from everfold.types import (
    MAX_DECIMAL_PRECISION,
    DataType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    NumericType,
)

DIVISION_BY_ZERO = "division-by-zero: Division by zero"
_DECIMAL_RESULT: dict[str, Callable[[DecimalType, DecimalType], DecimalType]] = {
    "+": sum_type,
    "-": sum_type,
    "*": product_type,
    "/": quotient_type,
    "%": remainder_type,
}


def _arithmetic(operator: str) -> Rule:
    def rule(args: Args) -> Typed | Expr | None:
        if len(args) != 2:
            return None
        if operator in ("+", "-"):
            temporal = add_interval(operator, args)
            if temporal is not None:
                return temporal
        if operator == "*":
            scaled = scale_interval(args)
            if scaled is not None:
                return scaled
        a, b = args
        if kind(a.type) == "null":
            a = convert_to(a, b.type)
        if kind(b.type) == "null":
            b = convert_to(b, a.type)
        if not isinstance(a.type, NumericType) or not isinstance(b.type, NumericType):
            return None
        if operator == "%" and (isinstance(a.type, FloatingType) or isinstance(b.type, FloatingType)):
            return None
        common = least_restrictive([a.type, b.type])
        divisor = b.type.as_nullable(a.type.nullable or b.type.nullable)
        if isinstance(common, FloatingType):
            return (convert_to(a, common), convert_to(b, common)), common
        if isinstance(common, IntegerType):
            return (convert_to(a, common), convert_to(b, common)), divisor if operator == "%" else common
        left, right = decimal_of(a.type), decimal_of(b.type)
        assert left is not None
        assert right is not None
        if operator == "%" and left.scale == right.scale == 0:
            return (convert_to(a, left), convert_to(b, right)), divisor
        return (convert_to(a, left), convert_to(b, right)), _DECIMAL_RESULT[operator](left, right)

    return rule


def _not_zero(arg: Expr) -> bool:
    return isinstance(arg, Literal) and bool(arg.value)


def _spark(operator: str) -> Callable[[Writer, Call, Sequence[str]], str]:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        a, b = texts
        type, divisor = call.type, call.args[1]
        if operator not in ("/", "%"):
            text = f"({a} {operator} {b})"
            return f"CAST({text} AS {type.spark})" if isinstance(type, DecimalType) else text
        if isinstance(type, FloatingType):
            text = f"({a} / {b})"
            if not _not_zero(divisor):
                # Spark returns NULL; a power returns the IEEE result, with the sign of the zero.
                text = f"IF({b} = 0, {a} * power({b}, -1D), {a} / {b})"
            return f"CAST({text} AS {type.spark})" if type.spark == "FLOAT" else text
        word = "div" if operator == "/" and isinstance(type, IntegerType) else operator
        text = f"({a} {word} {b})"
        if not _not_zero(divisor):
            text = f"IF({b} = 0 AND {a} IS NOT NULL, {writer.fail(DIVISION_BY_ZERO)}, {a} {word} {b})"
        return f"CAST({text} AS {type.spark})"

    return write


def _duckdb(operator: str) -> Callable[[Writer, Call, Sequence[str]], str]:
    def write(writer: Writer, call: Call, texts: Sequence[str]) -> str:
        a, b = texts
        type, (left, right) = call.type, call.args
        if isinstance(type, FloatingType | IntervalType):
            return f"({a} {operator} {b})"
        if isinstance(type, IntegerType) and isinstance(left.type, IntegerType):
            if operator in ("/", "%"):
                wide = "HUGEINT" if left.type.bits == 64 else "BIGINT"
                text = f"CAST({a} AS {wide}) {'//' if operator == '/' else '%'} {_divisor(writer, right, a, b)}"
                return wrap_integer(f"({text})", type) if operator == "/" else f"CAST(({text}) AS {type.duckdb})"
            wide = "HUGEINT" if type.bits == 64 else "BIGINT"
            return wrap_integer(f"(CAST({a} AS {wide}) {operator} CAST({b} AS {wide}))", type)
        assert isinstance(left.type, DecimalType)
        assert isinstance(right.type, DecimalType)
        if operator == "%":
            return _remainder(writer, type, left.type, right.type, a, _divisor(writer, right, a, b))
        assert isinstance(type, DecimalType)
        if operator == "/":
            return _quotient(writer, type, left.type, right.type, a, _divisor(writer, right, a, b))
        if operator == "*":
            return _product(writer, type, left.type, right.type, a, b)
        return _sum(writer, type, max(left.type.scale, right.type.scale), a, operator, b)

    return write


def _divisor(writer: Writer, divisor: Expr, a: str, b: str) -> str:
    """Return DuckDB SQL of the divisor of `a / b`; zero fails the job unless `a` is NULL."""
    if _not_zero(divisor):
        return b
    return f"CASE WHEN {b} = 0 AND {a} IS NOT NULL THEN {writer.fail(DIVISION_BY_ZERO)} ELSE {b} END"


def _sum(writer: Writer, type: DecimalType, scale: int, a: str, operator: str, b: str) -> str:
    """Return DuckDB SQL of a sum or difference; NULL if it has too many digits."""
    wide = f"DECIMAL(38,{scale})"
    text = f"CAST({a} AS {wide}) {operator} CAST({b} AS {wide})"
    if type.precision < MAX_DECIMAL_PRECISION:
        return f"CAST({text} AS {type.duckdb})"
    exact = f"TRY(CAST({text} AS {type.duckdb}))"
    if type.scale == scale:
        return exact
    # 38 digits may be too few for both operands: then add integer and fractional parts separately.
    before = f"CAST(trunc({a}) AS DECIMAL(38,0)) {operator} CAST(trunc({b}) AS DECIMAL(38,0))"
    behind = f"CAST({a} - trunc({a}) AS {wide}) {operator} CAST({b} - trunc({b}) AS {wide})"
    return f"coalesce({exact}, TRY(CAST({before} AS {type.duckdb}) + CAST({behind} AS {type.duckdb})))"


def _unscale(text: str) -> str:
    """Return DuckDB SQL of the unscaled value of a decimal: the integer of its digits."""
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def _rescale(text: str, type: DecimalType) -> str:
    """Return DuckDB SQL of the decimal with this unscaled value; NULL if it has too many digits."""
    if type.scale == 0:
        return f"TRY_CAST({text} AS {type.duckdb})"
    unit = f"CAST('{'0.' + '0' * (type.scale - 1)}1' AS DECIMAL({type.scale},{type.scale}))"
    return f"TRY_CAST(CAST({text} AS DECIMAL(38,0)) * {unit} AS {type.duckdb})"


def _quotient(writer: Writer, type: DecimalType, left: DecimalType, right: DecimalType, a: str, b: str) -> str:
    shift = type.scale + right.scale - left.scale
    x, n, d, q = (writer.new_variable() for _ in range(4))
    # Round half up, away from zero: a remainder of at least half the divisor adds one.
    rounded = (
        f"CASE WHEN abs({n} % {d}) >= abs({d}) - abs({n} % {d}) "
        f"THEN {n} // {d} + CASE WHEN ({n} < 0) = ({d} < 0) THEN 1 ELSE -1 END ELSE {n} // {d} END"
    )
    body = writer.let(q, rounded, _rescale(q, type))
    shifted = writer.let(n, f"{x} * {10**shift}::HUGEINT", body)
    if type.precision == MAX_DECIMAL_PRECISION:
        shifted = f"TRY({shifted})"
    if left.precision + shift > MAX_DECIMAL_PRECISION:
        sign = f"CASE WHEN ({x} < 0) = ({d} < 0) THEN 1 ELSE -1 END"
        parts, size = writer.new_variable(), writer.new_variable()
        away = f"CASE WHEN {parts}.r >= {size} - {parts}.r THEN 1 ELSE 0 END"
        body = writer.let(
            parts, _divide_by_digits(writer, x, size, shift), _rescale(f"({parts}.q + {away}) * {sign}", type)
        )
        shifted = f"coalesce({shifted}, TRY({writer.let(size, _size(d), body)}))"
    return writer.let_all({x: _unscale(a), d: _unscale(b)}, shifted)


def _remainder(writer: Writer, type: DataType, left: DecimalType, right: DecimalType, a: str, b: str) -> str:
    scale = max(left.scale, right.scale)
    if max(left.precision - left.scale, right.precision - right.scale) + scale <= MAX_DECIMAL_PRECISION:
        return f"CAST({a} % {b} AS {type.duckdb})"
    # DuckDB has no common type for both operands, and would compute with DOUBLE.
    x, d, size = (writer.new_variable() for _ in range(3))
    wide = DecimalType(precision=MAX_DECIMAL_PRECISION, scale=scale)
    if left.scale < scale:
        digits = f"{_divide_by_digits(writer, x, size, scale - left.scale, quotient=False)}.r"
        signed = f"CAST({digits} AS HUGEINT) * CASE WHEN {x} < 0 THEN -1 ELSE 1 END"
        body = writer.let(size, _size(d), _rescale(signed, wide))
    else:
        # A divisor with more than 38 digits is greater than the dividend, which then remains.
        shifted = f"TRY({d} * {10 ** (scale - right.scale)}::HUGEINT)"
        body = _rescale(f"CASE WHEN {d} IS NOT NULL THEN coalesce({x} % {shifted}, {x}) END", wide)
    return f"CAST({writer.let_all({x: _unscale(a), d: _unscale(b)}, body)} AS {type.duckdb})"


def _size(digits: str) -> str:
    return f"CAST(abs({digits}) AS UHUGEINT)"


def _divide_by_digits(writer: Writer, x: str, size: str, shift: int, *, quotient: bool = True) -> str:
    """Return DuckDB SQL of a long division: the quotient `q` of the size of a dividend with `shift`
    more digits, which may not fit into 128 bits, and the remainder `r`.

    size: that of the divisor, UHUGEINT. quotient: whether it is needed, and fits.
    """
    parts, position, thrice, ninefold = (writer.new_variable() for _ in range(4))
    # The remainder is less than 10^38, so that three times as much fits into 128 bits, but not ten.
    digit = f"CAST({ninefold}.q + {ninefold}.r // {size} AS HUGEINT)"
    longer = f"{parts}.q * 10 + {digit}" if quotient else digit
    step = f"struct_pack(q := {longer}, r := {ninefold}.r % {size})"
    nine = f"struct_pack(q := {thrice}.q * 3 + {thrice}.r * 3 // {size}, r := {thrice}.r * 3 % {size} + {parts}.r)"
    three = f"struct_pack(q := {parts}.r * 3 // {size}, r := {parts}.r * 3 % {size})"
    step = writer.let(thrice, three, writer.let(ninefold, nine, step))
    first = f"struct_pack(q := CAST({_size(x)} // {size} AS HUGEINT), r := {_size(x)} % {size})"
    return f"list_reduce(range({shift}), lambda {parts}, {position}: {step}, {first})"


def _product(writer: Writer, type: DecimalType, left: DecimalType, right: DecimalType, a: str, b: str) -> str:
    if left.precision + right.precision <= MAX_DECIMAL_PRECISION:
        # DuckDB computes in the type of the wider operand: two of 18 digits would overflow.
        wide = f"CAST({a} AS DECIMAL(38,{left.scale}))" if left.precision + right.precision > 18 else a
        return f"CAST({wide} * {b} AS {type.duckdb})"
    drop = left.scale + right.scale - type.scale
    x, y, low, middle, digits, sign = (writer.new_variable() for _ in range(6))
    left_digits, right_digits = writer.new_variable(), writer.new_variable()
    zero, one, base = (f"{number}::UHUGEINT" for number in (0, 1, 10**19))
    # Long multiplication in limbs of 19 digits: of up to 76 digits, the last `drop` are rounded.
    # The sum of two products of limbs fits into 128 bits only without a sign.
    carried = f"({x} // {base} * ({y} % {base}) + {x} % {base} * ({y} // {base}) + {low} // {base})"
    tail = f"({middle} % {base} * {base} + {low} % {base})"
    high = f"({x} // {base} * ({y} // {base}) + {middle} // {base})"
    unit = f"{10**drop}::UHUGEINT"
    product = f"({high} * {10 ** max(38 - drop, 0)}::UHUGEINT + {tail} // {unit} + CASE WHEN {tail} % {unit} >= {unit} - {tail} % {unit} THEN {one} ELSE {zero} END)"
    if drop > 38:
        # Drop all 38 low digits and some of the high ones.
        over = f"{10 ** (drop - 38)}::UHUGEINT"
        product = (
            f"({high} // {over} + CASE WHEN {high} % {over} >= {over} - {high} % {over} THEN {one} ELSE {zero} END)"
        )
    elif drop == 0:
        product = f"({high} * {10**37}::UHUGEINT * 10 + {tail})"
    body = writer.let(digits, f"{sign} * CAST({product} AS HUGEINT)", _rescale(digits, type))
    body = writer.let(middle, carried, body)
    body = writer.let(low, f"{x} % {base} * ({y} % {base})", body)
    sizes = {
        x: _size(left_digits),
        y: _size(right_digits),
        sign: f"CASE WHEN ({left_digits} < 0) = ({right_digits} < 0) THEN 1 ELSE -1 END",
    }
    return writer.let_all({left_digits: _unscale(a), right_digits: _unscale(b)}, f"TRY({writer.let_all(sizes, body)})")


def _sign(args: Args) -> Typed | Expr | None:
    if len(args) != 1 or not (isinstance(args[0].type, NumericType) or kind(args[0].type) in ("millis", "months")):
        return None
    arg = args[0]
    value = arg.value if isinstance(arg, Literal) else None
    if (
        value is not None
        and not isinstance(value, bool)
        and isinstance(arg.type, IntegerType)
        and isinstance(value, int)
    ):
        limit = 1 << arg.type.bits - 1
        return Literal(value=-value, type=arg.type, span=arg.span) if value != -limit else arg
    return args, args[0].type


_EXACT_DIGITS = 34
"""Digits that a decimal keeps when Spark negates it, for `-` and for `abs`."""


def negate_in_spark(text: str, of: DataType) -> str:
    """Return Spark SQL that negates a number; long decimals are negated as strings."""
    if not isinstance(of, DecimalType) or of.precision <= _EXACT_DIGITS:
        return f"(-{text})"
    digits = f"CAST({text} AS STRING)"
    return f"CAST(CASE WHEN {text} < 0 THEN substr({digits}, 2) ELSE concat('-', {digits}) END AS {of.spark})"


def _minus_spark(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    return negate_in_spark(texts[0], call.type)


def _minus_duckdb(writer: Writer, call: Call, texts: Sequence[str]) -> str:
    if isinstance(call.type, IntegerType):
        wide = "HUGEINT" if call.type.bits == 64 else "BIGINT"
        return wrap_integer(f"(-CAST({texts[0]} AS {wide}))", call.type)
    return f"(-{texts[0]})"


def _entry(operator: str, doc: str, *aliases: str) -> Function:
    return Function(
        name=operator,
        aliases=aliases,
        rule=_arithmetic(operator),
        spark=_spark(operator),
        duckdb=_duckdb(operator),
        doc=doc,
        usage=f"<NUMERIC> {operator} <NUMERIC>",
        operator=True,
    )


FUNCTIONS = (
    _entry("+", "Sum; also adds an interval to a point in time."),
    _entry("-", "Difference; also subtracts an interval from a point in time."),
    _entry("*", "Product."),
    _entry("/", "Quotient; an integer quotient truncates toward zero."),
    _entry("%", "Remainder with the sign of the dividend; only for exact numbers.", "MOD"),
    Function(
        name="UNARY_MINUS",
        rule=_sign,
        spark=_minus_spark,
        duckdb=_minus_duckdb,
        doc="Negation of a number or interval.",
        usage="-<NUMERIC>",
        operator=True,
    ),
)
