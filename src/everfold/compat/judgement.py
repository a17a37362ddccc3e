"""The judgement on a change of a query: a verdict with its reasons by operator, and the effect on
each column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from everfold.compat.columns import ColumnJudge, ColumnJudgement, RowEffect, drop_columns, lose_columns
from everfold.compat.kept_types import find_changed_types
from everfold.compat.matching import NO_QUERY, QueryPair, pair_queries
from everfold.compat.reuse import is_below_kept, may_retract_unseen_rows, starts_complete
from everfold.compat.rules import OF_KIND, REFERENCE, Change, CompatOptions, Rule
from everfold.compat.rules.inputs import of_earlier_release
from everfold.compat.rules.rule import Observation
from everfold.compat.rules.topology import (
    insert_dropped,
    new_operator,
    operator_added_over_updates,
    operator_dropped,
    operator_over_rows,
    operator_starts,
    other_kind,
    sessions_complete,
)
from everfold.compat.shape import OperatorShape, QueryShape
from everfold.compat.verdict import Verdict
from everfold.errors import Span


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule reports about a change.

    span: the location in the new query; None if the finding is about something that was dropped.
    """

    code: str
    verdict: Verdict
    message: str
    span: Span | None = None

    @property
    def location(self) -> Span | None:
        """The location, if it can be shown."""
        return self.span if self.span is not None and self.span.text else None


