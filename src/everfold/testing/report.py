"""Reports of case results: as text with a diff for each failure, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence

from everfold.testing.runner import Outcome


def format_failure(outcome: Outcome) -> str:
    """Return a failure as text, with the location of the case."""
    case = outcome.case
    head = f"{case.file.path}:{case.line}: {case.name} ({outcome.engine}, {outcome.mode})"
    return "\n".join([head, *(f"    {line}".rstrip() for line in outcome.message.split("\n"))])


def format_summary(outcomes: Sequence[Outcome]) -> str:
    """Return the last line: the number of passed and failed cases, per engine and mode."""
    failed = sum(not outcome.passed for outcome in outcomes)
    return f"{len(outcomes) - failed} passed, {failed} failed"


def to_json(outcomes: Sequence[Outcome]) -> str:
    """Return all outcomes as JSON."""
    failed = sum(not outcome.passed for outcome in outcomes)
    cases = [
        {
            "file": str(outcome.case.file.path),
            "line": outcome.case.line,
            "name": outcome.case.name,
            "engine": outcome.engine,
            "mode": outcome.mode,
            "passed": outcome.passed,
            "seconds": round(outcome.seconds, 3),
            **({"message": outcome.message} if outcome.message else {}),
        }
        for outcome in outcomes
    ]
    return json.dumps(
        {"passed": len(outcomes) - failed, "failed": failed, "cases": cases}, ensure_ascii=False, indent=2
    )
