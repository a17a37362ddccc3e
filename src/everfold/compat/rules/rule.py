"""What a rule is: a permanent code, what it says about a change of one operator, and its page."""

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
    """How strictly is judged. ignore_filter: the user takes it upon himself that a WHERE below has changed. extended: what everfold keeps counts too, where the
    reference would not."""

    ignore_filter: bool = False
    extended: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """What a session's options say."""
        return cls(settings.ignore_filter, settings.extended_rules)


REFERENCE = Terms()
"""As the reference judges."""


@dataclass(frozen=True, slots=True)
class Change:
    """An operator as it was and as it is to be. below: the operators that the new one reads."""

    old: OperatorShape
    new: OperatorShape
    terms: Terms = REFERENCE
    below: tuple[OperatorShape, ...] = ()

    @property
    def same_keys(self) -> bool:
        """Whether groups are made by the same fields, and, unless that is known to do no harm, in the same order."""
        old, new = self.old.keys, self.new.keys
        return sorted(old) == sorted(new) if self.terms.extended else old == new

    @property
    def came(self) -> tuple[str, ...]:
        """Columns of rows that only the new one has."""
        return tuple(sorted({*self.new.columns} - {*self.old.columns}))

    @property
    def gone(self) -> tuple[str, ...]:
        """Columns of rows that only the old one has."""
        return tuple(sorted({*self.old.columns} - {*self.new.columns}))

    @property
    def tolerant(self) -> bool:
        """Whether rows that are kept may do without columns that have come: each may be NULL there, where that counts."""
        types = {each.text: each.type for each in self.new.kept.columns}
        missing = any(types.get(each, "NOT NULL").endswith("NOT NULL") for each in self.came)
        # Rows that are kept for ever would never get the column, and could not be found again when they are retracted.
        return self.terms.extended and not missing and not (self.came and self.new.time == NO_CLOCK)

    @property
    def resliced(self) -> bool:
        """Whether the windows are others, made of what is kept, where that counts."""
        different = self.old.window != self.new.window
        return different and self.terms.extended and made_of_kept_slices(self.old, self.new)

    @property
    def derived(self) -> dict[CallShape, CallShape]:
        """Calls that only the new one has, and the old one's out of whose state they follow, where that counts."""
        if not self.terms.extended:
            return {}
        known = {*self.old.calls}
        found = ((call, derived(call, self.old.calls)) for call in self.new.calls if call not in known)
        return {call: source for call, source in found if source is not None}

    @property
    def recounted(self) -> tuple[CallShape, ...]:
        """Calls that only the new one has, and that can be computed of the rows of the operators below, where that counts."""
        known = {*self.old.calls, *self.derived}
        calls = (call for call in self.new.calls if call not in known)
        return tuple(call for call in calls if self.terms.extended and recountable(call, self.new, self.below))

    @property
    def kept(self) -> tuple[CallShape, ...]:
        """Calls for which there is state, as the new one has them."""
        known = {*self.old.calls, *self.derived, *self.recounted}
        return tuple(call for call in self.new.calls if call in known)

    @property
    def added(self) -> tuple[CallShape, ...]:
        """Calls of the new one for which there is none."""
        kept = {*self.kept}
        return tuple(call for call in self.new.calls if call not in kept)

    @property
    def dropped(self) -> tuple[CallShape, ...]:
        """Calls that only the old one has."""
        known = {*self.new.calls}
        return tuple(call for call in self.old.calls if call not in known)


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule says: a sentence, and the place in the new text that it speaks of."""

    message: str
    span: Span | None = None


Applies: TypeAlias = Callable[[Change], Iterator[Said]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. It applies to a change if it says anything of it."""

    code: str
    verdict: Verdict
    applies: Applies

    @property
    def title(self) -> str:
        """The first sentence of its page."""
        return self.page.partition("\n\n")[0].replace("\n", " ")

    @property
    def page(self) -> str:
        """What it means, why it is so, and what to do: the docstring of its function."""
        return inspect.cleandoc(self.applies.__doc__ or "")


def rule(code: str, verdict: Verdict) -> Callable[[Applies], Rule]:
    """Makes a rule of a function whose docstring is its page."""

    def made(applies: Applies) -> Rule:
        return Rule(code, verdict, applies)

    return made


def other_rows(change: Change) -> Iterator[Said]:
    """What is said where an operator keeps rows and their columns have changed."""
    if change.came or change.gone:
        yield Said(
            f"its rows had {sentence_of(change.gone)} and are to have {sentence_of(change.came)}", change.new.span
        )


def sentence_of(texts: tuple[str, ...]) -> str:
    """Canonical texts for a sentence."""
    return ", ".join(f"`{readable(text)}`" for text in texts) if texts else "nothing"
