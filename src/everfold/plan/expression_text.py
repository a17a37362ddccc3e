"""Canonical texts of expressions: equal for expressions that are equal in every row.

Spellings with one meaning have one text: mirrored comparisons, commuted operands, `BETWEEN`, an OR
of equalities and `IN`. The texts are stored with jobs, so a change of this module needs a new
version of `plan.state_names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from everfold.plan.expressions import Call, Expr, InputRef, Literal, PythonCall, Retyped
from everfold.types import DataType, DecimalType, FloatingType, IntegerType

_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
_SYMMETRIC = ("=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
_LISTS = {"OR": "=", "AND": "<>"}
"""The comparisons of one value with constants that are a list in `IN` or `NOT IN`, by the function
that joins them."""

_CONSTANT = re.compile(r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*"|[^\s(),|:]+:[A-Z][A-Z_ ]*(?:\([\d, ]*\))?[A-Z_ ]*""")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def canonical_text(expr: Expr, names: Sequence[str]) -> str:
    """Return the canonical text of an expression.

    names: the canonical texts of the input columns.
    """
    match expr:
        case InputRef():
            return names[expr.position]
        case Literal():
            return _write_literal(expr)
        case Retyped(args=(operand,)):
            return canonical_text(operand, names)
        case PythonCall():
            return f"{expr.of.identifier}({_join(expr.args, names)})"
        case Call(function="CAST" | "TRY_CAST", args=(operand, *_)):
            return f"{expr.function}({canonical_text(operand, names)} AS {expr.type.sql})"
        case Call(function="AND" | "OR" | "BETWEEN"):
            parts = sorted(condition_texts(expr, names, "OR" if expr.function == "OR" else "AND"))
            return parts[0] if len(parts) == 1 else f"{'OR' if expr.function == 'OR' else 'AND'}({', '.join(parts)})"
        case Call(function="IN", args=(value, *values)) if all(map(_is_constant, values)):
            return _membership(canonical_text(value, names), {canonical_text(each, names) for each in values}, "OR")
        case Call(function="NOT", args=(operand,)):
            return _negate(operand, names)
        case Call(args=(left, right)) if expr.function in _SYMMETRIC or expr.function in _MIRRORED:
            texts = [canonical_text(left, names), canonical_text(right, names)]
            if _rank(right, texts[1]) < _rank(left, texts[0]):
                return f"{_MIRRORED.get(expr.function, expr.function)}({texts[1]}, {texts[0]})"
            return f"{expr.function}({texts[0]}, {texts[1]})"
        case Call(function="+" | "*") if _commutes(expr.type):
            operands = [(part, canonical_text(part, names)) for part in _operands(expr)]
            texts = [text for _, text in sorted(operands, key=lambda operand: _rank(*operand))]
            return f"{expr.function}({', '.join(texts)})"
        case Call():
            return f"{expr.function}({_join(expr.args, names)})"


def is_constant_text(text: str) -> bool:
    """Return whether a canonical text is that of a constant other than NULL."""
    return _CONSTANT.fullmatch(text) is not None and not text.startswith("None:")


def condition_texts(condition: Expr, names: Sequence[str], function: str = "AND") -> list[str]:
    """Return the canonical texts of the conditions that AND, or another function, joins.

    Comparisons of one value with constants are a list: `a = 1 OR a = 2` is `IN(a, 1, 2)`.
    """
    comparison = _LISTS[function]
    texts: dict[str, None] = {}
    lists: dict[str, set[str]] = {}
    for part in _parts(condition, function):
        compared = _compared_with_constants(part, comparison)
        if compared is None:
            texts[canonical_text(part, names)] = None
        else:
            value, constants = compared
            lists.setdefault(canonical_text(value, names), set()).update(
                canonical_text(constant, names) for constant in constants
            )
    return [*texts, *(_membership(value, constants, function) for value, constants in lists.items())]


def _write_literal(literal: Literal) -> str:
    match literal.value:
        case str(text):
            quote = '"' if "'" in text and '"' not in text else "'"
            return quote + "".join(_escape(character, quote) for character in text) + quote
        case bytes(content):
            return repr(content)
        case value:
            return f"{value}:{literal.type.sql}"


