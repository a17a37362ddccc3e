"""Rules about the aggregate calls of an operator: the same for groups, windows and OVER. Source: both seeds on state compatibility."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everfold.compat.rules.rule import Change, Said, rule
from everfold.compat.shape import CallShape
from everfold.compat.verdict import Verdict


@rule("AGG001", Verdict.UNKNOWN)
def python_functions(change: Change) -> Iterator[Said]:
    """The old query or the new one calls an aggregate function in Python.

    What its accumulator holds is the function's own business: nobody can tell whether the kept one still means the same. A query that has not changed is
    not judged, so such a job restarts.

    Way out: change the query in a job without the function, or take a new `--state` folder.
    """
    for call in (*change.new.calls, *change.dropped):
        if call.python:
            yield Said(f"{call.label} is a Python function", call.span if call in change.new.calls else change.new.span)


def distinct_of(calls: Sequence[CallShape]) -> tuple[CallShape, ...]:
    """The calls with DISTINCT, in order."""
    return tuple(call for call in calls if call.distinct)


@rule("AGG002", Verdict.INCOMPATIBLE)
def other_distinct_calls(change: Change) -> Iterator[Said]:
    """A call with DISTINCT was added, dropped or changed, or such calls are in another order.

    The reference keeps the values of DISTINCT calls under their number among each other, so each of these changes makes them unreadable. everfold keeps them by
    what they mean: with `--rules extended` a DISTINCT call comes and goes as any other.

    Way out: leave these calls as they were, judge by `--rules extended`, or take a new `--state` folder.
    """
    old, new = distinct_of(change.old.calls), distinct_of(change.new.calls)
    if old == new or change.terms.extended:
        return
    said = False
    for call in new:
        if call not in old:
            said = True
            yield Said(f"{call.label} is new, and has DISTINCT", call.span)
    for call in old:
        if call not in new:
            said = True
            yield Said(f"{call.label} is gone, and had DISTINCT", change.new.span)
    if not said:
        yield Said("the calls with DISTINCT are in another order", new[0].span)


@rule("AGG003", Verdict.FULLY)
def other_order(change: Change) -> Iterator[Said]:
    """The aggregates are the same, in another order.

    Each keeps its state: it is found by what the aggregate means, not by where it stands.
    """
    if {*change.old.calls} == {*change.new.calls} and change.old.calls != change.new.calls:
        yield Said("the aggregates are in another order", change.new.span)


@rule("AGG004", Verdict.INCOMPATIBLE)
def nothing_kept(change: Change) -> Iterator[Said]:
    """No aggregate is left of the old query: all were dropped or changed, or there was none.

    There is no state that the new query could go on with.

    Way out: keep one of the old aggregates, or take a new `--state` folder.
    """
    if not change.kept and (change.added or change.dropped):
        was = "it had no aggregates" if not change.old.calls else "none of its aggregates is kept"
        yield Said(was, change.new.span)


@rule("AGG005", Verdict.INCOMPATIBLE)
def added_over_changes(change: Change) -> Iterator[Said]:
    """An aggregate was added over rows that may be taken back: over another aggregation, or over a table whose rows change.

    Rows that it never took in could be taken back from it, and its result would be wrong for ever.

    Way out: compute it in a job of its own.
    """
    if change.kept and change.new.input.updating:
        for call in change.added:
            yield Said(f"{call.label} is new, over rows that may be taken back", call.span)


@rule("AGG006", Verdict.PARTIALLY)
def added(change: Change) -> Iterator[Said]:
    """An aggregate was added, or computed otherwise, which is a dropped and an added one.

    The others keep their state. It starts with the rows that come after the restart, and its result is of these alone.
    """
    if change.kept and not change.new.input.updating:
        for call in change.added:
            yield Said(f"{call.label} is new: it starts at the restart", call.span)


@rule("AGG007", Verdict.FULLY)
def dropped(change: Change) -> Iterator[Said]:
    """An aggregate was dropped.

    Its state is given up, the others keep theirs. Taking it back later starts it anew.
    """
    if change.kept:
        for call in change.dropped:
            yield Said(f"{call.label} is gone: its state is given up", change.new.span)


@rule("AGG008", Verdict.FULLY)
def derived(change: Change) -> Iterator[Said]:
    """An aggregate was added whose state follows from that of another one. Only with `--rules extended`.

    SUM and AVG of the same values keep the same, and so do the variances and standard deviations; COUNT of these values is a part of each. The new one counts
    since the other did, and the other may be dropped by the same change.
    """
    for call, source in change.derived.items():
        yield Said(f"{call.label} is new, and follows from {source.label}", call.span)


@rule("AGG009", Verdict.FULLY)
def recounted(change: Change) -> Iterator[Said]:
    """An aggregate was added over another aggregation, whose rows may be taken back. Only with `--rules extended`.

    The operators below have these rows in their state. When the job goes on they give them again, to the new aggregate alone: so it is complete, without any history. Not one that depends on the
    order of rows (FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG), and not where state is forgotten (`table.exec.state.ttl`).
    """
    for call in change.recounted:
        yield Said(f"{call.label} is new: it is computed of the rows below as they are", call.span)


CALLS = (other_distinct_calls, other_order, nothing_kept, added_over_changes, added, dropped, derived, recounted)
"""In the order in which they decide; `python_functions` goes before all others."""
