"""Rules for aggregation over windows, by window function or GROUP BY TUMBLE, HOP, SESSION, and for
the rows of sessions.
"""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Observation, format_expressions, report_changed_columns, rule
from everfold.compat.verdict import Verdict


@rule("WIN001", Verdict.INCOMPATIBLE)
def other_window(change: Change) -> Iterator[Observation]:
    """The window has changed: its kind, size, slide, step, gap or offset.

    State is stored by slices of the old windows, which do not add up to the new ones.

    To resolve this, run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window and not change.reslices_window:
        yield Observation(f"the window changed from {change.old.window} to {change.new.window}", change.new.span)


@rule("WIN002", Verdict.INCOMPATIBLE)
def other_time(change: Change) -> Iterator[Observation]:
    """The time of the window has changed: it uses another column, processing time instead of event
    time, or another time zone.

    The stored rows belong to windows of another time. A different watermark on the same column
    changes nothing. All columns of processing time have the same value.

    To resolve this, run the new query with a new `--state` folder.
    """
    if _clock(change.old.time) != _clock(change.new.time):
        yield Observation(f"the time changed from `{change.old.time}` to `{change.new.time}`", change.new.span)


def _clock(time: str) -> str:
    """Return the time of a window without its column if that is processing time."""
    _, proctime, zone = time.rpartition(", proctime")
    return proctime + zone if proctime else time


@rule("WIN003", Verdict.INCOMPATIBLE)
def other_keys(change: Change) -> Iterator[Observation]:
    """The grouping fields other than the window have changed: a field was added, dropped or
    computed differently, or their order has changed.

    State is stored by these fields. With `--rules extended` their order does not matter. The
    columns of the window itself (window_start, window_end, window_time) may be added, dropped and
    reordered.

    To resolve this, run the new query with a new `--state` folder.
    """
    if not change.has_same_keys:
        yield Observation(
            f"the grouping keys changed from {format_expressions(change.old.keys)}"
            f" to {format_expressions(change.new.keys)}",
            change.new.span,
        )


@rule("WIN004", Verdict.INCOMPATIBLE)
def computed_between(change: Change) -> Iterator[Observation]:
    """A computed column was added between the window function and GROUP BY, or removed from there.

    The reference puts another operator there, and finds no state for what follows it. A column that
    is computed below the window function is just a changed argument, and with `--rules extended` so
    is a column that is computed anywhere.

    To resolve this, compute the column in the query that the window function reads, or in the
    table.
    """
    if change.options.extended:
        return
    old = {text for call in change.old.calls for text in call.computed}
    for call in change.new.calls:
        for text in call.computed:
            if text not in old:
                yield Observation(
                    f"{format_expressions((text,))} is computed between the window and its groups", call.span
                )
    new = {text for call in change.new.calls for text in call.computed}
    for call in change.old.calls:
        for text in call.computed:
            if text not in new:
                yield Observation(
                    f"{format_expressions((text,))} was computed between the window and its groups", change.new.span
                )


@rule("WIN005", Verdict.INCOMPATIBLE)
def other_emission(change: Change) -> Iterator[Observation]:
    """The settings for early and late results have changed (`table.exec.emit.*`).

    With these settings a window is kept for as long as it accepts rows, and the results that it has
    emitted are stored. Neither fits different settings.

    To resolve this, restore the settings, or run the new query with a new `--state` folder.
    """
    if change.old.emission != change.new.emission:
        yield Observation("the settings for early and late results have changed", change.new.span)


@rule("WIN006", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Observation]:
    """The columns of the rows of a session have changed.

    The rows of an open session are stored with the columns that the query uses, so they would lack
    a new column.

    To resolve this, run the new query with a new `--state` folder.
    """
    yield from report_changed_columns(change)


@rule("WIN007", Verdict.FULLY)
def window_reuses_slices(change: Change) -> Iterator[Observation]:
    """The window has changed, and the new windows can be computed from the stored slices. Only with
    `--rules extended`.

    HOP keeps slices as wide as its slide until no window of its size needs them. Windows that are
    not longer, and that begin and end at slice boundaries, are therefore complete. So a HOP can
    become a TUMBLE, or a HOP with a longer slide or a shorter size; a CUMULATE can become the
    TUMBLE of its size. This does not apply to an aggregate that depends on row order (FIRST_VALUE,
    LAST_VALUE, LISTAGG, ARRAY_AGG). A TUMBLE cannot become a longer one, since the state of the
    windows that it has emitted is removed.
    """
    if change.reslices_window:
        yield Observation(
            f"the window changed from {change.old.window} to {change.new.window}, which can reuse the stored slices",
            change.new.span,
        )


AGGREGATE = (
    python_functions,
    other_window,
    other_time,
    other_keys,
    *INPUTS,
    computed_between,
    other_emission,
    *CALLS,
    window_reuses_slices,
)
ROWS = (other_window, other_time, other_keys, other_columns, *INPUTS)
EMISSION = (other_keys, other_emission, *INPUTS)
"""The rules for a window aggregate, for the rows of sessions and for held back results, in the
order in which they decide.
"""