def _escape(character: str, quote: str) -> str:
    """Return a character of a string as in a Python literal."""
    if character in ("\\", quote):
        return "\\" + character
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\x{ord(character):02x}" if character < " " or character == "\x7f" else character


def _membership(value: str, constants: set[str], function: str) -> str:
    """Return the text of a comparison with each of some constants."""
    if len(constants) == 1:
        return f"{_LISTS[function]}({value}, {constants.pop()})"
    text = f"IN({', '.join([value, *sorted(constants)])})"
    return text if function == "OR" else f"NOT({text})"


def _compared_with_constants(part: Expr, comparison: str) -> tuple[Expr, Sequence[Expr]] | None:
    """Return the value and the constants of `=` and IN, or of `<>` and NOT IN."""
    match part:
        case Call(function="NOT", args=(Call(function="IN", args=(value, *constants)),)) if comparison == "<>":
            pass
        case Call(function="IN", args=(value, *constants)) if comparison == "=":
            pass
        case Call(args=(left, right)) if part.function == comparison:
            value, constants = (right, [left]) if _is_constant(left) else (left, [right])
        case _:
            return None
    return (value, constants) if all(map(_is_constant, constants)) and not _is_constant(value) else None


def _parts(condition: Expr, function: str) -> Iterator[Expr]:
    """Yield the operands of nested calls of AND or OR; BETWEEN is an AND.

    A chain may be as long as a user's IN list, so this does not recurse.
    """
    waiting = [condition]
    while waiting:
        match waiting.pop():
            case Call(function=joined, args=args) if joined == function:
                waiting += reversed(args)
            case Call(function="BETWEEN", args=(value, low, high), type=type_) if function == "AND":
                yield Call(function=">=", args=(value, low), type=type_)
                yield Call(function="<=", args=(value, high), type=type_)
            case part:
                yield part


def _negate(operand: Expr, names: Sequence[str]) -> str:
    match operand:
        case Call(function="NOT", args=(condition,)):
            return canonical_text(condition, names)
        case Call(function="IN", args=(value, *values)) if all(map(_is_constant, values)):
            return _membership(canonical_text(value, names), {canonical_text(each, names) for each in values}, "AND")
        case Call(function="IS NULL", args=(value,)):
            return f"IS NOT NULL({canonical_text(value, names)})"
        case Call(function="IS NOT NULL", args=(value,)):
            return f"IS NULL({canonical_text(value, names)})"
        case Call(args=(left, right)) if operand.function in _NEGATED and not _may_be_nan(left, right):
            negated = Call(function=_NEGATED[operand.function], args=(left, right), type=operand.type)
            return canonical_text(negated, names)
        case _:
            return f"NOT({canonical_text(operand, names)})"


def _operands(expr: Call) -> Iterator[Expr]:
    """Yield the operands of a sum or a product.

    Whole numbers wrap around, so nested calls of one type can be computed in any order.
    """
    for part in expr.args:
        nested = isinstance(part, Call) and part.function == expr.function and part.type.same_as(expr.type)
        if nested and isinstance(expr.type, IntegerType):
            assert isinstance(part, Call)
            yield from _operands(part)
        else:
            yield part


def _commutes(type_: DataType) -> bool:
    return isinstance(type_, IntegerType | DecimalType | FloatingType)


def _rank(expr: Expr, text: str) -> tuple[bool, str]:
    """Return the position among operands that may be in any order: constants come last."""
    return _is_constant(expr), text


def _is_constant(expr: Expr) -> bool:
    match expr:
        case Literal():
            return True
        case Call(function="CAST" | "UNARY_MINUS" | "-", args=(operand,)):
            return _is_constant(operand)
        case _:
            return False


def _may_be_nan(*operands: Expr) -> bool:
    return any(isinstance(each.type, FloatingType) for each in operands)


def _join(expressions: Iterable[Expr], names: Sequence[str]) -> str:
    return ", ".join(canonical_text(each, names) for each in expressions)
