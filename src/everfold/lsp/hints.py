"""What a change of a script does to the state of its jobs, for each column of a result.

The script is compared with the query of its job, if a job directory exists, else with the version
that git has. The verdicts are those of `everfold check`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from everfold.cli.run import STATE_FOLDER
from everfold.compat import CompatOptions, Judgement, judge_pairs, pair_queries, shape_of
from everfold.compat.columns import ColumnJudgement, Status
from everfold.compat.shape import QueryShape
from everfold.errors import EverfoldError
from everfold.jobs.job_pairs import JobOutline, pair_jobs
from everfold.jobs.script_jobs import find_script_jobs
from everfold.jobs.sink_tables import compare_sinks
from everfold.lsp.analysis import Analysis, Work, analyze
from everfold.plan.nodes import Collect
from everfold.sql import syntax
from everfold.sql.statements import Insert, Query, StatementSet
from everfold.storage import local

_LABELS = {
    Status.KEPT: "kept",
    Status.MIXED: "mixed",
    Status.BACKFILLED: "backfilled",
    Status.STARTS: "starts now",
    Status.DROPPED: "dropped",
    Status.LOST: "state lost",
}
_GIT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Hint:
    """A few words at the end of a column. offset: where they are shown. reason: what they mean."""

    offset: int
    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The verdict on a statement that runs a query. offset: where it begins."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A statement that is compared with its former queries. base: with what, for people."""

    work: Work
    judgement: Judgement
    base: str


def compare_with_jobs(analysis: Analysis, script: Path, state: Path | None = None) -> list[Comparison]:
    """Compare each INSERT of a script with its job, if that has run.

    state: the job directory if it is not the default one.
    """
    folder = local(state or script.parent / STATE_FOLDER / script.stem)
    works = [work for work in analysis.works if state is not None or not isinstance(work.roots[0], Collect)]
    try:
        script_jobs = find_script_jobs(folder, [work.submit for work in works], script.parent)
    except (EverfoldError, OSError):  # a folder is damaged: `everfold run` says so
        return []
    comparisons: list[Comparison] = []
    for work, outline, job in zip(works, script_jobs.outlines, script_jobs.jobs, strict=True):
        if job is None:
            continue
        path = Path(str(job.job_dir.path))
        shown = path.relative_to(script.parent) if path.is_relative_to(script.parent) else path
        base = f"version {job.manifest.version.number} of the job in {shown}"
        comparisons.append(Comparison(work, _judge(job.outline, outline, work), base))
    return comparisons


def compare_with_git(analysis: Analysis, script: Path) -> list[Comparison]:
    """Compare the queries of a script with those of its version in git, if there is one."""
    old_text = read_committed(script)
    if old_text is None or not analysis.works:
        return []
    old = analyze(old_text, f"HEAD:{script.name}", script.parent, analysis.dialect)
    if not old.works:
        return []
    old_outlines, outlines = (
        [JobOutline.of_statement(work.submit, script.parent) for work in works] for works in (old.works, analysis.works)
    )
    pairs = pair_jobs(old_outlines, outlines)
    return [
        Comparison(work, _judge(old_outlines[pairs[number]], outlines[number], work), "the version in git")
        for number, work in enumerate(analysis.works)
        if number in pairs
    ]


def _judge(old: JobOutline, new: JobOutline, work: Work) -> Judgement:
    renamed = compare_sinks(old.sinks, new.sinks).renamed
    return judge_pairs(pair_queries(old.shapes, new.shapes, renamed), CompatOptions.of(work.submit.settings))


def read_committed(script: Path) -> str | None:
    """Return the text of a file at git's HEAD; None without git, or for an unknown file."""
    command = ["git", "-C", str(script.parent), "cat-file", "blob", f"HEAD:./{script.name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, stdin=subprocess.DEVNULL, check=False)
        return done.stdout.decode() if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def list_hints(comparison: Comparison) -> Iterator[Hint]:
    """Yield a hint for each column of the results, and one for the columns that are dropped."""
    judgements = {(column.sink, column.name): column for column in comparison.judgement.columns}
    for shape, part in _queries(comparison.work):
        for position, column in enumerate(shape.columns):
            judgement = judgements.get((shape.sink, column.name))
            end = _end_of_column(part, position, shape)
            if judgement is not None and end is not None:
                yield Hint(end, _LABELS[judgement.status], f"{judgement.reason}; compared with {comparison.base}")
        dropped = [
            column for column in judgements.values() if column.sink == shape.sink and column.status is Status.DROPPED
        ]
        items = _items(part.query)
        if dropped and items and (last := items[-1].span) is not None:
            names = ", ".join(column.name for column in dropped)
            yield Hint(last.end, f"dropped: {names}", f"{dropped[0].reason}; compared with {comparison.base}")


def summarize(comparison: Comparison) -> Summary:
    """Return the verdict on the statement, with the number of columns of each kind."""
    sinks = {shape.sink for shape, _ in _queries(comparison.work)}
    columns = [column for column in comparison.judgement.columns if column.sink in sinks]
    counts = [(_LABELS[status], _count(columns, status)) for status in Status]
    parts = ", ".join(f"{number} {label}" for label, number in counts if number)
    verdict = comparison.judgement.verdict.value
    return Summary(comparison.work.statement.span.start, f"{verdict}: {parts}" if parts else verdict)


def _count(columns: Sequence[ColumnJudgement], status: Status) -> int:
    return sum(each.status is status for each in columns)


def _queries(work: Work) -> Iterator[tuple[QueryShape, Query | Insert]]:
    """Yield the shape of each query of a statement, and the query or INSERT itself."""
    statement = work.statement
    parts = statement.inserts if isinstance(statement, StatementSet) else (statement,)
    for root, part in zip(work.roots, parts, strict=False):
        if isinstance(part, Query | Insert):
            yield shape_of(root), part


def _items(query: syntax.Query) -> Sequence[syntax.SelectItem | syntax.Projection]:
    """Return the items of the outermost SELECT."""
    match query:
        case syntax.Select(items=items):
            return items
        case syntax.TopicQuery(items=projections):
            return projections
        case syntax.SetOperation(left=left):
            return _items(left)
        case syntax.NestedQuery(query=inner):
            return _items(inner)
        case _:
            return ()


def _end_of_column(part: Query | Insert, at: int, shape: QueryShape) -> int | None:
    """Return where the item of SELECT ends that computes a column."""
    items, name = _items(part.query), shape.columns[at].name
    stars = (syntax.Star, syntax.QualifiedStar)
    has_all = len(items) == len(shape.columns) and not any(isinstance(each.value, stars) for each in items)
    found: syntax.Node | None = None
    if isinstance(part, Insert) and part.columns is not None:
        found = items[part.columns.index(name)] if has_all and name in part.columns else None
    elif has_all and not isinstance(part.query, syntax.TopicQuery):
        found = items[at]
    else:
        found = next((each for each in items if _name_of(each) == name), None)
    return None if found is None or found.span is None else found.span.end


def _name_of(item: syntax.SelectItem | syntax.Projection) -> str | None:
    if isinstance(item, syntax.Projection):
        return item.target.names[-1] if item.target is not None else syntax.implicit_name(item.value)
    return item.alias.name if item.alias is not None else syntax.implicit_name(item.value)
