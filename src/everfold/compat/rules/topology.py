"""Rules about which operators there are. Their changes have one side only, so what they say comes from the judge."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.rule import Change, Said, rule
from everfold.compat.verdict import Verdict


@rule("OPR001", Verdict.INCOMPATIBLE)
def new_operator(change: Change) -> Iterator[Said]:
    """An operator that keeps state is new: an aggregation, an OVER, a Top-N that the old query did not have.

    It would have to start without what the rows before have made of the operators around it. With `--rules extended` it may start so, beside operators that are kept or above
    them, but not below: one that is kept would take in other rows than before.

    Way out: compute it in a job of its own, over the old one's result, or take a new `--state` folder.
    """
    yield Said(f"{change.new.label} is new", change.new.span)


@rule("OPR002", Verdict.INCOMPATIBLE)
def operator_gone(change: Change) -> Iterator[Said]:
    """An operator that kept state is gone.

    The operators that are left would take in other rows than before, or the result would be of another kind. An INSERT that goes as a whole is no harm to the others:
    with `--rules extended` its state is given up and they go on.

    Way out: take a new `--state` folder.
    """
    yield Said(f"{change.old.label} is gone")


@rule("OPR004", Verdict.FULLY)
def insert_gone(change: Change) -> Iterator[Said]:
    """An INSERT is gone, and with it an operator that kept state: only by the extended rules.

    Its state is given up. The other INSERTs of the job have operators of their own, which keep theirs.
    """
    yield Said(f"{change.old.label} is gone, with its INSERT")


@rule("OPR003", Verdict.INCOMPATIBLE)
def other_kind(change: Change) -> Iterator[Said]:
    """An operator is of another kind: a group where there was a window, say.

    Each kind keeps its state in a form of its own.

    Way out: take a new `--state` folder.
    """
    yield Said(f"{change.old.label} has become {change.new.label}", change.new.span)


@rule("OPR005", Verdict.PARTIALLY)
def operator_starts(change: Change) -> Iterator[Said]:
    """An operator that keeps state is new, beside operators that are kept or above them: only by the extended rules.

    It starts empty and takes the rows that come after the restart: of a table that the job reads already those that come from now on, of another table all, and of
    an operator below, which keeps its state, all that this gives from now on. A window that is open below comes to it whole. Its result is of these rows alone.
    """
    yield Said(f"{change.new.label} is new: it starts empty at the restart", change.new.span)


@rule("OPR006", Verdict.INCOMPATIBLE)
def operator_over_changes(change: Change) -> Iterator[Said]:
    """An operator that keeps state is new, over rows that may be taken back. Only by the extended rules, and where OPR007 does not help.

    It may be over a table whose rows change, over windows with early results, or depend on the order in which rows come (FIRST_VALUE, say). Rows that it never took in could be
    taken back from it, and its result would be wrong for ever.

    Way out: compute it in a job of its own, over the old one's result, or take a new `--state` folder.
    """
    yield Said(f"{change.new.label} is new, over rows that may be taken back", change.new.span)


@rule("OPR007", Verdict.FULLY)
def operator_over_rows(change: Change) -> Iterator[Said]:
    """An operator that keeps state is new, above one that is kept and has its whole result in its state: groups, a Top-N, the last row by key. Only by the extended rules.

    The operator below gives its rows again, to the new one alone: so its result is that of a query that has always been so, without any history. Not where state is forgotten
    (`table.exec.state.ttl`).
    """
    yield Said(f"{change.new.label} is new: it begins with the rows below as they are", change.new.span)


RULES = (
    new_operator,
    operator_gone,
    other_kind,
    insert_gone,
    operator_starts,
    operator_over_changes,
    operator_over_rows,
)
