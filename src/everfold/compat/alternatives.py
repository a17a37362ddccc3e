"""Options of a session under which more of a job's state would be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from everfold.compat.columns import ColumnJudgement, Status
from everfold.compat.judgement import Alternative, Judgement, judge_pairs
from everfold.compat.matching import QueryPair
from everfold.compat.rules import REFERENCE, CompatOptions
from everfold.compat.verdict import Verdict

_RULES, _IGNORE_FILTER = "everfold.compat.rules", "everfold.compat.ignore-filter"


def add_alternative(judgement: Judgement, pairs: Sequence[QueryPair], options: CompatOptions = REFERENCE) -> Judgement:
    """Return a judgement with the fewest options under which more of the state would be kept.

    options: those under which the pairs were judged.
    """
    if judgement.verdict is Verdict.FULLY:
        return judgement
    for settings, other in _widen(options):
        wider = judge_pairs(pairs, other)
        gained = compare_judgements(judgement, wider)
        if gained is not None:
            return replace(judgement, alternative=Alternative(settings, wider.verdict, gained))
    return judgement


def compare_judgements(judgement: Judgement, wider: Judgement) -> tuple[ColumnJudgement, ...] | None:
    """Return the columns that only another judgement keeps, None if it keeps no more of the state.

    If it keeps the same columns with a better verdict, these are returned.
    """
    if _rank(wider) <= _rank(judgement):
        return None
    kept = tuple(column for column in wider.columns if column.status in (Status.KEPT, Status.MIXED))
    return _list_gained(judgement, kept)


def _widen(options: CompatOptions) -> Iterator[tuple[dict[str, str], CompatOptions]]:
    """Yield options that allow more, the least risky ones first, with the settings to add."""
    for extended, ignore_filter in ((True, False), (False, True), (True, True)):
        other = CompatOptions(
            ignore_filter=options.ignore_filter or ignore_filter, extended=options.extended or extended
        )
        settings = {_RULES: "extended"} if other.extended and not options.extended else {}
        if other.ignore_filter and not options.ignore_filter:
            settings[_IGNORE_FILTER] = "true"
        if settings:
            yield settings, other


def _rank(judgement: Judgement) -> tuple[bool, int, int]:
    """Return a value that is greater the more of the state is kept."""
    kept = sum(column.status is Status.KEPT for column in judgement.columns)
    return judgement.verdict.reuses_state, kept, -judgement.verdict.severity


def _list_gained(judgement: Judgement, kept: Sequence[ColumnJudgement]) -> tuple[ColumnJudgement, ...]:
    """Return the kept columns that the judgement itself does not keep; all if these are none."""
    already = {(column.sink, column.name) for column in judgement.columns if column.status is Status.KEPT}
    return tuple(column for column in kept if (column.sink, column.name) not in already) or tuple(kept)
