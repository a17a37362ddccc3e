"""Reports of case results: as text with a diff for each failure, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence

from everfold.testing.runner import SINGLE_ROWS, InvalidFile, Outcome


def format_failure(outcome: Outcome) -> str:
    """Return a failure as text, with the location of the case."""
    case = outcome.case
    head = f"{case.file.path}:{case.line}: {case.name} ({outcome.engine}, {outcome.mode})"
    return _indent(head, outcome.message)


def format_invalid(file: InvalidFile) -> str:
    """Return the failure of a case file that cannot be read as text, with its location."""
    line = "" if file.line is None else f":{file.line}"
    return _indent(f"{file.path}{line}: invalid case file", file.message)


def format_summary(outcomes: Sequence[Outcome], invalid: Sequence[InvalidFile] = ()) -> str:
    """Return the last lines; the very last has the number of passed and failed cases.

    A case counts once for each engine and mode, a file that cannot be read as one failure.
    """
    passed = sum(outcome.passed for outcome in outcomes)
    capped = sum(outcome.capped for outcome in outcomes)
    note = f"{capped} ran only the first {SINGLE_ROWS} rows of a step row by row\n" if capped else ""
    return f"{note}{passed} passed, {len(outcomes) - passed + len(invalid)} failed"


def to_json(outcomes: Sequence[Outcome], invalid: Sequence[InvalidFile] = ()) -> str:
    """Return all outcomes as JSON; the entry of an invalid file has no case, engine or mode."""
    passed = sum(outcome.passed for outcome in outcomes)
    cases = [
        *(
            {
                "file": str(file.path),
                "line": file.line,
                "name": None,
                "engine": None,
                "mode": None,
                "passed": False,
                "seconds": 0.0,
                "message": file.message,
            }
            for file in invalid
        ),
        *(
            {
                "file": str(outcome.case.file.path),
                "line": outcome.case.line,
                "name": outcome.case.name,
                "engine": outcome.engine,
                "mode": outcome.mode,
                "passed": outcome.passed,
                "seconds": round(outcome.seconds, 3),
                **({"rows_one_by_one": SINGLE_ROWS} if outcome.capped else {}),
                **({"message": outcome.message} if outcome.message else {}),
            }
            for outcome in outcomes
        ),
    ]
    return json.dumps({"passed": passed, "failed": len(cases) - passed, "cases": cases}, ensure_ascii=False, indent=2)


def _indent(head: str, message: str) -> str:
    return "\n".join([head, *(f"    {line}".rstrip() for line in message.split("\n"))])
