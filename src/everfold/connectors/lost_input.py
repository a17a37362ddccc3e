"""Input that a job has not read yet and that no longer exists, and how the job can continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold.errors import ConnectorError
from everfold.plan.nodes import Table

_SHOWN_GAPS = 5
_HELP = "run the same command again: it lists how the job can continue"


@dataclass(frozen=True, slots=True)
class Gap:
    """A jump from the position of a job in a split to the one where it can continue.

    split: for people, as "topic `in` partition 0". position: the next offset that the job would
    read. resumed: the one that it can read, None if the split no longer exists.
    """

    split: str
    position: int
    resumed: int | None

    @property
    def summary(self) -> str:
        """What was lost, for people."""
        if self.resumed is None:
            return f"{self.split} no longer exists; the job has read it up to offset {self.position}"
        if self.resumed > self.position:
            last = self.resumed - 1
            return f"{self.split} {f'offset {last}' if last == self.position else f'offsets {self.position} to {last}'}"
        if self.resumed == self.position:
            return f"{self.split} from offset {self.position} on, which a batch had begun to read"
        return f"{self.split} ends at offset {self.resumed}, but the job has read it up to offset {self.position}"


@dataclass(frozen=True, slots=True)
class LostInput:
    """What a source can no longer deliver to a job.

    gaps: where the job can continue. line: its position after the gaps, as in Spark's offset log.
    recreated: the names of what was deleted and created again, empty if the data is the same.
    """

    table: Table
    gaps: tuple[Gap, ...]
    line: str
    recreated: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """The code of the error."""
        return "changed-source" if self.recreated else "kafka-data-lost"

    @property
    def message(self) -> str:
        """The message of the error."""
        if self.recreated:
            names = ", ".join(f"`{name}`" for name in self.recreated)
            return f"table `{self.table.name}`: {names} was deleted and created again since the job has read it"
        return f"table `{self.table.name}`: records that were not read yet are gone: {describe_gaps(self.gaps)}"

    @property
    def error(self) -> ConnectorError:
        """The error of a job that runs."""
        return ConnectorError.of(self.code, self.message, self.table.span, _HELP)


def describe_gaps(gaps: Sequence[Gap]) -> str:
    """Return what was lost, for people, shortened if there are many gaps."""
    shown = [gap.summary for gap in gaps[:_SHOWN_GAPS]]
    if len(gaps) > _SHOWN_GAPS:
        shown.append(f"and {len(gaps) - _SHOWN_GAPS:,} more")
    return "; ".join(shown)
