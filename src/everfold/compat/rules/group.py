"""Rules for GROUP BY.

Source: the seed on state compatibility of group aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Observation, format_expressions, rule
from everfold.compat.verdict import Verdict


@rule("GRP001", Verdict.INCOMPATIBLE)
def other_keys(change: Change) -> Iterator[Observation]:
    """The fields of GROUP BY have changed: a field was added, dropped or computed differently, or
    their order has changed.

    State is stored by these fields, so with different fields no group can be found. With
    `--rules extended` their order does not matter.

    To resolve this, run the new query with a new `--state` folder.
    """
    if not change.has_same_keys:
        yield Observation(
            f"the grouping keys changed from {format_expressions(change.old.keys)}"
            f" to {format_expressions(change.new.keys)}",
            change.new.span,
        )


@rule("GRP002", Verdict.INCOMPATIBLE)
def other_emission(change: Change) -> Iterator[Observation]:
    """The settings for early and late results have changed (`table.exec.emit.*`).

    With these settings a window is kept for as long as it accepts rows. State that was kept under
    different settings may already be removed.

    To resolve this, restore the settings, or run the new query with a new `--state` folder.
    """
    if change.old.emission != change.new.emission:
        yield Observation("the settings for early and late results of its windows have changed", change.new.span)


RULES = (python_functions, other_keys, *INPUTS, other_emission, *CALLS)
"""The rules, in the order in which they decide."""
