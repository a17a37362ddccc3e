"""Aggregate functions. Importing the package registers every entry; none of them imports an engine before its kernels are used."""

from __future__ import annotations

from everfold.aggregates import algebraic, distributive

__all__ = ["algebraic", "distributive"]
