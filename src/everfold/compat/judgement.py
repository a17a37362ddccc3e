"""The judgement on a change of a query: a verdict with its reasons by operator, and the effect on
each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from everfold.compat.kept_types import find_changed_types
from everfold.compat.matching import NO_QUERY, QueryPair, pair_queries
from everfold.compat.reuse import is_below_kept, may_retract_unseen_rows, starts_complete
from everfold.compat.rules import OF_KIND, REFERENCE, Change, CompatOptions, Rule
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
from everfold.compat.shape import ColumnShape, OperatorShape, QueryShape, reads_column
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


class Status(StrEnum):
    """The effect of a change on a column."""

    KEPT = "kept"
    STARTS = "starts at the restart"
    DROPPED = "dropped"
    LOST = "not reusable"


@dataclass(frozen=True, slots=True)
class ColumnJudgement:
    """The effect of a change on a column of the result.

    sink: the table, `` for a bare SELECT.
    """

    name: str
    status: Status
    reason: str
    sink: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The compatibility of a job's state with a new version of its queries."""

    operators: tuple[OperatorJudgement, ...]
    columns: tuple[ColumnJudgement, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its operators."""
        return Verdict.worst(each.verdict for each in self.operators)


def judge(old: Sequence[QueryShape], new: Sequence[QueryShape], terms: CompatOptions = REFERENCE) -> Judgement:
    """Judge a job, given as the shapes of its queries."""
    return judge_pairs(pair_queries(old, new), terms)


def judge_pairs(pairs: Sequence[QueryPair], terms: CompatOptions = REFERENCE) -> Judgement:
    """Judge a job, given as the pairs of its old and new queries.

    Source: the seeds on state compatibility of group aggregates and over aggregates.
    """
    operators: list[OperatorJudgement] = []
    columns: list[ColumnJudgement] = []
    for each in pairs:
        pair = _Pair(each, terms)
        operators += pair.operators
        columns += pair.columns
    return Judgement(tuple(operators), tuple(columns))


class _Pair:
    """An old and a new query."""

    def __init__(self, pair: QueryPair, terms: CompatOptions) -> None:
        self._old, self._new, self._matching, self._terms = pair.old, pair.new, pair.matching, terms
        old, new, twins = pair.old, pair.new, pair.matching
        self._verdicts: dict[int, OperatorJudgement] = {}
        self._kept = frozenset(twins)
        for at, operator in enumerate(new.operators):
            self._verdicts[at] = self._judge(old.operators[twins[at]], operator) if at in twins else self._judge_new(at)
        self._gone = [self._judge(each, None) for at, each in enumerate(old.operators) if at not in twins.values()]

    @property
    def operators(self) -> list[OperatorJudgement]:
        return [*self._verdicts.values(), *self._gone]

    @property
    def columns(self) -> list[ColumnJudgement]:
        """The columns of the new query, then the dropped ones: columns of the old query whose name
        and meaning are both missing in the new one.
        """
        sink = self._new.sink or self._old.sink
        found = [ColumnJudgement(each.name, *self._status(each), sink) for each in self._new.columns]
        texts, names = {each.text for each in self._new.columns}, {each.name for each in self._new.columns}
        gone = [each for each in self._old.columns if each.text not in texts and each.name not in names]
        return [
            *found,
            *(ColumnJudgement(each.name, Status.DROPPED, "the new query has no such column", sink) for each in gone),
        ]

    def _status(self, column: ColumnShape) -> tuple[Status, str]:
        for at, _ in column.origins:
            if not self._verdicts[at].verdict.reuses_state:
                findings = self._verdicts[at].findings
                return Status.LOST, findings[0].message if findings else "its operator cannot resume"
        for at, call in column.origins:
            if at not in self._matching:
                if starts_complete(self._new, at, self._kept):
                    continue
                return Status.STARTS, f"{self._new.operators[at].label} is new"
            label = None if call is None else self._added_labels[at].get(call)
            if label is not None:
                return Status.STARTS, f"{label} is new"
        added = [each for each in self._all_added_columns if reads_column(column.text, each)]
        if added:
            return Status.STARTS, f"`{added[0]}` is new"
        return Status.KEPT, "computed as before" if column.origins else "computed from each row alone"

    def _judge_new(self, at: int) -> OperatorJudgement:
        """Judge an operator that is new.

        With the extended rules it starts with the rows below it, or empty.
        """
        new = self._new.operators[at]
        rule = new_operator
        if self._terms.extended and not is_below_kept(self._new, at, self._kept):
            if starts_complete(self._new, at, self._kept):
                rule = operator_over_rows
            else:
                rule = (
                    operator_added_over_updates
                    if may_retract_unseen_rows(self._new, at, self._kept)
                    else operator_starts
                )
        return _decide(new.label, [rule], Change(new, new))

    def _change(self, one: int, other: int) -> Change:
        new = self._new.operators[other]
        return Change(self._old.operators[one], new, self._terms, self._new.below(new))

    @cached_property
    def _added_labels(self) -> dict[int, dict[str, str]]:
        """The labels of the calls without state, by the position of a kept operator and the text of
        the call.
        """
        return {
            at: {each.text: each.label for each in reversed(self._change(one, at).added_calls)}
            for at, one in self._matching.items()
        }

    @cached_property
    def _all_added_columns(self) -> list[str]:
        """The columns that were added to the rows of operators."""
        changes = [self._change(one, at) for at, one in self._matching.items()]
        return [each for change in changes if change.tolerates_column_changes for each in change.added_columns]

    def _judge(self, old: OperatorShape, new: OperatorShape | None) -> OperatorJudgement:
        if new is None:
            gone = insert_dropped if self._terms.extended and self._new == NO_QUERY else operator_dropped
            return _decide(old.label, [gone], Change(old, old))
        if old == new and not find_changed_types(old, new):
            return OperatorJudgement(new.label, Verdict.FULLY)
        rules = OF_KIND[new.kind] if old.kind == new.kind else [sessions_complete, other_kind]
        return _decide(new.label, rules, Change(old, new, self._terms, self._new.below(new)))


def _decide(label: str, rules: Sequence[Rule], change: Change) -> OperatorJudgement:
    """Return the verdict of the first rule that applies, with the findings of all of them."""
    observations: list[tuple[Rule, Observation]] = [(rule, each) for rule in rules for each in rule.applies(change)]
    findings = tuple(Finding(rule.code, rule.verdict, each.message, each.span) for rule, each in observations)
    return OperatorJudgement(label, findings[0].verdict if findings else Verdict.FULLY, findings)
