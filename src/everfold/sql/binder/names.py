"""Names of non-scalar functions: aggregate functions, window functions and group windows."""

from __future__ import annotations

from everfold.aggregates import registry

GROUPING_FUNCTIONS = frozenset({"GROUPING", "GROUPING_ID", "GROUP_ID"})
"""Functions that describe the grouping set of a row."""

OVER_FUNCTIONS = frozenset({
    "CUME_DIST", "DENSE_RANK", "LAG", "LEAD", "NTH_VALUE", "NTILE", "PERCENT_RANK", "RANK", "ROW_NUMBER",
})  # fmt: skip
"""Functions that need OVER."""

LEGACY_WINDOWS = frozenset({
    *("TUMBLE", "HOP", "SESSION"),
    *(f"{kind}_{part}" for kind in ("TUMBLE", "HOP", "SESSION") for part in ("START", "END", "ROWTIME", "PROCTIME")),
})  # fmt: skip
"""Group window functions of GROUP BY, the predecessors of window TVFs, and their auxiliaries."""


def find_aggregate(name: str) -> registry.Aggregate | None:
    """Return Flink's aggregate function of a name in capitals, for groups."""
    found = find_over_function(name)
    return None if found is None or found.is_window_function else found


def find_over_function(name: str) -> registry.Aggregate | None:
    """Return Flink's function of a name in capitals, for OVER."""
    found = registry.lookup(name)
    return found if found is not None and found.dialect == "flink" else None


def aggregate_names() -> tuple[str, ...]:
    """Return the names of all aggregate functions of Flink."""
    return registry.names()


def is_aggregate(name: str) -> bool:
    """Return whether a name is that of an aggregate function or of a grouping function."""
    return name in GROUPING_FUNCTIONS or find_aggregate(name) is not None
