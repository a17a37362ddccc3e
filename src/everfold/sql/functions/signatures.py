"""Signatures of functions as strings: ``STRING INT INT? -> STRING``.

A parameter is a kind, with `?` if it is optional (only the last ones), or with `+` or `*` on the
last one if it repeats. A result is the name of a type, `=0` (the type of argument 0) or `VARCHAR 0`
(a VARCHAR with the maximum length of argument 0), followed by NOT NULL if it is never NULL. Kinds
that convert (INT, BIGINT, DOUBLE, STRING) accept what Flink casts implicitly.
"""

from __future__ import annotations

from collections.abc import Callable

from everfold import types
from everfold.plan.expressions import Expr, Literal
from everfold.sql.functions.coercion import convert_to, kind
from everfold.sql.functions.entry import Args, Rule, Typed
from everfold.types import DataType, IntegerType, NumericType, StringType

Accept = Callable[[Expr], "Expr | None"]


def _to(type: DataType, *kinds: str) -> Accept:
    def accept(arg: Expr) -> Expr | None:
        return convert_to(arg, type) if kind(arg.type) in (*kinds, "null") else None

    return accept


def _is(*kinds: str, null: DataType | None = None) -> Accept:
    def accept(arg: Expr) -> Expr | None:
        if kind(arg.type) == "null" and null is not None:
            return convert_to(arg, null)
        return arg if kind(arg.type) in kinds else None

    return accept


def _integer(type: IntegerType) -> Accept:
    def accept(arg: Expr) -> Expr | None:
        if kind(arg.type) == "null" or (isinstance(arg.type, IntegerType) and arg.type.bits <= type.bits):
            return convert_to(arg, type)
        return None

    return accept


def _numeric(arg: Expr) -> Expr | None:
    if kind(arg.type) == "null":
        return convert_to(arg, types.INT)
    return arg if isinstance(arg.type, NumericType) else None


def _symbol(arg: Expr) -> Expr | None:
    return arg if isinstance(arg, Literal) and isinstance(arg.value, str) else None


def _boolean(arg: Expr) -> Expr | None:
    return _to(types.BOOLEAN, "boolean")(arg)


KINDS: dict[str, Accept] = {
    "ANY": lambda arg: arg,
    "STRING": _is("string", null=types.STRING),
    "TEXT": _symbol,
    "INT": _integer(types.INT),
    "BIGINT": _integer(types.BIGINT),
    "NUMERIC": _numeric,
    "INTEGER": _is("integer", null=types.INT),
    "EXACT": _is("integer", "decimal", null=types.INT),
    "DOUBLE": _to(types.DOUBLE, "integer", "decimal", "floating"),
    "BOOLEAN": _boolean,
    "BYTES": _is("bytes", null=types.BYTES),
    "DATE": _is("date", null=types.DATE),
    "TIME": _is("time", null=types.TIME),
    "TIMESTAMP": _is("timestamp", null=types.TIMESTAMP3),
    "LTZ": _is("ltz", null=types.TIMESTAMP_LTZ3),
    "MILLIS": _is("millis"),
    "MONTHS": _is("months"),
    "ARRAY": _is("array"),
    "MAP": _is("map"),
}

RESULTS: dict[str, DataType] = {
    "STRING": types.STRING,
    "INT": types.INT,
    "BIGINT": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "BOOLEAN": types.BOOLEAN,
    "BYTES": types.BYTES,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP3": types.TIMESTAMP3,
    "LTZ3": types.TIMESTAMP_LTZ3,
    "ARRAY<STRING>": types.ArrayType(element=types.STRING),
    "MAP<STRING, STRING>": types.MapType(key=types.STRING, value=types.STRING),
}


def _parse_signature(text: str) -> tuple[list[tuple[Accept, bool]], str, str]:
    """Parse a signature: parameters (each with whether it is optional), repeat mark, result."""
    parameters, _, result = text.partition("->")
    accepts: list[tuple[Accept, bool]] = []
    repeat = ""
    for word in parameters.split():
        assert not repeat, f"only the last parameter repeats: {text}"
        mark = word[-1] if word[-1] in "?+*" else ""
        accepts.append((KINDS[word.rstrip("?+*")], mark in ("?", "*")))
        repeat = mark if mark in ("+", "*") else ""
    return accepts, repeat, result.strip()


def _result(text: str, args: Args) -> DataType:
    if text.endswith(" NOT NULL"):
        return _result(text.removesuffix(" NOT NULL"), args).as_nullable(False)
    if text.startswith("="):
        return args[int(text[1:])].type
    if text.startswith("VARCHAR "):
        source = args[int(text.split()[1])].type
        return StringType(length=source.length) if isinstance(source, StringType) else types.STRING
    if text.startswith("CHAR("):
        return StringType(length=int(text[5:-1]), fixed=True)
    return RESULTS[text]


def _accept_args(parsed: tuple[list[tuple[Accept, bool]], str, str], args: Args) -> Typed | None:
    accepts, repeat, result = parsed
    least = sum(not optional for _, optional in accepts)
    if len(args) < least or (not repeat and len(args) > len(accepts)):
        return None
    taken: list[Expr] = []
    for at, arg in enumerate(args):
        accepted = accepts[min(at, len(accepts) - 1)][0](arg)
        if accepted is None:
            return None
        taken.append(accepted)
    return tuple(taken), _result(result, tuple(taken))


def signature(*texts: str) -> Rule:
    """Return the typing rule for these signatures; the first that accepts the arguments applies."""
    parsed = [_parse_signature(text) for text in texts]

    def rule(args: Args) -> Typed | None:
        return next((typed for each in parsed if (typed := _accept_args(each, args)) is not None), None)

    return rule
