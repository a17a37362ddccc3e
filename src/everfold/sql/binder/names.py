"""Functions that are no scalar functions: which aggregates and window functions Flink has beside those that are registered."""

from __future__ import annotations

from everfold.aggregates import registry

LATER_AGGREGATES = frozenset({
    "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "COLLECT", "FIRST_VALUE", "GROUPING", "GROUPING_ID", "GROUP_ID", "JSON_ARRAYAGG",
    "JSON_OBJECTAGG", "LAST_VALUE", "LISTAGG", "PERCENTILE", "SINGLE_VALUE", "STDDEV", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE",
    "VAR_POP", "VAR_SAMP",
})  # fmt: skip
"""Flink's aggregates that may not be registered (yet)."""

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
    """The registered aggregate of that name in capitals."""
    return registry.lookup(name)


def aggregate_names() -> tuple[str, ...]:
    """All registered aggregates."""
    return registry.names()


def is_aggregate(name: str) -> bool:
    """Whether a function of that name is an aggregate, registered or not."""
    return name in LATER_AGGREGATES or aggregate_named(name) is not None
