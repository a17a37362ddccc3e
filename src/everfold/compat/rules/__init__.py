"""The compatibility rules.

Each is a function with a permanent code; its docstring is its page (`everfold explain GRP001`).
"""

from __future__ import annotations

from everfold.compat.rules import aggregate_calls, group, inputs, over, rank, topology, window
from everfold.compat.rules.rule import REFERENCE, Change, CompatOptions, Observation, Rule

__all__ = ["OF_KIND", "REFERENCE", "Change", "CompatOptions", "Observation", "Rule", "all_rules", "find_rule"]

OF_KIND = {
    "GroupAggregate": group.RULES,
    "WindowAggregate": window.AGGREGATE,
    "WindowTableFunction": window.ROWS,
    "WindowEmit": window.EMISSION,
    "OverAggregate": over.RULES,
    "Rank": rank.RANK,
    "ChangelogNormalize": rank.LAST_ROWS,
}
"""The rules for each kind of operator, in the order in which they decide."""


def all_rules() -> tuple[Rule, ...]:
    """Return every rule once, sorted by code."""
    found = (
        *topology.RULES,
        *inputs.RULES,
        aggregate_calls.python_functions,
        *aggregate_calls.CALLS,
        *(each for of in OF_KIND.values() for each in of),
    )
    return tuple(sorted(dict.fromkeys(found), key=lambda each: each.code))


def find_rule(code: str) -> Rule | None:
    """Return the rule with a code, or None."""
    return next((each for each in all_rules() if each.code == code.upper()), None)
