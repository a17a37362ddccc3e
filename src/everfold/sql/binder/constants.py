"""Literals of values that are not in the script."""

from __future__ import annotations

from everfold.plan.expressions import Literal
from everfold.sql.functions import type_of_literal
from everfold.types import BOOLEAN, INT, NULL, DataType


def string_literal(value: str) -> Literal:
    """Return a character literal."""
    return Literal(type=type_of_literal(value), value=value)


def boolean_literal(value: bool) -> Literal:
    """Return TRUE or FALSE."""
    return Literal(type=BOOLEAN.as_nullable(False), value=value)


def int_literal(value: int) -> Literal:
    """Return an INT literal."""
    return Literal(type=INT.as_nullable(False), value=value)


def null_literal(of: DataType = NULL) -> Literal:
    """Return NULL of a type."""
    return Literal(type=of.as_nullable(), value=None)
