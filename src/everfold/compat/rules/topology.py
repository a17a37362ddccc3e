"""Rules about which operators there are. Their changes have one side only, so what they say comes from the judge."""

from __future__ import annotations

from collections.abc import Iterator

from everfold.compat.rules.rule import Change, Said, rule
from everfold.compat.verdict import Verdict


@rule("OPR001", Verdict.INCOMPATIBLE)
def new_operator(change: Change) -> Iterator[Said]:
    """An operator that keeps state is new: an aggregation, an OVER, a Top-N that the old query did not have.

    It would have to start without what the rows before have made of the operators around it.

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


RULES = (new_operator, operator_gone, other_kind, insert_gone)
