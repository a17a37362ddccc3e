"""A pytest plugin that plants the defect named by EVERFOLD_PLANTED.

See `test_laws_are_checked.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from everfold.compat import matching
from everfold.jobs import sink_tables
from everfold.memory import pipeline
from everfold.operators import changelog, clock, group, protocol, window
from everfold.plan.changelog import KIND, RowKind


def lose_a_row_per_batch(patch: pytest.MonkeyPatch) -> None:
    feed = pipeline.MemoryPipeline.feed

    def lossy(self: Any, rows: Any, now_ms: int | None = None) -> Any:
        return feed(self, {name: table.slice(0, max(1, len(table) - 1)) for name, table in rows.items()}, now_ms)

    patch.setattr(pipeline.MemoryPipeline, "feed", lossy)


def retract_the_new_row(patch: pytest.MonkeyPatch) -> None:
    changes = changelog.diff_rows

    def retract_wrongly(*arguments: Any, **named: Any) -> pl.DataFrame:
        rows = changes(*arguments, **named)
        back = pl.col(KIND) == RowKind.UPDATE_BEFORE.value
        values = [name for name in rows.columns if not name.startswith("__")]
        return rows.with_columns(
            pl.when(back).then(pl.col(name).shift(-1)).otherwise(pl.col(name)).alias(name) for name in values
        )

    patch.setattr(group, "diff_rows", retract_wrongly)


def take_late_rows(patch: pytest.MonkeyPatch) -> None:
    accept = window.WindowOperator._accept
    patch.setattr(window.WindowOperator, "_accept", lambda self, prepared, since: accept(self, prepared, since - 1))


def forget_the_watermark(patch: pytest.MonkeyPatch) -> None:
    encode = clock.Clock.encode
    lost = {"watermark": protocol.NO_WATERMARK, "splits": {}}
    patch.setattr(clock.Clock, "encode", lambda self: encode(self) | lost)


def wait_for_idle_splits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clock.Clock, "_idle", lambda self, seen: False)


def round_averages_down(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pl.Expr, "truncdiv", pl.Expr.floordiv)


def copy_the_state_of_another_query(patch: pytest.MonkeyPatch) -> None:
    old_positions = matching.QueryPair.old_positions.fget  # type: ignore[attr-defined]

    def shift(self: Any) -> list[int | None]:
        found: list[int | None] = old_positions(self)
        return [0 if self.is_copy and position is not None else position for position in found]

    patch.setattr(matching.QueryPair, "old_positions", property(shift))


def overlook_moved_sinks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_tables, "may_share_location", lambda *_: True)


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    function.__name__: function
    for function in (
        lose_a_row_per_batch,
        retract_the_new_row,
        take_late_rows,
        forget_the_watermark,
        wait_for_idle_splits,
        round_averages_down,
        copy_the_state_of_another_query,
        overlook_moved_sinks,
    )
}


@pytest.fixture(autouse=True, scope="session")
def planted_defect() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        DEFECTS[os.environ["EVERFOLD_PLANTED"]](patch)
        yield
