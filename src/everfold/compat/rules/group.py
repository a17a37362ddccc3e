"""Rules about GROUP BY. Source: the seed on state compatibility of group aggregates."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Said, rule, sentence_of
from everfold.compat.verdict import Verdict


@rule("GRP001", Verdict.INCOMPATIBLE)
def other_keys(change: Change) -> Iterator[Said]:
    """The fields of GROUP BY have changed: one was added, dropped, computed otherwise, or they are in another order.

    State is kept by these fields: with others no group can be found again. Their order is free with `--rules extended`.

    Way out: run the new query with a new `--state` folder.
    """
    if not change.same_keys:
        yield Said(
            f"the groups were made by {sentence_of(change.old.keys)} and are to be made by {sentence_of(change.new.keys)}",
            change.new.span,
        )


@rule("GRP002", Verdict.INCOMPATIBLE)
def other_emission(change: Change) -> Iterator[Said]:
    """The settings for early and late results have changed (`table.exec.emit.*`).

    With them a window is kept for as long as it takes rows; what was kept under other settings may be gone already.

    Way out: set them back, or run the new query with a new `--state` folder.
    """
    if change.old.emission != change.new.emission:
        yield Said("early and late results of its windows are set otherwise", change.new.span)


RULES = (python_functions, other_keys, *INPUTS, other_emission, *CALLS)
"""In the order in which they decide."""
