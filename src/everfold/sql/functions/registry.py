"""The registry of scalar functions: finds an entry by name, types a call, and lists what there is."""

from __future__ import annotations

from dataclasses import replace

from everfold.errors import Span, SqlError, nearest
from everfold.plan.expressions import Call, Expr, Literal
from everfold.sql.functions import (
    arithmetic,
    collections,
    comparison,
    conditional,
    encoding,
    json,
    logic,
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
    json.FUNCTIONS,
    collections.FUNCTIONS,
)


def _indexed() -> dict[str, Function]:
    index: dict[str, Function] = {}
    for family in _FAMILIES:
        for entry in family:
            for name in (entry.name, *entry.aliases):
                assert name not in index, f"{name} is registered twice"
                index[name] = entry
    return index


_REGISTRY = _indexed()


def lookup(name: str) -> Function | None:
    """The entry of a function or operator by its name in upper case, None if there is none."""
    return _REGISTRY.get(name)


def names() -> tuple[str, ...]:
    """The names by which functions are called, sorted; operators are left out."""
    return tuple(sorted(name for name, entry in _REGISTRY.items() if not entry.operator or name == "MOD"))


def entries() -> tuple[Function, ...]:
    """All entries, in the order of their families."""
    return tuple(entry for family in _FAMILIES for entry in family)


def is_deterministic(name: str) -> bool:
    """Whether a function gives the same value for the same arguments, so that a replayed batch repeats it."""
    entry = lookup(name)
    return entry is None or entry.deterministic


def build(name: str, args: tuple[Expr, ...], span: Span | None = None) -> Expr:
    """The call of a function or operator by its upper-case name: arguments with their implicit casts, typed by Flink's rules.

    Raises SqlError `unknown-function` and `wrong-arguments`.
    """
    entry = lookup(name)
    if entry is None:
        raise SqlError.of("unknown-function", f"no function is named `{name}`", span, nearest(name, names()))
    if any(isinstance(arg.type, AnyType) for arg in args):
        return Call(function=entry.name, args=args, type=ANY, span=span)
    typed = entry.rule(args)
    if typed is None:
        shown = ", ".join(_shown(arg) for arg in args)
        usage = f"it takes {entry.usage}" if entry.usage else None
        raise SqlError.of("wrong-arguments", f"`{name}` does not take ({shown})", span, usage)
    if isinstance(typed, tuple):
        return Call(function=entry.name, args=typed[0], type=typed[1], span=span)
    return replace(typed, span=span)


def _shown(arg: Expr) -> str:
    if isinstance(arg, Literal) and arg.value is None:
        return "NULL"
    return arg.type.sql
