"""What a case gives an engine, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.plan.nodes import Collect

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.sql.settings import Settings

Rows = Mapping[str, "pa.Table"]
"""The rows of a micro-batch by table: physical and metadata columns `c0`, `c1`, …, and `__kind` where they are changes."""

OnChange: TypeAlias = Literal["refuse", "accept", "backfill"]
"""What is to become of the state when the query has changed and not all of it is of use: `--on-change` of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of a job between two restarts: a query and the batches it is fed. A batch without rows is a batch too.

    `beside`: the tables that joins read as a batch. `on_change`: see there.
    """

    root: Collect
    settings: Settings
    batches: tuple[Rows, ...]
    beside: Rows = field(default_factory=dict)
    on_change: OnChange = "refuse"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a stream gave: the rows that each part emitted (columns `c0`, …, maybe `__kind`), and how many rows were dropped as late."""

    tables: tuple[pa.Table, ...]
    late_rows: int
