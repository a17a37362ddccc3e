"""Each property is really checked: with a defect planted in the engine, the test of the
property fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LAWS = {
    "lose_a_row_per_batch": "property/test_memory.py::test_a_stream_returns_the_rows_of_a_batch",
    "retract_the_new_row": "property/test_groups.py::test_after_every_batch_the_result_is_that_of_the_surviving_rows",
    "take_late_rows": "property/test_windows.py::test_one_row_per_batch_handles_late_rows_like_flink",
    "forget_the_watermark": "property/test_windows.py::test_one_row_per_batch_handles_late_rows_like_flink",
    "wait_for_idle_splits": "unit/operators/test_clock.py",
    "pair_queries_by_order": "property/test_several_inserts.py::test_each_table_has_the_rows_of_a_job_that_was_never_stopped",
    "pair_statements_by_order": "property/test_separate_inserts.py::test_each_statement_continues_its_job",
    "start_copies_without_state": "property/test_several_inserts.py::test_each_table_has_the_rows_of_a_job_that_was_never_stopped",
    "overlook_moved_sinks": "property/test_several_inserts.py::test_each_table_has_the_rows_of_a_job_that_was_never_stopped",
    "round_averages_down": "property/test_groups.py::test_every_function_supports_changes",
    "forget_which_occurrence": "property/test_occurrences.py::test_moved_parts_are_not_accepted",
    "forget_which_window": "property/test_cascades.py::test_a_window_is_not_taken_for_another_one",
    "pool_the_parts_of_branches": "property/test_occurrences.py::test_branches_cannot_exchange_a_part",
    "sort_the_texts_of_branches": "property/test_occurrences.py::test_branches_cannot_exchange_a_part",
    "begin_new_aggregates_at_zero": "property/test_mixed_columns.py::test_mixed_columns_are_as_the_report_says",
    "show_new_columns_of_old_rows": "property/test_mixed_columns.py::test_mixed_columns_are_as_the_report_says",
    "report_no_affected_rows": "property/test_conditions.py::test_a_condition_affects_rows_only_as_the_report_says",
    "report_mixed_columns_as_kept": "property/test_mixed_columns.py::test_mixed_columns_are_as_the_report_says",
    "ignore_other_windows_below": "property/test_cascades.py::test_results_of_a_window_are_not_taken_for_those_of_another_one",
}
"""For each planted defect (`planted.py`), the test that has to fail."""


@pytest.mark.slow
@pytest.mark.parametrize("defect", LAWS)
def test_a_planted_defect_is_noticed(defect: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "EVERFOLD_PLANTED": defect,
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "property.planted", str(TESTS / LAWS[defect])]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout, done.stdout
    assert "assert" in done.stdout.lower(), done.stdout
