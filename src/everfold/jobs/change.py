"""Decide what to do with a job whose query has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeAlias

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


MEANINGS = {
    OnChange.ACCEPT: "keep the reusable state; new aggregates start now",
    OnChange.BACKFILL: "keep the reusable state; compute new aggregates from the beginning of the input",
    OnChange.REBUILD: "discard the state and read the input from its beginning",
    OnChange.RESET: "discard the state and continue at the current position in the input",
    OnChange.REFUSE: "leave the job as it is",
}
"""What each answer does, for people, the one that keeps most first."""
_OTHERS = {
    "--state FOLDER": ("run the new query as a separate job in another folder",),
    "the old query": ("resume the job unchanged",),
}


class Answer(Protocol):
    """An answer that would not be refused (`jobs.answers`)."""

    @property
    def how(self) -> OnChange:
        """The value of `--on-change`."""

    @property
    def option(self) -> str:
        """The answer as it is written on the command line."""

    @property
    def meaning(self) -> str:
        """What the answer does, for people."""

    @property
    def cost_summary(self) -> str:
        """What is read again, for people; empty if nothing is."""


class ChangedJob(Protocol):
    """A job whose query has changed (`jobs.answers`)."""

    @property
    def judgement(self) -> Judgement:
        """The compatibility of its state with the new query."""

    def list_answers(self) -> Sequence[Answer]:
        """Return the answers that would not be refused."""


Decide: TypeAlias = Callable[[ChangedJob], OnChange]


def refuse(_: ChangedJob) -> OnChange:
    """Refuse every change that does not keep the whole state."""
    return OnChange.REFUSE


def decide_change(job_dir: str, job: ChangedJob, decide: Decide) -> OnChange:
    """Decide how a changed job continues; a change that keeps the whole state is accepted.

    Raises StateError `incompatible-change`, `unknown-change` or `partial-change`, with the report
    of the judgement, unless `decide` allows the change.
    """
    verdict = job.judgement.verdict
    how = OnChange.ACCEPT if verdict is Verdict.FULLY else decide(job)
    if how in (OnChange.REBUILD, OnChange.RESET):
        return how
    match verdict:
        case Verdict.INCOMPATIBLE:
            message = f"the query has changed, and the new one cannot use the state in `{job_dir}`"
            raise _refusal("incompatible-change", message, job)
        case Verdict.UNKNOWN:
            message = f"the query has changed, and the state in `{job_dir}` may have another meaning in the new one"
            raise _refusal("unknown-change", message, job)
        case Verdict.PARTIALLY if how is OnChange.REFUSE:
            message = f"the query has changed, and the new one can reuse only part of the state in `{job_dir}`"
            raise _refusal("partial-change", message, job)
    return OnChange.ACCEPT if verdict is Verdict.FULLY else how


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


def list_answers(answers: Iterable[Answer]) -> str:
    """Return a table of answers, one per line."""
    return _align({answer.option: (answer.meaning, answer.cost_summary) for answer in answers})


def list_options(answers: Iterable[Answer]) -> str:
    """Return all options of a user, one per line."""
    options: dict[str, tuple[str, ...]] = {answer.option: (answer.meaning, answer.cost_summary) for answer in answers}
    return f"choose one:\n{_align(options | _OTHERS)}"


def _align(options: Mapping[str, tuple[str, ...]]) -> str:
    """Return options with what they do, each line of it below the other."""
    width = max(map(len, options), default=0)
    return "\n".join(
        f"  {'' if number else option:{width}}  {line}"
        for option, lines in options.items()
        for number, line in enumerate(filter(None, lines))
    )


def _refusal(code: str, message: str, job: ChangedJob) -> StateError:
    return StateError.of(code, f"{message}\n\n{as_text(job.judgement)}\n", help=list_options(job.list_answers()))
