"""Operators and their binding powers.

The numbers are Calcite's, so that an expression means the same as in Flink: `||` binds as `*`,
IS NULL less tightly than `=`.
"""

from __future__ import annotations

OR, AND, NOT, IS, COMPARE, RANGE, DISTINCT_FROM, SUM, PRODUCT, SIGN = 22, 24, 26, 28, 30, 32, 35, 40, 60, 80

SYMBOLS = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "%", "||"), PRODUCT),
}
"""The power of each operator that is a symbol; all are left-associative."""

CHAINS = {"OR": OR, "AND": AND}
"""The power of each operator whose operands form one chain."""

POWERS = {
    **SYMBOLS,
    **CHAINS,
    "OVERLAPS": COMPARE,
    "IS DISTINCT FROM": DISTINCT_FROM,
    "IS NOT DISTINCT FROM": DISTINCT_FROM,
}
"""The power of each operator between two operands."""
