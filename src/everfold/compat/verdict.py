"""The four verdicts on a change of a query."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """How much of an old query's state a new query can use, from all of it to nothing.

    Source: both seeds on state compatibility.
    """

    FULLY = "fully compatible"
    PARTIALLY = "partially compatible"
    UNKNOWN = "unknown"
    INCOMPATIBLE = "incompatible"

    @property
    def exit_code(self) -> int:
        """The exit code of `everfold check`."""
        return {Verdict.FULLY: 0, Verdict.PARTIALLY: 3, Verdict.UNKNOWN: 4, Verdict.INCOMPATIBLE: 5}[self]

    @property
    def severity(self) -> int:
        """The position in the order: the greater, the less state is kept."""
        return list(Verdict).index(self)

    @property
    def reuses_state(self) -> bool:
        """Whether the job can resume with its state."""
        return self in (Verdict.FULLY, Verdict.PARTIALLY)

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """Return the most severe of the verdicts; fully compatible if there are none."""
        return max(verdicts, key=lambda each: each.severity, default=cls.FULLY)
