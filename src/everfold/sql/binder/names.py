"""Functions that are no scalar functions: aggregates, and which window functions Flink has."""

from __future__ import annotations

from everfold.aggregates import registry

GROUPING_FUNCTIONS = frozenset({"GROUPING", "GROUPING_ID", "GROUP_ID"})
"""Functions of the grouping set that a row is of."""

OVER_FUNCTIONS = frozenset({
    "CUME_DIST", "DENSE_RANK", "LAG", "LEAD", "NTH_VALUE", "NTILE", "PERCENT_RANK", "RANK", "ROW_NUMBER",
})  # fmt: skip
"""Functions that need OVER."""

LEGACY_WINDOWS = frozenset({
    *("TUMBLE", "HOP", "SESSION"),
    *(f"{kind}_{part}" for kind in ("TUMBLE", "HOP", "SESSION") for part in ("START", "END", "ROWTIME", "PROCTIME")),
})  # fmt: skip
"""Group window functions: what stood in GROUP BY before there were window TVFs, and their auxiliaries."""


def aggregate_named(name: str) -> registry.Aggregate | None:
    """The aggregate of Flink's of that name in capitals, for groups."""
    found = over_function(name)
    return None if found is None or found.over_only else found


def over_function(name: str) -> registry.Aggregate | None:
    """The function of Flink's of that name in capitals, for OVER."""
    found = registry.lookup(name)
    return found if found is not None and found.dialect == "flink" else None


def aggregate_names() -> tuple[str, ...]:
    """All aggregates of Flink's."""
    return registry.names()


def is_aggregate(name: str) -> bool:
    """Whether a function of that name is an aggregate, or tells of its grouping set."""
    return name in GROUPING_FUNCTIONS or aggregate_named(name) is not None
