"""Rules about aggregation over windows, by window function or by GROUP BY TUMBLE, HOP, SESSION, and about the rows of sessions."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.aggregate_calls import CALLS, python_functions
from everfold.compat.rules.inputs import RULES as INPUTS
from everfold.compat.rules.rule import Change, Said, other_rows, rule, sentence_of
from everfold.compat.verdict import Verdict


@rule("WIN001", Verdict.INCOMPATIBLE)
def other_window(change: Change) -> Iterator[Said]:
    """The window is another one: its kind, size, slide, step, gap or offset has changed.

    State is kept by pieces of the old windows, which do not make up the new ones.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.window != change.new.window and not change.resliced:
        yield Said(f"the window was {change.old.window} and is to be {change.new.window}", change.new.span)


@rule("WIN002", Verdict.INCOMPATIBLE)
def other_time(change: Change) -> Iterator[Said]:
    """The window runs on another time: another column, processing time instead of event time, or in another zone.

    The rows that were kept lie in windows of another time. Another watermark of the same column changes nothing.

    Way out: run the new query with a new `--state` folder.
    """
    if change.old.time != change.new.time:
        yield Said(f"the time was `{change.old.time}` and is to be `{change.new.time}`", change.new.span)


@rule("WIN003", Verdict.INCOMPATIBLE)
def other_keys(change: Change) -> Iterator[Said]:
    """The fields beside the window have changed, by which groups are made: one was added, dropped, computed otherwise, or they are in another order.

    State is kept by these fields; their order is free with `--rules extended`. The columns of the window itself (window_start, window_end, window_time) may come, go and change places.

    Way out: run the new query with a new `--state` folder.
    """
    if not change.same_keys:
        yield Said(
            f"the groups were made by {sentence_of(change.old.keys)} and are to be made by {sentence_of(change.new.keys)}",
            change.new.span,
        )


@rule("WIN004", Verdict.INCOMPATIBLE)
def computed_between(change: Change) -> Iterator[Said]:
    """A computed column has come between the window function and GROUP BY, or has gone from there.

    The reference puts another operator there, and finds no state behind it. Computed below the window function, it is a changed argument and
    nothing more, and so it is anywhere with `--rules extended`.

    Way out: compute the column in the query that the window function takes, or in the table.
    """
    if change.terms.extended:
        return
    old = {text for call in change.old.calls for text in call.computed}
    for call in change.new.calls:
        for text in call.computed:
            if text not in old:
                yield Said(f"{sentence_of((text,))} is computed between the window and its groups", call.span)
    new = {text for call in change.new.calls for text in call.computed}
    for call in change.old.calls:
        for text in call.computed:
            if text not in new:
                yield Said(f"{sentence_of((text,))} was computed between the window and its groups", change.new.span)


@rule("WIN005", Verdict.INCOMPATIBLE)
def other_emission(change: Change) -> Iterator[Said]:
    """The settings for early and late results have changed (`table.exec.emit.*`).

    With them a window is kept for as long as it takes rows, and what was given of it is remembered: under other settings that does not fit.

    Way out: set them back, or run the new query with a new `--state` folder.
    """
    if change.old.emission != change.new.emission:
        yield Said("early and late results are set otherwise", change.new.span)


@rule("WIN006", Verdict.INCOMPATIBLE)
def other_columns(change: Change) -> Iterator[Said]:
    """The columns of the rows of a session have changed.

    The rows of an open session are kept with the columns that the query uses: a new one would be missing.

    Way out: run the new query with a new `--state` folder.
    """
    yield from other_rows(change)


@rule("WIN007", Verdict.FULLY)
def made_of_slices(change: Change) -> Iterator[Said]:
    """The windows are others, and made of the slices that are kept. Only with `--rules extended`.

    HOP keeps slices as wide as its slide until no window of its size needs them: windows that are no longer, and begin and end where slices do, are there
    as a whole. So HOP becomes a TUMBLE, or a HOP with a longer slide or a shorter size; CUMULATE becomes the TUMBLE of its size. Not with an aggregate that
    depends on the order of rows (FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG). A TUMBLE cannot become a longer one: what it has given out is gone.
    """
    if change.resliced:
        yield Said(
            f"the window was {change.old.window} and is to be {change.new.window}, which its slices make up",
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
    made_of_slices,
)
ROWS = (other_window, other_time, other_keys, other_columns, *INPUTS)
EMISSION = (other_keys, other_emission, *INPUTS)
"""In the order in which they decide: of a window aggregate, of the rows of sessions, of held back results."""
