"""Calls that are new and yet have their state: it follows from what another call keeps."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates.kin import relatives
from everfold.compat.shape import CallShape


def derived(call: CallShape, old: Sequence[CallShape]) -> CallShape | None:
    """The old call out of whose state that of a new one follows; of several the one that counts for longest. None if there is none."""
    if call.python:
        return None
    texts = relatives(call.text, call.function)
    return min((each for each in old if each.text in texts), key=lambda each: each.since, default=None)
