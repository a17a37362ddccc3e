"""The input and the result of an engine that runs a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.plan.nodes import Collect

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.sql.settings import Settings

Rows = Mapping[str, "pa.Table"]
"""The rows of a micro-batch by table: columns `c0`, `c1`, …, and `__kind` if they are changes.

The columns are physical and metadata columns.
"""

OnChange: TypeAlias = Literal["refuse", "accept", "backfill"]
"""What to do when the new query can reuse only part of the state: `--on-change` of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a job between two restarts: a query and its batches, possibly without rows.

    lookup_tables: the rows of lookup tables. on_change: see `OnChange`.
    """

    root: Collect
    settings: Settings
    batches: tuple[Rows, ...]
    lookup_tables: Rows = field(default_factory=dict)
    on_change: OnChange = "refuse"


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The result of a stream.

    tables: the rows that each part emitted, with columns `c0`, … and `__kind` if they are changes.
    late_rows: the number of rows dropped as late.
    """

    tables: tuple[pa.Table, ...]
    late_rows: int
