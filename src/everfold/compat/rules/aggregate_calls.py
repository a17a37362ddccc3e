"""Rules for the aggregate calls of an operator, shared by groups, windows and OVER.

Source: both seeds on state compatibility.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everfold.compat.rules.rule import Change, Observation, rule
from everfold.compat.shape import CallShape, OperatorShape
from everfold.compat.verdict import Verdict
from everfold.plan.canonical import NO_CLOCK


@rule("AGG001", Verdict.UNKNOWN)
def python_functions(change: Change) -> Iterator[Observation]:
    """The old or the new query calls a Python aggregate function.

    Only the function itself knows what its accumulator means, so everfold cannot tell whether the
    old accumulator is still valid. If only what is computed from the results has changed, in
    SELECT or HAVING, the operator is the same, and the change is fully compatible.

    To resolve this, use a job without the function, or a new `--state` folder.
    """
    for call in (*change.new.calls, *change.dropped_calls):
        if call.python:
            yield Observation(
                f"{call.label} is a Python function", call.span if call in change.new.calls else change.new.span
            )


def distinct_of(calls: Sequence[CallShape]) -> tuple[CallShape, ...]:
    """Return the calls with DISTINCT, in order."""
    return tuple(call for call in calls if call.distinct)


@rule("AGG002", Verdict.INCOMPATIBLE)
def other_distinct_calls(change: Change) -> Iterator[Observation]:
    """A call with DISTINCT was added, dropped or changed, or the order of such calls has changed.

    The reference stores the values of DISTINCT calls under the position of the call among the
    DISTINCT calls, so each of these changes makes them unreadable. everfold stores them by meaning:
    with `--rules extended` a DISTINCT call can be added or dropped like any other.

    To resolve this, leave these calls unchanged, use `--rules extended`, or use a new `--state`
    folder.
    """
    old, new = distinct_of(change.old.calls), distinct_of(change.new.calls)
    if old == new or change.options.extended:
        return
    found = False
    for call in new:
        if call not in old:
            found = True
            yield Observation(f"{call.label} is new, and has DISTINCT", call.span)
    for call in old:
        if call not in new:
            found = True
            yield Observation(f"{call.label} was dropped, and had DISTINCT", change.new.span)
    if not found:
        yield Observation("the calls with DISTINCT are in a different order", new[0].span)


@rule("AGG003", Verdict.FULLY)
def other_order(change: Change) -> Iterator[Observation]:
    """The aggregates are the same, in a different order.

    Each keeps its state, which is found by the meaning of the aggregate and not by its position.
    """
    if {*change.old.calls} == {*change.new.calls} and change.old.calls != change.new.calls:
        yield Observation("the aggregates are in a different order", change.new.span)


@rule("AGG004", Verdict.INCOMPATIBLE)
def no_call_kept(change: Change) -> Iterator[Observation]:
    """No aggregate of the old query is left: all were dropped or changed, or there were none.

    The new query cannot reuse any state.

    To resolve this, keep one of the old aggregates, or use a new `--state` folder.
    """
    if not change.kept_calls and (change.added_calls or change.dropped_calls):
        reason = "it had no aggregates" if not change.old.calls else "none of its aggregates is kept"
        yield Observation(reason, change.new.span)


@rule("AGG005", Verdict.INCOMPATIBLE)
def call_added_over_updates(change: Change) -> Iterator[Observation]:
    """An aggregate was added over an updating input: another aggregation, or a table whose rows
    change.

    Rows that the new aggregate never received could be retracted from it, and its result would stay
    wrong.

    To resolve this, compute it in a separate job.
    """
    if change.kept_calls and change.new.input.updating:
        for call in change.added_calls:
            yield Observation(f"{call.label} is new, over rows that may be retracted", call.span)


@rule("AGG006", Verdict.PARTIALLY)
def call_added(change: Change) -> Iterator[Observation]:
    """An aggregate was added or changed. A changed aggregate counts as one dropped and one added.

    The other aggregates keep their state. The new one starts with the rows that arrive after the
    restart, and its result covers only these. It is NULL for a group until the group gets a row,
    and in rows of OVER that wait for the watermark at the restart.
    """
    if change.kept_calls and not change.new.input.updating:
        waits = ", and is NULL in rows that wait for the watermark" if _has_waiting_rows(change.new) else ""
        for call in change.added_calls:
            yield Observation(f"{call.label} is new: it starts at the restart{waits}", call.span)


def _has_waiting_rows(operator: OperatorShape) -> bool:
    """Whether rows of OVER wait for the watermark before they are emitted."""
    by_event_time = operator.time != NO_CLOCK and "PROCTIME()" not in operator.order
    return operator.kind == "OverAggregate" and by_event_time


@rule("AGG007", Verdict.FULLY)
def call_dropped(change: Change) -> Iterator[Observation]:
    """An aggregate was dropped.

    Its state is discarded; the other aggregates keep theirs. If the aggregate is added again later,
    it starts from scratch.
    """
    if change.kept_calls:
        for call in change.dropped_calls:
            yield Observation(f"{call.label} was dropped: its state is discarded", change.new.span)


@rule("AGG008", Verdict.FULLY)
def call_derived(change: Change) -> Iterator[Observation]:
    """An aggregate was added whose state can be derived from that of another one. Only with
    `--rules extended`.

    SUM and AVG of the same values have the same state, and so have the variances and standard
    deviations; COUNT of these values is part of each. The new aggregate covers the same rows as the
    one that it is derived from, which may be dropped in the same change.
    """
    for call, source in change.derived_calls.items():
        yield Observation(f"{call.label} is new, and derived from {source.label}", call.span)


@rule("AGG009", Verdict.FULLY)
def call_recounted(change: Change) -> Iterator[Observation]:
    """An aggregate was added over another aggregation, whose rows may be retracted. Only with
    `--rules extended`.

    The operators below hold these rows in their state. When the job resumes, they re-emit them to
    the new aggregate only, so it is complete without reading old input. This does not apply to
    aggregates that depend on row order (FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG), nor where
    state expires (`table.exec.state.ttl`).
    """
    for call in change.recounted_calls:
        yield Observation(f"{call.label} is new: it is computed from the current rows below", call.span)


CALLS = (
    other_distinct_calls,
    other_order,
    no_call_kept,
    call_added_over_updates,
    call_added,
    call_dropped,
    call_derived,
    call_recounted,
)
"""The rules, in the order in which they decide. `python_functions` comes before all of them."""
