"""Aggregate functions.

Importing the package registers every entry. No entry imports an engine before its kernels are used.
"""

from __future__ import annotations

from everfold.aggregates import (
    algebraic,
    approximate,
    bags,
    distributive,
    extremes,
    frequencies,
    ranking,
    sequences,
    single_value,
    variance,
)

__all__ = [
    "algebraic",
    "approximate",
    "bags",
    "distributive",
    "extremes",
    "frequencies",
    "ranking",
    "sequences",
    "single_value",
    "variance",
]
