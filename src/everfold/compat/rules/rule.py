"""The base of the compatibility rules: options, the change that is judged, and the `@rule`
decorator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from everfold.compat.reuse import derived, made_of_kept_slices, recountable
from everfold.compat.shape import NO_CLOCK, CallShape, OperatorShape
from everfold.compat.verdict import Verdict
from everfold.errors import Span
from everfold.plan.readable import readable
from everfold.sql.settings import Settings


@dataclass(frozen=True, slots=True)
class Terms:
    """How strictly a change is judged.

    ignore_filter: accept a changed WHERE below an operator, at the user's risk. extended: apply the
    extended rules, which reuse state that the reference would not.
    """

    ignore_filter: bool = False
    extended: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """Return the options that a session has set."""
        return cls(settings.ignore_filter, settings.extended_rules)


REFERENCE = Terms()
"""The options of the reference rules."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one operator, from the old to the new query.

    below: the operators that the new one reads.
    """

    old: OperatorShape
    new: OperatorShape
    terms: Terms = REFERENCE
    below: tuple[OperatorShape, ...] = ()

    @property
    def same_keys(self) -> bool:
        """Whether the grouping fields are the same and, except with the extended rules, in the same
        order.
        """
        old, new = self.old.keys, self.new.keys
        return sorted(old) == sorted(new) if self.terms.extended else old == new

    @property
    def came(self) -> tuple[str, ...]:
        """Columns of the rows that only the new operator has."""
        return tuple(sorted({*self.new.columns} - {*self.old.columns}))

    @property
    def gone(self) -> tuple[str, ...]:
        """Columns of the rows that only the old operator has."""
        return tuple(sorted({*self.old.columns} - {*self.new.columns}))

    @property
    def tolerant(self) -> bool:
        """Whether stored rows may lack the added columns: with the extended rules, if all of them
        are nullable.
        """
        types = {each.text: each.type for each in self.new.kept.columns}
        missing = any(types.get(each, "NOT NULL").endswith("NOT NULL") for each in self.came)
        # Rows that are never discarded would never get the column, and could not be found when they
        # are retracted.
        return self.terms.extended and not missing and not (self.came and self.new.time == NO_CLOCK)

    @property
    def resliced(self) -> bool:
        """Whether the window differs and, with the extended rules, can be computed from the stored
        slices.
        """
        different = self.old.window != self.new.window
        return different and self.terms.extended and made_of_kept_slices(self.old, self.new)

    @property
    def derived(self) -> dict[CallShape, CallShape]:
        """Calls that only the new operator has, each with the old call whose state it can use.

        Empty without the extended rules.
        """
        if not self.terms.extended:
            return {}
        known = {*self.old.calls}
        found = ((call, derived(call, self.old.calls)) for call in self.new.calls if call not in known)
        return {call: source for call, source in found if source is not None}

    @property
    def recounted(self) -> tuple[CallShape, ...]:
        """Calls that only the new operator has and that can be computed from the rows of the
        operators below. Empty without the extended rules.
        """
        known = {*self.old.calls, *self.derived}
        calls = (call for call in self.new.calls if call not in known)
        return tuple(call for call in calls if self.terms.extended and recountable(call, self.new, self.below))

    @property
    def kept(self) -> tuple[CallShape, ...]:
        """Calls of the new operator that have state."""
        known = {*self.old.calls, *self.derived, *self.recounted}
        return tuple(call for call in self.new.calls if call in known)

    @property
    def added(self) -> tuple[CallShape, ...]:
        """Calls of the new operator that have no state."""
        kept = {*self.kept}
        return tuple(call for call in self.new.calls if call not in kept)

    @property
    def dropped(self) -> tuple[CallShape, ...]:
        """Calls that only the old operator has."""
        known = {*self.new.calls}
        return tuple(call for call in self.old.calls if call not in known)


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule observes: a message, and the location in the new query that it refers to."""

    message: str
    span: Span | None = None


Applies: TypeAlias = Callable[[Change], Iterator[Said]]


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


def other_rows(change: Change) -> Iterator[Said]:
    """Report a change of the columns of the rows that an operator stores."""
    if change.came or change.gone:
        yield Said(f"its rows lose {sentence_of(change.gone)} and gain {sentence_of(change.came)}", change.new.span)


def sentence_of(texts: tuple[str, ...]) -> str:
    """Format canonical expressions for a message."""
    return ", ".join(f"`{readable(text)}`" for text in texts) if texts else "nothing"
