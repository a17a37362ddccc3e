"""State compatibility between query versions, judged before anything starts."""

from __future__ import annotations

from everfold.compat.carry import Carry, carry_state
from everfold.compat.judgement import Finding, Judgement, OperatorJudgement, judge
from everfold.compat.rules import REFERENCE, CompatOptions
from everfold.compat.shape import QueryShape, shape_of
from everfold.compat.verdict import Verdict

__all__ = [
    "REFERENCE",
    "Carry",
    "CompatOptions",
    "Finding",
    "Judgement",
    "OperatorJudgement",
    "QueryShape",
    "Verdict",
    "carry_state",
    "judge",
    "shape_of",
]
