"""Operators and their binding powers.

The numbers are Calcite's, so that an expression means the same as in Flink: `||` binds as `*`,
IS NULL less tightly than `=`.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

OR, AND, NOT, IS, COMPARE, RANGE, DISTINCT_FROM, SUM, PRODUCT, SIGN = 22, 24, 26, 28, 30, 32, 35, 40, 60, 80


class Infix(NamedTuple):
    """An operator between two operands."""

    power: int
    node: type[exp.Expression]


INFIX: dict[str, Infix] = {
    "=": Infix(COMPARE, exp.EQ),
    "<>": Infix(COMPARE, exp.NEQ),
    "!=": Infix(COMPARE, exp.NEQ),
    "<": Infix(COMPARE, exp.LT),
    "<=": Infix(COMPARE, exp.LTE),
    ">": Infix(COMPARE, exp.GT),
    ">=": Infix(COMPARE, exp.GTE),
    "+": Infix(SUM, exp.Add),
    "-": Infix(SUM, exp.Sub),
    "*": Infix(PRODUCT, exp.Mul),
    "/": Infix(PRODUCT, exp.Div),
    "%": Infix(PRODUCT, exp.Mod),
    "||": Infix(PRODUCT, exp.DPipe),
}
"""Symbols; all are left-associative."""

CHAINS: dict[str, Infix] = {"OR": Infix(OR, exp.Or), "AND": Infix(AND, exp.And)}
"""Keywords whose operands form one chain."""
