"""Scalar functions and operators: typed by Flink's rules, rendered as Spark SQL and DuckDB SQL."""

from everfold.sql.functions.casts import cast
from everfold.sql.functions.coercion import common_type, implicit_cast, least_restrictive, type_of_literal
from everfold.sql.functions.registry import build, entries, is_deterministic, lookup, names

__all__ = [
    "build",
    "cast",
    "common_type",
    "entries",
    "implicit_cast",
    "is_deterministic",
    "least_restrictive",
    "lookup",
    "names",
    "type_of_literal",
]
