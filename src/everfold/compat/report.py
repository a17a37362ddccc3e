"""Format a judgement as text, as JSON, as annotations of a pull request, or as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from everfold.compat.columns import ColumnJudgement, RowEffect
from everfold.compat.judgement import Alternative, Finding, Judgement
from everfold.compat.verdict import Verdict
from everfold.errors import Span

_LEVELS = {
    Verdict.FULLY: "notice",
    Verdict.PARTIALLY: "warning",
    Verdict.UNKNOWN: "warning",
    Verdict.INCOMPATIBLE: "error",
}
_SHOWN_NAMES = 8
"""How many columns a sentence names."""


def as_json(
    judgement: Judgement,
    notes: Sequence[str] = (),
    plans: Mapping[str, Sequence[str]] = MappingProxyType({}),
    findings: Sequence[Mapping[str, object]] = (),
    answers: Sequence[Mapping[str, object]] = (),
) -> str:
    """Format the judgement as one JSON object: `verdict`, `operators`, `columns`, `rows`,
    `alternatives`, and `notes`, `plans`, `answers` and `findings` if there are any.

    plans: the stages of the change, by value of `--on-change`. answers: those that a user can give.
    findings: about tables.
    """
    several = len({each.sink for each in judgement.columns}) > 1
    found: dict[str, Any] = {
        "verdict": judgement.verdict.value,
        "operators": [
            {
                "operator": each.operator,
                "verdict": each.verdict.value,
                "findings": [_finding(one) for one in each.findings],
            }
            for each in judgement.operators
        ],
        "columns": [
            {
                "name": each.name,
                "status": each.status.value,
                "reason": each.reason,
                "state": each.status.value,
                "meaning": each.meaning.value,
                "expression": each.expression,
                "was": each.was or None,
                "since": each.since,
                **({"sink": each.sink} if several else {}),
            }
            for each in judgement.columns
        ],
        "rows": [
            {
                "condition": effect.condition,
                "message": effect.message,
                **_locate(effect.location),
                **({"sink": effect.sink} if several else {}),
            }
            for effect in judgement.rows
        ],
        "alternatives": [
            {
                "settings": dict(alternative.settings),
                "options": list(alternative.options),
                "verdict": alternative.verdict.value,
                "columns": [
                    {"name": column.name, **({"sink": column.sink} if several else {})}
                    for column in alternative.columns
                ],
            }
            for alternative in [judgement.alternative]
            if alternative is not None
        ],
    }
    if notes:
        found["notes"] = list(notes)
    if plans:
        found["plans"] = {how: list(stages) for how, stages in plans.items()}
    if answers:
        found["answers"] = list(answers)
    if findings:
        found["findings"] = list(findings)
    return json.dumps(found, ensure_ascii=False, indent=2)


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "code": found.code,
        "verdict": found.verdict.value,
        "message": found.message,
        **_locate(found.location),
    }


def _locate(location: Span | None) -> dict[str, Any]:
    if location is None:
        return {"file": None, "line": None, "column": None}
    return {"file": location.source, "line": location.line, "column": location.column}


def as_github(judgement: Judgement) -> str:
    """Format the judgement as workflow commands: one annotation per finding, and one for the
    verdict.
    """
    lines = [
        f"::{_LEVELS[judgement.verdict]} title=everfold::{_escape(f'the change is {_describe(judgement.verdict)}')}"
    ]
    for operator in judgement.operators:
        for each in operator.findings:
            text = f"{operator.operator}: {each.message}"
            lines.append(as_annotation(_LEVELS[each.verdict], each.code, text, each.location))
    lines += [as_warning(_describe_rows(effect)) for effect in judgement.rows]
    if judgement.alternative is not None:
        lines.append(as_annotation("notice", "everfold", _describe_alternative(judgement.alternative), None))
    return "\n".join(lines)


def _describe_rows(effect: RowEffect) -> str:
    return f"`{effect.condition}` {effect.message}"


def as_markdown(title: str, judgement: Judgement, notes: Sequence[str] = ()) -> str:
    """Format the judgement as Markdown: verdict, table of the columns, findings, notes."""
    lines = [f"### {_cell(title)}: {_describe(judgement.verdict)}"]
    if judgement.columns:
        rows = _column_rows(judgement.columns)
        lines += ["", "| column | state | why |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    findings = [
        f"- `{each.code}` {_cell(operator.operator)}: {_cell(each.message)}"
        for operator in judgement.operators
        for each in operator.findings
    ]
    findings += [f"- rows: {_cell(_describe_rows(effect))}" for effect in judgement.rows]
    if findings:
        lines += ["", *findings]
    if judgement.alternative is not None:
        lines += ["", _cell(_describe_alternative(judgement.alternative))]
    if notes:
        lines += ["", *(f"- note: {_cell(each)}" for each in notes)]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return a string as Markdown that shows it: names of a query are not markup."""
    return re.sub(r"([\\*_<>|\[\]#~&])", r"\\\1", text).replace("\r", " ").replace("\n", " ")


