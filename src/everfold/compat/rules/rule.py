"""The base of the compatibility rules: options, the change that is judged, and the `@rule`
decorator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from everfold.compat.reuse import can_recount, can_reuse_slices, find_source_call
from everfold.compat.shape import CallShape, OperatorShape
from everfold.compat.verdict import Verdict
from everfold.errors import Span
from everfold.plan.canonical import NO_CLOCK, quote_name
from everfold.plan.readable import format_canonical_text
from everfold.sql.settings import Settings


@dataclass(frozen=True, slots=True)
class CompatOptions:
    """How strictly a change is judged.

    ignore_filter: accept a changed WHERE below an operator, at the user's risk. extended: apply the
    extended rules, which reuse state that the reference would not.
    """

    ignore_filter: bool = False
    extended: bool = False

    @classmethod
    def of(cls, settings: Settings) -> CompatOptions:
        """Return the options that a session has set."""
        return cls(settings.ignore_filter, settings.extended_rules)


REFERENCE = CompatOptions()
"""The options of the reference rules."""


@dataclass(frozen=True)
class Change:
    """A change of one operator, from the old to the new query.

    below: the operators that the new one reads. resliced_below: their old and new windows where
    these differ and the old state is kept. is_history: whether both are versions of a job, where a
    call that was dropped and added again is another one.
    """

    old: OperatorShape
    new: OperatorShape
    options: CompatOptions = REFERENCE
    below: tuple[OperatorShape, ...] = ()
    resliced_below: tuple[tuple[str, str], ...] = ()
    is_history: bool = False

    def find_old(self, call: CallShape) -> CallShape | None:
        """Return the old call that a call of the new operator continues, None if there is none."""
        same = self._old_calls.get(call, ())
        return next((old for old in same if not self.is_history or old.since == call.since), None)

    @cached_property
    def _old_calls(self) -> dict[CallShape, list[CallShape]]:
        calls: dict[CallShape, list[CallShape]] = {}
        for call in self.old.calls:
            calls.setdefault(call, []).append(call)
        return calls

    @property
    def has_same_keys(self) -> bool:
        """Whether the grouping fields are the same and, except with the extended rules, in the same
        order.
        """
        old, new = self.old.keys, self.new.keys
        return sorted(old) == sorted(new) if self.options.extended else old == new

    @cached_property
    def added_columns(self) -> tuple[str, ...]:
        """Columns of the rows that only the new operator has."""
        return tuple(sorted({*self.new.columns} - {*self.old.columns}))

    @cached_property
    def dropped_columns(self) -> tuple[str, ...]:
        """Columns of the rows that only the old operator has."""
        return tuple(sorted({*self.old.columns} - {*self.new.columns}))

    @cached_property
    def tolerates_column_changes(self) -> bool:
        """Whether stored rows may lack the added columns: with the extended rules, if all of them
        are nullable.
        """
        types = {each.text: each.type for each in self.new.kept.columns}
        missing = any(types.get(each, "NOT NULL").endswith("NOT NULL") for each in self.added_columns)
        # Rows that are never discarded would never get the column, and could not be found when they
        # are retracted.
        return self.options.extended and not missing and not (self.added_columns and self.new.time == NO_CLOCK)

    @property
    def reslices_window(self) -> bool:
        """Whether the window differs and, with the extended rules, can be computed from the stored
        slices.
        """
        different = self.old.window != self.new.window
        return different and self.options.extended and can_reuse_slices(self.old, self.new)

    @property
    def is_of_complete_sessions(self) -> bool:
        """Whether groups of complete sessions, which were stored forever, became windows that are
        emitted once.
        """
        old, new = self.old, self.new
        if (old.kind, new.kind) != ("GroupAggregate", "WindowAggregate") or old.input != new.input:
            return False
        dropped_keys = [key for key in old.keys if key not in new.keys]
        reads_tables = any(f"{quote_name(table)}." in key for key in dropped_keys for table in old.scans)
        over_sessions = bool(self.below) and all(each.window.startswith("SESSION(") for each in self.below)
        return over_sessions and {*new.keys} <= {*old.keys} and not reads_tables

    @cached_property
    def derived_calls(self) -> dict[CallShape, CallShape]:
        """Calls that only the new operator has, each with the old call whose state it can use.

        Empty without the extended rules.
        """
        if not self.options.extended:
            return {}
        new = (call for call in self.new.calls if self.find_old(call) is None)
        old = {call.text: call for call in sorted(self.old.calls, key=lambda call: -call.since)}
        sources = ((call, find_source_call(call, old)) for call in new)
        return {call: source for call, source in sources if source is not None}

    @cached_property
    def recounted_calls(self) -> tuple[CallShape, ...]:
        """Calls that only the new operator has and that can be computed from the rows of the
        operators below. Empty without the extended rules.
        """
        derived = self.derived_calls
        calls = (call for call in self.new.calls if self.find_old(call) is None and call not in derived)
        return tuple(call for call in calls if self.options.extended and can_recount(call, self.new, self.below))

    @cached_property
    def kept_calls(self) -> tuple[CallShape, ...]:
        """Calls of the new operator that have state."""
        complete = {*self.derived_calls, *self.recounted_calls}
        return tuple(call for call in self.new.calls if self.find_old(call) is not None or call in complete)

    @cached_property
    def added_calls(self) -> tuple[CallShape, ...]:
        """Calls of the new operator that have no state."""
        kept = {*self.kept_calls}
        return tuple(call for call in self.new.calls if call not in kept)

    @cached_property
    def dropped_calls(self) -> tuple[CallShape, ...]:
        """Calls that only the old operator has."""
        known = {*self.new.calls}
        return tuple(call for call in self.old.calls if call not in known)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a rule observes: a message, and the location in the new query that it refers to."""

    message: str
    span: Span | None = None


Applies: TypeAlias = Callable[[Change], Iterator[Observation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A compatibility rule. It applies to a change if it yields an observation."""

    code: str
    verdict: Verdict
    applies: Applies

    @property
    def title(self) -> str:
        """The first sentence of its page."""
        return self.page.partition("\n\n")[0].replace("\n", " ")

    @property
    def page(self) -> str:
        """The meaning, the reason and the remedy: the docstring of its function."""
        return inspect.cleandoc(self.applies.__doc__ or "")


def rule(code: str, verdict: Verdict) -> Callable[[Applies], Rule]:
    """Make a rule from a function whose docstring is the page of the rule."""

    def decorate(applies: Applies) -> Rule:
        return Rule(code, verdict, applies)

    return decorate


def report_changed_columns(change: Change) -> Iterator[Observation]:
    """Report a change of the columns of the rows that an operator stores."""
    if change.added_columns or change.dropped_columns:
        yield Observation(
            f"its rows lose {format_expressions(change.dropped_columns)}"
            f" and gain {format_expressions(change.added_columns)}",
            change.new.span,
        )


def format_expressions(texts: tuple[str, ...]) -> str:
    """Format canonical expressions for a message."""
    return ", ".join(f"`{format_canonical_text(text)}`" for text in texts) if texts else "nothing"
