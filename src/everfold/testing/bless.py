"""Writing actual results into case files in place of the expected ones.

Review the difference afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from everfold.testing.casefile import Case, CaseFile, Step
from everfold.testing.compare import net_rows, reading_order
from everfold.testing.engines import Engine
from everfold.testing.pipetable import align_rows, format_cell
from everfold.testing.runner import collect_results
from everfold.testing.tables import Answer


def bless(file: CaseFile, cases: Iterable[Case], engine: Engine) -> int:
    """Write the results of some of a file's cases into it; return the number of tables written.

    Expected errors, and tables that are not written as a block below `expect: |`, stay unchanged.
    Raises EverfoldError if a query fails.
    """
    lines = file.text.split("\n")
    results: list[tuple[Step, Answer]] = []
    for case in cases:
        blocks = [step for step in case.steps if step.expect is not None]
        if blocks and not any(step.error or step.not_yet for step in case.steps):
            results += [
                (step, answer)
                for step, answer in zip(case.steps, collect_results(case, engine), strict=True)
                if step in blocks
            ]
    # Replace from the end, so that earlier lines keep their numbers.
    written = 0
    for step, answer in sorted(results, key=lambda each: -each[0].line):
        written += _replace(lines, step, answer)
    file.path.write_text("\n".join(lines), encoding="utf-8")
    return written


def _replace(lines: list[str], step: Step, answer: Answer) -> bool:
    block = step.written
    assert block is not None
    head, first = block.line - 2, block.line - 1
    key, bar, comment = lines[head].partition("|")
    if not bar or not key.rstrip().endswith(":"):
        return False
    last = first + len(block.text.rstrip("\n").split("\n"))
    indent = " " * (len(lines[first]) - len(lines[first].lstrip()))
    if step.types is not None:
        _, semicolon, note = comment.partition(";")
        lines[head] = f"{key}|  # {', '.join(answer.types)}{semicolon}{note}"
    lines[first:last] = [indent + line for line in _table(step, answer)]
    return True


def _table(step: Step, answer: Answer) -> list[str]:
    if step.changelog:
        rows = [["op", *answer.names], *([kind, *map(format_cell, row)] for kind, row in answer.changes)]
    else:
        left = sorted(net_rows(answer.changes).elements(), key=reading_order)
        rows = [list(answer.names), *(list(map(format_cell, row)) for row in left)]
    return align_rows(rows)
