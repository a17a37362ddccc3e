"""`everfold test`: run case files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from everfold.errors import EXIT_FAILED, UsageError
from everfold.testing import report
from everfold.testing.bless import bless
from everfold.testing.casefile import Case, CaseFile, find_case_files, load
from everfold.testing.engines import Engine, EngineName, create_engine
from everfold.testing.runner import InvalidFile, Outcome, run_file


def test(paths: Sequence[Path], engines: Sequence[EngineName], *, as_json: bool, rewrite: bool) -> int:
    """Run all cases of files and folders in this process; return the exit code.

    All files are read before the first case runs. A file that cannot be read is one failure.
    rewrite: write the actual results of failed cases into their files afterwards.
    """
    files: list[CaseFile] = []
    invalid: list[InvalidFile] = []
    for path in find_case_files(paths):
        try:
            files.append(load(path))
        except UsageError as error:
            invalid.append(InvalidFile.of(path, error))
            if not as_json:
                sys.stdout.write(report.format_invalid(invalid[-1]) + "\n\n")
    outcomes: list[Outcome] = []
    ready: list[Engine] = []
    try:
        for name in engines:
            ready.append(create_engine(name))
        for each in ready:
            for file in files:
                for outcome in run_file(file, [each]):
                    outcomes.append(outcome)
                    if not outcome.passed and not as_json:
                        sys.stdout.write(report.format_failure(outcome) + "\n\n")
                        sys.stdout.flush()
        if rewrite:
            _bless(outcomes, ready[0])
    finally:
        for each in ready:
            each.close()
    write = report.to_json if as_json else report.format_summary
    sys.stdout.write(write(outcomes, invalid) + "\n")
    failed = not rewrite and any(not outcome.passed for outcome in outcomes)
    return EXIT_FAILED if failed or invalid else 0


def _bless(outcomes: Sequence[Outcome], engine: Engine) -> None:
    """Write the actual results of failed cases into their files, and print how many."""
    failed: dict[Path, list[Case]] = {}
    for outcome in outcomes:
        cases = failed.setdefault(outcome.case.file.path, [])
        if not outcome.passed and outcome.case not in cases:
            cases.append(outcome.case)
    for cases in failed.values():
        if cases:
            written = bless(cases[0].file, cases, engine)
            tables = "table" if written == 1 else "tables"
            sys.stdout.write(f"{cases[0].file.path}: {written} {tables} written; review the diff\n")
