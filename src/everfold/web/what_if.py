"""What a changed query would keep and cost, before anything is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everfold.cli.change import Change, judge_change
from everfold.cli.run import STATE_FOLDER, RunOptions, Script
from everfold.rendering.quantities import format_bytes
from everfold.web.jobs import JobView
from everfold.web.versions import DiffLine, compare_scripts


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A change that could be made. plan: how the plan would differ. costs: by `--on-change`."""

    change: Change
    plan: tuple[DiffLine, ...]
    costs: Mapping[str, Sequence[str]]


def judge_script(view: JobView, text: str) -> WhatIf:
    """Judge the change of a job to a script. Raises EverfoldError if the script is wrong."""
    assert view.manifest is not None
    script = Script(text=text, source="new query", folder=_find_folder(view), name="new query")
    # Variables are those of the process that runs the job: no visitor reads the dashboard's.
    change = judge_change(view.location, script, RunOptions(environment={}), lenient="${" in text)
    plan = compare_scripts(view.manifest.version.plan, change.explained)
    read = {answer.how.value: answer.cost_summary for answer in change.answers}
    return WhatIf(change, plan, {how: _describe_cost(view, how, read.get(how, "")) for how in change.plans})


def _find_folder(view: JobView) -> Path:
    """Return where relative paths of the job's script start, to judge by its directory."""
    folder = view.location.local_path
    if folder is None:
        return Path()
    parts = [each for each in folder.parents if each.name == STATE_FOLDER]
    return parts[0].parent if parts else folder.parent


def _describe_cost(view: JobView, how: str, read: str) -> list[str]:
    """Return what it costs to carry a change out, in sentences; only known facts.

    read: what is read again, for people.
    """
    progress = view.status.progress
    if how in ("backfill", "rebuild"):
        return [read] if read else []
    if progress is None:
        return []
    if how == "reset":
        return [f"discards {progress.state_rows:,} rows of state"]
    size = sum(each.state_bytes or 0 for each in progress.operators)
    about = f", about {format_bytes(size)}" if size else ""
    return [f"copies the checkpoint: {progress.state_rows:,} rows of state{about}; reads no input again"]
