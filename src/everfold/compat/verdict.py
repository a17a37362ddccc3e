"""The four verdicts on a change of a query."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What an old query's state is worth to a new query, from all of it to nothing. Source: both seeds on state compatibility."""

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
        """Its place in the order: the greater, the less is kept."""
        return list(Verdict).index(self)

    @property
    def reuses(self) -> bool:
        """Whether the job goes on with its state."""
        return self in (Verdict.FULLY, Verdict.PARTIALLY)

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The most severe of them; fully compatible if there are none."""
        return max(verdicts, key=lambda each: each.severity, default=cls.FULLY)
