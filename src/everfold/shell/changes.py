"""A changed job: judge the new query before it starts, and ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.compat import CompatOptions, Judgement, Verdict, judge_pairs, pair_queries
from everfold.compat.report import as_text
from everfold.errors import StateError
from everfold.jobs.change import OnChange
from everfold.jobs.manifest import Manifest, NewQuery
from everfold.jobs.rewind import check_duplicates, describe_effects
from everfold.plan.naming import number_operators

if TYPE_CHECKING:
    from everfold.shell.screen import Screen
    from everfold.sql.planner import Submit

_ANSWERS = {
    OnChange.ACCEPT: "keep the reusable state; new aggregates start now",
    OnChange.BACKFILL: "keep the reusable state; compute new aggregates from the beginning of the input",
    OnChange.REBUILD: "discard the state and read the input from its beginning",
    OnChange.RESET: "discard the state and continue at the current position in the input",
    OnChange.REFUSE: "leave the job as it is",
}
_WITH_STATE = (OnChange.ACCEPT, OnChange.BACKFILL)
_NO = "no"


def judge_change(manifest: Manifest, submit: Submit) -> Judgement | None:
    """Return the verdict on a query that is to continue a job; None if it is the job's query."""
    zone = submit.settings.local_time_zone
    query = NewQuery(roots=number_operators(submit.roots), zone=zone, sql=submit.text, bind=submit.bind)
    if manifest.version.is_query(query):
        return None
    pairs = pair_queries(manifest.version.read_shapes(query), query.shapes)
    return judge_pairs(pairs, CompatOptions.of(submit.settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with a changed job. duplicates: rows may be written twice to its tables."""

    how: OnChange
    duplicates: bool = False


def decide_change(screen: Screen, name: str, manifest: Manifest, judgement: Judgement) -> Decision:
    """Show the verdict on a changed job, and ask the user what to do.

    A change that keeps the whole state is accepted.
    """
    screen.show_message(f"The query of job `{name}` has changed.\n\n{as_text(judgement)}\n")
    if judgement.verdict is Verdict.FULLY:
        return Decision(how=OnChange.ACCEPT)
    keeps_state = judgement.verdict is Verdict.PARTIALLY
    answers = {
        _NO if each is OnChange.REFUSE else each.value: what
        for each, what in _ANSWERS.items()
        if keeps_state or each not in _WITH_STATE
    }
    answer = screen.ask("Change the job?", answers, _NO)
    if answer == OnChange.REBUILD:
        return _confirm_rebuild(screen, manifest)
    return Decision(how=OnChange.REFUSE if answer == _NO else OnChange(answer))


def _confirm_rebuild(screen: Screen, manifest: Manifest) -> Decision:
    """Show the effect of a rebuild on the job's tables; ask if rows would be written twice."""
    tables = manifest.version.sinks
    for line in describe_effects(tables or (), lambda effect: effect.on_rebuild):
        screen.show_message(line)
    try:
        check_duplicates(tables, accepted=False)
    except StateError as error:
        answers = {"yes": "rebuild the job", "no": "leave it as it is"}
        if screen.ask(f"{error.diagnostics[0].message}. Accept this?", answers, _NO) == _NO:
            return Decision(how=OnChange.REFUSE)
        return Decision(how=OnChange.REBUILD, duplicates=True)
    return Decision(how=OnChange.REBUILD)
