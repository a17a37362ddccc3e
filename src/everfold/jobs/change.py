"""Decide what to do with a job whose query has changed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from typing import TypeAlias

from everfold.compat import Judgement, Verdict
from everfold.compat.report import as_text
from everfold.errors import StateError


class OnChange(StrEnum):
    """What to do with a job when its new query can reuse only part of the state.

    REFUSE: do not change the job.
    ACCEPT: keep the reusable state.
    BACKFILL: like ACCEPT, and compute what new aggregates have missed.
    RESET: discard the state and continue at the current position in the input.
    REBUILD: discard the state and start again at the beginning of the input.
    """

    REFUSE = "refuse"
    ACCEPT = "accept"
    BACKFILL = "backfill"
    RESET = "reset"
    REBUILD = "rebuild"


Decide: TypeAlias = Callable[[Judgement], OnChange]
_OPTIONS = {
    "--on-change accept": "keep the reusable state; new aggregates start now",
    "--on-change backfill": "keep the reusable state; compute new aggregates from the beginning of the input",
    "--on-change rebuild": "discard the state and read the input from its beginning",
    "--on-change reset": "discard the state and continue at the current position in the input",
    "--state FOLDER": "run the new query as a separate job in another folder",
    "the old query": "resume the job unchanged",
}
_WITH_STATE = ("--on-change accept", "--on-change backfill")
IN_PLACE = (*_WITH_STATE, "--on-change reset")
"""The options that continue at the job's position in the input."""


def refuse(_: Judgement) -> OnChange:
    """Refuse every change that does not keep the whole state."""
    return OnChange.REFUSE


def decide_change(job_dir: str, judgement: Judgement, decide: Decide) -> OnChange:
    """Decide how a changed job continues; a change that keeps the whole state is accepted.

    Raises StateError `incompatible-change`, `unknown-change` or `partial-change`, with the report
    of the judgement, unless `decide` allows the change.
    """
    how = OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else decide(judgement)
    if how in (OnChange.REBUILD, OnChange.RESET):
        return how
    match judgement.verdict:
        case Verdict.INCOMPATIBLE:
            message = f"the query has changed, and the new one cannot use the state in `{job_dir}`"
            raise _refusal("incompatible-change", message, judgement, list_options(_WITH_STATE))
        case Verdict.UNKNOWN:
            message = f"the query has changed, and the state in `{job_dir}` may have another meaning in the new one"
            raise _refusal("unknown-change", message, judgement, list_options(_WITH_STATE))
        case Verdict.PARTIALLY if how is OnChange.REFUSE:
            message = f"the query has changed, and the new one can reuse only part of the state in `{job_dir}`"
            raise _refusal("partial-change", message, judgement, list_options())
    return OnChange.ACCEPT if judgement.verdict is Verdict.FULLY else how


def changed_zone_error(state: str, old: str, new: str) -> StateError:
    """Return the error for a session in another time zone than the state. state: which one."""
    return StateError.of(
        "changed-zone",
        f"{state} was computed in the time zone {old}, but the session uses {new}",
        help=f"SET 'table.local-time-zone' = '{old}', or run the query with another --state folder",
    )


def streaming_job_error(job: str) -> StateError:
    """Return the error for a batch in the directory of a streaming job. job: which one."""
    return StateError.of(
        "streaming-job",
        f"{job} is a streaming job, and this query runs as a batch: it would write its whole result again",
        help="run it as a stream, without --batch and 'execution.runtime-mode' = 'batch',"
        " or run the batch with another --state folder",
    )


def list_options(without: Collection[str] = ()) -> str:
    """List the options of a user, one per line."""
    options = {option: what for option, what in _OPTIONS.items() if option not in without}
    width = max(map(len, options))
    return "\n".join(["choose one:", *(f"  {option:{width}}  {what}" for option, what in options.items())])


def _refusal(code: str, message: str, judgement: Judgement, help_: str) -> StateError:
    return StateError.of(code, f"{message}\n\n{as_text(judgement)}\n", help=help_)
