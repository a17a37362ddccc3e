"""`everfold check`: print which state survives a change of the query, without running anything."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from everfold.cli.change import Change, TableFinding, judge_change
from everfold.cli.run import RunOptions, Script
from everfold.errors import Diagnostic, EverfoldError
from everfold.hidden_values import HiddenValues, activate

if TYPE_CHECKING:
    from everfold.jobs.answers import Answer
    from everfold.jobs.folders import FolderName

CheckFormat: TypeAlias = Literal["text", "json", "github"]


def check(old: Script | FolderName, new: Script, options: RunOptions, format_: CheckFormat) -> int:
    """Print the verdict on two scripts, or on a job directory and a script; return its exit code.

    In the format `github`, also append a Markdown table to the file of `GITHUB_STEP_SUMMARY`. For a
    job directory, also print the stages in which `everfold run` would carry the change out.

    Raises what `everfold run` raises for the new script before Spark starts; UsageError
    `nothing-to-check` for a script without a query, `no-job` for a folder that is not a job
    directory; StateError `damaged-manifest`.
    """
    from everfold.compat import report

    scripts = (new, old) if isinstance(old, Script) else (new,)
    hidden = HiddenValues.of((script.text for script in scripts), options.environment)
    activate(hidden)
    try:
        change = judge_change(old, new, options)
    except EverfoldError as error:
        if format_ == "github":
            sys.stdout.writelines(f"{_annotate('error', diagnostic)}\n" for diagnostic in error.diagnostics)
        raise
    change = _hide_values(change, hidden)
    match format_:
        case "json":
            findings = [_finding_as_json(finding) for finding in change.tables]
            answers = [_answer_as_json(answer) for answer in change.answers]
            text = report.as_json(change.judgement, change.notes, change.plans, findings, answers)
        case "github":
            annotations = [
                _annotate("error" if finding.answer is None else "notice", finding.changed.diagnostic)
                for finding in change.tables
            ]
            warnings = map(report.as_warning, change.unreachable)
            text = "\n".join([report.as_github(change.judgement), *annotations, *warnings])
            _append_summary(_as_markdown(new, change))
        case _:
            shown = report.as_text(change.judgement, change.notes, change.plans, _answers_as_text(change))
            text = "\n\n".join([shown, *map(_finding_as_text, change.tables)])
    sys.stdout.write(text + "\n")
    return change.exit_code


def _hide_values(change: Change, hidden: HiddenValues) -> Change:
    return replace(
        change,
        notes=tuple(map(hidden.hide, change.notes)),
        unreachable=tuple(map(hidden.hide, change.unreachable)),
        tables=tuple(
            replace(finding, changed=replace(finding.changed, message=hidden.hide(finding.changed.message)))
            for finding in change.tables
        ),
    )


def _answer_as_json(answer: Answer) -> dict[str, object]:
    from everfold.jobs.change import MEANINGS

    return {
        "option": answer.option,
        "on_change": answer.how.value,
        "meaning": MEANINGS[answer.how],
        "cost": answer.cost.to_json(),
    }


def _answers_as_text(change: Change) -> str:
    """Return the answers to `everfold run`, empty if it asks for none."""
    from everfold.compat import Verdict
    from everfold.jobs.change import list_answers

    if not change.answers or change.judgement.verdict is Verdict.FULLY:
        return ""
    return f"`everfold run` asks for one of:\n{list_answers(change.answers)}"


def _finding_as_json(finding: TableFinding) -> dict[str, object]:
    diagnostic = finding.changed.diagnostic
    location = diagnostic.span if diagnostic.span is not None and diagnostic.span.text else None
    return {
        "code": diagnostic.code,
        "table": finding.changed.table.name,
        "message": diagnostic.message,
        "file": None if location is None else location.source,
        "line": None if location is None else location.line,
        "column": None if location is None else location.column,
        "answers": [{"option": choice, "meaning": meaning} for choice, meaning in finding.changed.choices.items()],
        "answer": finding.answer,
    }


def _finding_as_text(finding: TableFinding) -> str:
    """Return a finding with its answers, or with the answer that was given."""
    diagnostic = finding.changed.diagnostic
    place = (
        f"  ({diagnostic.span.source}:{diagnostic.span.line}:{diagnostic.span.column})"
        if diagnostic.span is not None
        else ""
    )
    head = f"{diagnostic.code}: {diagnostic.message}{place}"
    if finding.answer is not None:
        return f"{head}\n  answered: {finding.answer}"
    assert diagnostic.help is not None
    return "\n".join([head, *diagnostic.help.splitlines()[1:]])


def _annotate(level: str, diagnostic: Diagnostic) -> str:
    from everfold.compat import report

    text = diagnostic.message if diagnostic.help is None else f"{diagnostic.message}\n{diagnostic.help}"
    return report.as_annotation(level, diagnostic.code, text, diagnostic.span)


def _as_markdown(new: Script, change: Change) -> str:
    from everfold.compat import report

    answers = ((finding, finding.answer or " or ".join(finding.changed.choices)) for finding in change.tables)
    notes = [f"{finding.changed.message}: {answer}" for finding, answer in answers]
    return report.as_markdown(new.source, change.judgement, [*notes, *change.notes])


def _append_summary(markdown: str) -> None:
    """Append to the summary of the job that GitHub runs, if it runs this process."""
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(markdown + "\n\n")