def as_warning(text: str) -> str:
    """Format a sentence as a workflow command."""
    return f"::warning title=everfold::{_escape(text)}"


def as_annotation(level: str, title: str, text: str, location: Span | None) -> str:
    """Format a text as a workflow command. level: `notice`, `warning` or `error`."""
    place = ""
    if location is not None and location.text:
        place = f"file={_property(location.source)},line={location.line},col={location.column},"
    return f"::{level} {place}title={_property(title)}::{_escape(text)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def _describe(verdict: Verdict) -> str:
    return "of unknown compatibility" if verdict is Verdict.UNKNOWN else verdict.value


def as_text(
    judgement: Judgement,
    notes: Sequence[str] = (),
    plans: Mapping[str, Sequence[str]] = MappingProxyType({}),
    answers: str = "",
) -> str:
    """Format the judgement as text: the verdict, the findings by operator, a table of the columns,
    affected rows, the answers, the stages of the change, notes.

    plans: the stages of the change, by value of `--on-change`.
    """
    lines = [f"The change is {_describe(judgement.verdict)}."]
    for operator in judgement.operators:
        lines += ["", f"{operator.operator}: {operator.verdict.value}"]
        lines += [f"  {each.code}  {each.message}{_place(each)}" for each in operator.findings]
    if judgement.columns:
        lines += ["", *_table(judgement.columns)]
    if judgement.rows:
        lines += ["", *(f"rows: {_describe_rows(effect)}" for effect in judgement.rows)]
    if judgement.alternative is not None:
        lines += ["", _describe_alternative(judgement.alternative)]
    if answers:
        lines += ["", answers]
    for how, stages in plans.items():
        option = "" if judgement.verdict is Verdict.FULLY else f" with --on-change {how}"
        lines += ["", f"`everfold run`{option} would:"]
        lines += [f"  {number}. {stage}" for number, stage in enumerate(stages, 1)]
    if notes:
        lines += ["", *(f"note: {each}" for each in notes)]
    return "\n".join(lines)


def _describe_alternative(alternative: Alternative) -> str:
    """Return what other options would keep, as a sentence."""
    settings = " and ".join(f"SET '{name}' = '{value}'" for name, value in alternative.settings.items())
    if alternative.settings == {"everfold.compat.rules": "extended"}:
        settings = f"--rules extended ({settings})"
    settings = settings or " ".join(alternative.options)
    names = [row[0] for row in _column_rows(alternative.columns)]
    shown = names if len(names) <= _SHOWN_NAMES else [*names[:_SHOWN_NAMES], f"{len(names) - _SHOWN_NAMES} more"]
    kept = f", and keeps {', '.join(shown)}" if shown else ""
    return f"With {settings}, the change is {_describe(alternative.verdict)}{kept}."


def _place(found: Finding) -> str:
    if found.location is None:
        return ""
    return f"  ({found.location.source}:{found.location.line}:{found.location.column})"


def _table(columns: Sequence[ColumnJudgement]) -> list[str]:
    rows = [("column", "state", "why"), *_column_rows(columns)]
    widths = [max(len(row[at]) for row in rows) for at in range(2)]
    return [f"{name:<{widths[0]}}  {status:<{widths[1]}}  {reason}" for name, status, reason in rows]


def _column_rows(columns: Sequence[ColumnJudgement]) -> list[tuple[str, str, str]]:
    has_several_tables = len({column.sink for column in columns}) > 1

    def name(column: ColumnJudgement) -> str:
        return f"{column.sink}.{column.name}" if has_several_tables and column.sink else column.name

    return [(name(column), column.label, column.reason) for column in columns]
