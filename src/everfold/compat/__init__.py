"""State compatibility between query versions, judged before anything starts."""

from __future__ import annotations

from everfold.compat.carry import Succession, succeeding
from everfold.compat.judgement import Finding, Judgement, OperatorJudgement, judge
from everfold.compat.rules import REFERENCE, Terms
from everfold.compat.shape import QueryShape, shape_of
from everfold.compat.verdict import Verdict

__all__ = [
    "REFERENCE",
    "Finding",
    "Judgement",
    "OperatorJudgement",
    "QueryShape",
    "Succession",
    "Terms",
    "Verdict",
    "judge",
    "shape_of",
    "succeeding",
]
