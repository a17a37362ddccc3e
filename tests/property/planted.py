"""A pytest plugin that plants the defect named by EVERFOLD_PLANTED.

See `test_laws_are_checked.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from everfold.aggregates import folding
from everfold.compat import columns, judgement, matching
from everfold.jobs import script_jobs, sink_tables
from everfold.memory import pipeline
from everfold.operators import changelog, clock, group, layout, protocol, window
from everfold.plan import branches, canonical
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


def pair_queries_by_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(matching, "_compare_queries", lambda *_: (0.0,))


def pair_statements_by_order(patch: pytest.MonkeyPatch) -> None:
    def pair(old: Sequence[Any], new: Sequence[Any], **_: bool) -> dict[int, int]:
        return {number: number for number in range(min(len(old), len(new)))}

    patch.setattr(script_jobs, "pair_jobs", pair)


def start_copies_without_state(patch: pytest.MonkeyPatch) -> None:
    positions = matching.QueryPair.old_positions.fget  # type: ignore[attr-defined]
    forget = property(lambda pair: [None if pair.is_copy else position for position in positions(pair)])
    patch.setattr(matching.QueryPair, "old_positions", forget)


def overlook_moved_sinks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sink_tables, "may_share_location", lambda *_: True)


def forget_which_occurrence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(branches, "_suffix", lambda number: "")


def forget_which_window(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(canonical, "name_window_columns", lambda number: branches.name_window_columns(1))


def pool_the_parts_of_branches(patch: pytest.MonkeyPatch) -> None:
    number = canonical._number_paths

    def pool(plan: Any) -> Any:
        numbered = number(plan)
        filters = tuple(sorted({text for branch in numbered for text in branch.filters}))
        joins = tuple(sorted({text for branch in numbered for text in branch.joins}))
        return tuple(replace(branch, filters=filters, joins=joins) for branch in numbered)

    patch.setattr(canonical, "_number_paths", pool)


def sort_the_texts_of_branches(patch: pytest.MonkeyPatch) -> None:
    join = branches.join_alternatives
    patch.setattr(canonical, "join_alternatives", lambda texts: join(sorted(texts)))


def begin_new_aggregates_at_zero(patch: pytest.MonkeyPatch) -> None:
    fold = folding.Fold
    patch.setattr(layout, "Fold", lambda *arguments, **options: fold(*arguments, **options | {"begins_late": False}))


def show_new_columns_of_old_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pipeline, "hide_new_columns", lambda root: root)


def report_no_affected_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(columns.ColumnJudge, "find_row_effects", lambda judge: iter(()))


def report_mixed_columns_as_kept(patch: pytest.MonkeyPatch) -> None:
    judged = columns.ColumnJudge._judge_state

    def keep(judge: Any, column: Any) -> Any:
        status, *rest = judged(judge, column)
        return (columns.Status.KEPT if status is columns.Status.MIXED else status, *rest)

    patch.setattr(columns.ColumnJudge, "_judge_state", keep)


def ignore_other_windows_below(patch: pytest.MonkeyPatch) -> None:
    compare = judgement._PairJudge._compare

    def ignore(judge: Any, one: int, other: int, *, is_history: bool) -> Any:
        return replace(compare(judge, one, other, is_history=is_history), resliced_below=())

    patch.setattr(judgement._PairJudge, "_compare", ignore)


DEFECTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    function.__name__: function
    for function in (
        lose_a_row_per_batch,
        retract_the_new_row,
        take_late_rows,
        forget_the_watermark,
        wait_for_idle_splits,
        round_averages_down,
        pair_queries_by_order,
        pair_statements_by_order,
        start_copies_without_state,
        overlook_moved_sinks,
        forget_which_occurrence,
        forget_which_window,
        pool_the_parts_of_branches,
        sort_the_texts_of_branches,
        begin_new_aggregates_at_zero,
        show_new_columns_of_old_rows,
        report_no_affected_rows,
        report_mixed_columns_as_kept,
        ignore_other_windows_below,
    )
}


@pytest.fixture(autouse=True, scope="session")
def planted_defect() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        DEFECTS[os.environ["EVERFOLD_PLANTED"]](patch)
        yield