@dataclass(frozen=True, slots=True)
class OperatorJudgement:
    """The effect of a change on an operator.

    operator: its label. findings: all that apply, starting with the one that decides.
    """

    operator: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Options under which more of the state would be kept (`compat.alternatives`).

    settings: what a session would have to set. columns: those that would be kept then, and are not
    kept now. options: of the command line that would be needed (`jobs.suggested_renamings`).
    """

    settings: Mapping[str, str]
    verdict: Verdict
    columns: tuple[ColumnJudgement, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The compatibility of a job's state with a new version of its queries.

    rows: rows of the results that are affected although their columns are kept.
    """

    operators: tuple[OperatorJudgement, ...]
    columns: tuple[ColumnJudgement, ...]
    rows: tuple[RowEffect, ...] = ()
    alternative: Alternative | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its operators."""
        return Verdict.worst(each.verdict for each in self.operators)


def judge(old: Sequence[QueryShape], new: Sequence[QueryShape], options: CompatOptions = REFERENCE) -> Judgement:
    """Judge a job, given as the shapes of its queries."""
    return judge_pairs(pair_queries(old, new), options)


def judge_pairs(
    pairs: Sequence[QueryPair],
    options: CompatOptions = REFERENCE,
    *,
    is_backfilled: bool = False,
    is_history: bool = False,
) -> Judgement:
    """Judge a job, given as the pairs of its old and new queries.

    is_backfilled: whether new aggregates are computed from past input, too. is_history: whether all
    queries are versions of the job, which know since when their aggregates count.

    Source: the seeds on state compatibility of group aggregates and over aggregates.
    """
    continued = {pair.old.sink for pair in pairs if pair.new != NO_QUERY}
    judges = [
        _PairJudge(pair, options, is_history=is_history, is_table_written=pair.old.sink in continued) for pair in pairs
    ]
    operators = tuple(operator for judge in judges for operator in judge.operators)
    obstacle = next((operator for operator in operators if not operator.verdict.reuses_state), None)
    if obstacle is not None:
        why = f": {obstacle.findings[0].message}" if obstacle.findings else ""
        lost = (judge.lose_columns(f"the job cannot resume{why}") for judge in judges)
        return Judgement(operators, tuple(chain.from_iterable(lost)))
    of_columns = [judge.judge_columns(is_backfilled=is_backfilled) for judge in judges]
    return Judgement(
        operators,
        tuple(column for judge in of_columns for column in judge.judge_columns()),
        tuple(effect for judge in of_columns for effect in judge.find_row_effects()),
    )


def join_judgements(judgements: Sequence[Judgement]) -> Judgement:
    """Return the judgement on several jobs. Its alternative is the first one of a job, for all."""
    chosen = next((judgement.alternative for judgement in judgements if judgement.alternative is not None), None)
    if chosen is not None:
        same = [
            judgement.alternative
            if judgement.alternative is not None
            and (judgement.alternative.settings, judgement.alternative.options) == (chosen.settings, chosen.options)
            else None
            for judgement in judgements
        ]
        verdicts = (
            judgement.verdict if alternative is None else alternative.verdict
            for judgement, alternative in zip(judgements, same, strict=True)
        )
        columns = (alternative.columns for alternative in same if alternative is not None)
        chosen = replace(chosen, verdict=Verdict.worst(verdicts), columns=tuple(chain.from_iterable(columns)))
    return Judgement(
        tuple(operator for judgement in judgements for operator in judgement.operators),
        tuple(column for judgement in judgements for column in judgement.columns),
        tuple(effect for judgement in judgements for effect in judgement.rows),
        chosen,
    )


def judge_left_job(queries: Sequence[QueryShape]) -> Judgement:
    """Return the judgement on a job that no new query continues."""
    columns = (column for query in queries for column in drop_columns(query, NO_QUERY))
    return Judgement((), tuple(replace(column, reason="no statement writes it any more") for column in columns))


class _PairJudge:
    """Judges an old and a new query.

    is_table_written: whether the job still writes the table of the old query.
    """

    def __init__(self, pair: QueryPair, options: CompatOptions, *, is_history: bool, is_table_written: bool) -> None:
        self._may_drop_insert = options.extended or is_table_written
        self._old, self._new, self._matching, self._options = pair.old, pair.new, pair.matching, options
        if pair.is_copy:  # no column is dropped: the old query continues
            texts, names = ({getattr(column, part) for column in pair.new.columns} for part in ("text", "name"))
            columns = (column for column in pair.old.columns if column.text in texts or column.name in names)
            self._old = replace(pair.old, columns=tuple(columns))
        self._kept = frozenset(pair.matching)
        self._changes = {
            position: self._compare(old, position, is_history=is_history) for position, old in pair.matching.items()
        }
        verdicts = [
            self._judge_kept(self._changes[position]) if position in self._changes else self._judge_new(position)
            for position in range(len(pair.new.operators))
        ]
        dropped = [
            self._judge_dropped(operator)
            for position, operator in enumerate(pair.old.operators)
            if position not in pair.matching.values() and not pair.is_copy
        ]
        self.operators = [*verdicts, *dropped]

    def judge_columns(self, *, is_backfilled: bool) -> ColumnJudge:
        """Return the judge of the columns, if the job can resume."""
        return ColumnJudge(self._old, self._new, self._matching, self._changes, is_backfilled)

    def lose_columns(self, reason: str) -> Iterator[ColumnJudgement]:
        """Yield the columns if the job cannot resume. reason: of the whole job."""
        own = next((each for each in self.operators if not each.verdict.reuses_state), None)
        return lose_columns(self._old, self._new, own.findings[0].message if own and own.findings else reason)

    def _judge_new(self, position: int) -> OperatorJudgement:
        """Judge an operator that is new.

        With the extended rules it starts with the rows below it, or empty.
        """
        new = self._new.operators[position]
        rule = new_operator
        if self._options.extended and not is_below_kept(self._new, position, self._kept):
            if starts_complete(self._new, position, self._kept):
                rule = operator_over_rows
            else:
                rule = (
                    operator_added_over_updates
                    if may_retract_unseen_rows(self._new, position, self._kept)
                    else operator_starts
                )
        return _decide(new.label, [rule], Change(new, new))

    def _compare(self, one: int, other: int, *, is_history: bool) -> Change:
        """Return the change of an operator; its input refers to operators of the old query."""
        new = self._new.operators[other]
        # An operator without a match is like none of the old query.
        branches = (
            branch
            if branch.operator is None
            else replace(branch, operator=self._matching.get(branch.operator, -1 - branch.operator))
            for branch in new.input.branches
        )
        adapted = replace(new, input=replace(new.input, branches=tuple(branches)))
        windows = (
            (self._old.operators[self._matching[position]].window, self._new.operators[position].window)
            for position in new.below
            if position in self._matching
        )
        return Change(
            old=self._old.operators[one],
            new=adapted,
            options=self._options,
            below=self._new.below(new),
            resliced_below=tuple((old, new) for old, new in windows if old != new and self._options.extended),
            is_history=is_history,
        )

    def _judge_dropped(self, old: OperatorShape) -> OperatorJudgement:
        rule = insert_dropped if self._may_drop_insert and self._new == NO_QUERY else operator_dropped
        return _decide(old.label, [rule], Change(old, old))

    @staticmethod
    def _judge_kept(change: Change) -> OperatorJudgement:
        old, new = change.old, change.new
        is_same = old == new and not change.added_calls and not change.resliced_below
        if is_same and not find_changed_types(old, new):
            return OperatorJudgement(new.label, Verdict.FULLY)
        if not old.input.branches:
            return _decide(new.label, [of_earlier_release], change)
        rules = OF_KIND[new.kind] if old.kind == new.kind else [sessions_complete, other_kind]
        return _decide(new.label, rules, change)


def _decide(label: str, rules: Sequence[Rule], change: Change) -> OperatorJudgement:
    """Return the verdict of the first rule that applies, with the findings of all of them."""
    observations: list[tuple[Rule, Observation]] = [(rule, each) for rule in rules for each in rule.applies(change)]
    findings = tuple(Finding(rule.code, rule.verdict, each.message, each.span) for rule, each in observations)
    return OperatorJudgement(label, findings[0].verdict if findings else Verdict.FULLY, findings)
