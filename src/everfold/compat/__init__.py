"""State compatibility between query versions, judged before anything starts."""

from __future__ import annotations

from everfold.compat.carry import carry_state, record_coverage
from everfold.compat.judgement import (
    Finding,
    Judgement,
    OperatorJudgement,
    join_judgements,
    judge,
    judge_left_job,
    judge_pairs,
)
from everfold.compat.matching import QueryPair, pair_queries
from everfold.compat.rules import REFERENCE, CompatOptions
from everfold.compat.shape import QueryShape, shape_of
from everfold.compat.verdict import Verdict

__all__ = [
    "REFERENCE",
    "CompatOptions",
    "Finding",
    "Judgement",
    "OperatorJudgement",
    "QueryPair",
    "QueryShape",
    "Verdict",
    "carry_state",
    "join_judgements",
    "judge",
    "judge_left_job",
    "judge_pairs",
    "pair_queries",
    "record_coverage",
    "shape_of",
]
