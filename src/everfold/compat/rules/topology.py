"""Rules for operators that were added, dropped or replaced.

Their changes have one side only, so it is the judge that selects them.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.rule import Change, Observation, rule
from everfold.compat.verdict import Verdict


@rule("OPR001", Verdict.INCOMPATIBLE)
def new_operator(change: Change) -> Iterator[Observation]:
    """A stateful operator was added: an aggregation, an OVER or a Top-N that the old query did not
    have.

    It would start without the rows that the operators around it have already processed. With
    `--rules extended` this is allowed next to operators that are kept, or above them, but not below
    them: an operator that is kept would receive other rows than before.

    To resolve this, compute it in a separate job over the result of the old one, or use a new
    `--state` folder.
    """
    yield Observation(f"{change.new.label} is new", change.new.span)


@rule("OPR002", Verdict.INCOMPATIBLE)
def operator_dropped(change: Change) -> Iterator[Observation]:
    """A stateful operator was dropped.

    The remaining operators would receive other rows than before, or the result would be of another
    kind. Dropping a whole INSERT does not affect the other ones: if another one writes the same
    table, or with `--rules extended`, its state is discarded and they continue.

    To resolve this, use a new `--state` folder.
    """
    yield Observation(f"{change.old.label} was dropped")


@rule("OPR004", Verdict.FULLY)
def insert_dropped(change: Change) -> Iterator[Observation]:
    """An INSERT was dropped together with its stateful operator.

    Its state is discarded, and the rows that it has written stay. The other INSERTs of the job have
    their own operators, which keep their state. The last INSERT into a table can be dropped only
    with `--rules extended`.
    """
    yield Observation(f"{change.old.label} was dropped, with its INSERT")


@rule("OPR003", Verdict.INCOMPATIBLE)
def other_kind(change: Change) -> Iterator[Observation]:
    """An operator was replaced by one of another kind, for example a window by a plain group.

    Each kind stores its state in its own format.

    To resolve this, use a new `--state` folder.
    """
    if not change.is_of_complete_sessions:
        yield Observation(f"{change.old.label} was replaced by {change.new.label}", change.new.span)


@rule("OPR005", Verdict.PARTIALLY)
def operator_starts(change: Change) -> Iterator[Observation]:
    """A stateful operator was added next to operators that are kept, or above them. Only with
    `--rules extended`.

    It starts empty and receives the rows that arrive after the restart: from a table that the job
    already reads, the rows from now on; from another table, all rows; from an operator below that
    keeps its state, all rows that this operator emits from now on. A window that is still open
    below arrives complete. The result covers only these rows.
    """
    yield Observation(f"{change.new.label} is new: it starts empty at the restart", change.new.span)


@rule("OPR006", Verdict.INCOMPATIBLE)
def operator_added_over_updates(change: Change) -> Iterator[Observation]:
    """A stateful operator was added over an updating input. Only with `--rules extended`, and only
    where OPR007 does not apply.

    It may read a table whose rows change or windows with early results, or depend on row order
    (such as FIRST_VALUE). Rows that it never received could be retracted from it, and its result
    would stay wrong.

    To resolve this, compute it in a separate job over the result of the old one, or use a new
    `--state` folder.
    """
    yield Observation(f"{change.new.label} is new, over rows that may be retracted", change.new.span)


@rule("OPR007", Verdict.FULLY)
def operator_over_rows(change: Change) -> Iterator[Observation]:
    """A stateful operator was added above one that is kept and has its whole result in its state:
    groups, a Top-N, the last row by key. Only with `--rules extended`.

    The operator below re-emits its rows to the new one only, so the result is the same as if the
    query had always been like this, without reading old input. This does not apply where state
    expires (`table.exec.state.ttl`).
    """
    yield Observation(f"{change.new.label} is new: it starts with the current rows below", change.new.span)


@rule("OPR008", Verdict.FULLY)
def sessions_complete(change: Change) -> Iterator[Observation]:
    """A GROUP BY with `window_start` and `window_end` of SESSION, from a job of an earlier release.

    Earlier releases stored these groups forever, and emitted their changes. Now each group is
    emitted once. The state of the groups is discarded: all rows of a session arrive in the batch in
    which it ends, so none of them can change any more. Sessions that are still open are in the
    state of the operator below, which is kept.
    """
    if change.is_of_complete_sessions:
        yield Observation(f"{change.old.label} discards its groups, which are complete", change.new.span)


RULES = (
    new_operator,
    operator_dropped,
    other_kind,
    insert_dropped,
    operator_starts,
    operator_added_over_updates,
    operator_over_rows,
    sessions_complete,
)
