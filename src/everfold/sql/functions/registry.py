"""The registry of scalar functions: look up entries, build typed calls, list names."""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Span, SqlError, suggest_name
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions import (
    arithmetic,
    collections,
    comparison,
    conditional,
    encoding,
    hash_code,
    json,
    logic,
    maps,
    numeric,
    regex,
    string,
    temporal,
    temporal_arithmetic,
)
from everfold.sql.functions.casts import FUNCTIONS as CASTS
from everfold.sql.functions.entry import Function
from everfold.types import ANY, AnyType

_FAMILIES = (
    arithmetic.FUNCTIONS,
    comparison.FUNCTIONS,
    logic.FUNCTIONS,
    conditional.FUNCTIONS,
    temporal_arithmetic.FUNCTIONS,
    CASTS,
    numeric.FUNCTIONS,
    string.FUNCTIONS,
    regex.FUNCTIONS,
    temporal.FUNCTIONS,
    encoding.FUNCTIONS,
    hash_code.FUNCTIONS,
    json.FUNCTIONS,
    collections.FUNCTIONS,
    maps.FUNCTIONS,
)


def _index_entries() -> dict[str, Function]:
    index: dict[str, Function] = {}
    for family in _FAMILIES:
        for entry in family:
            for name in (entry.name, *entry.aliases):
                assert name not in index, f"{name} is registered twice"
                index[name] = entry
    return index


_REGISTRY = _index_entries()


def lookup(name: str) -> Function | None:
    """Return the entry of a function or operator by its upper-case name, None if there is none."""
    return _REGISTRY.get(name)


def names() -> tuple[str, ...]:
    """Return the sorted names of functions, without operators."""
    return tuple(sorted(name for name, entry in _REGISTRY.items() if not entry.operator or name == "MOD"))


def entries() -> tuple[Function, ...]:
    """Return all entries, in the order of their families."""
    return tuple(entry for family in _FAMILIES for entry in family)


def is_deterministic(name: str) -> bool:
    """Return whether a function returns the same value for the same arguments.

    A replayed batch then repeats the value.
    """
    entry = lookup(name)
    return entry is None or entry.deterministic


def build(name: str, args: tuple[Expr, ...], span: Span | None = None) -> Expr:
    """Build the call of a function or operator by its upper-case name, typed by Flink's rules.

    The arguments get their implicit casts.

    Raises SqlError `unknown-function` and `wrong-arguments`.
    """
    entry = lookup(name)
    if entry is None:
        raise SqlError.of("unknown-function", f"no function is named `{name}`", span, suggest_name(name, names()))
    if any(isinstance(arg.type, AnyType) for arg in args):
        return Call(function=entry.name, args=args, type=ANY, span=span)
    typed = entry.rule(args)
    if typed is None:
        shown = ", ".join(_describe_arg(arg) for arg in args)
        usage = f"it takes {entry.usage}" if entry.usage else None
        raise SqlError.of("wrong-arguments", f"`{name}` does not take ({shown})", span, usage)
    if isinstance(typed, tuple):
        return Call(function=entry.name, args=typed[0], type=typed[1], span=span)
    return replace(typed, span=span)


def _describe_arg(arg: Expr) -> str:
    if isinstance(arg, Literal) and arg.value is None:
        return "NULL"
    return arg.type.sql
