"""The plan of a job as a picture: tables, operators and sinks, with what each one has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from everfold.compat.shape import OperatorShape, QueryShape
from everfold.jobs.progress import Progress
from everfold.rendering.quantities import format_bytes, format_instant, format_span

_WIDTH, _GAP_X, _GAP_Y, _LINE, _PADDING = 280, 56, 24, 18, 12
_CHARACTERS, _TITLE_CHARACTERS = 38, 29


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A part of the plan. rank: its column, from the left. lines: facts about it."""

    key: str
    kind: str
    title: str
    lines: tuple[str, ...] = ()
    rank: int = 0

    @property
    def title_lines(self) -> list[str]:
        """The title in at most two lines that fit into the box."""
        return wrap(self.title, _TITLE_CHARACTERS, max_lines=2, placeholder="…")


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box with the position of its upper left corner, in pixels."""

    box: Box
    x: int
    y: int
    width: int
    height: int

    @property
    def texts(self) -> list[tuple[int, str, bool]]:
        """The lines with their baselines, and whether each one is of the title."""
        first, title = self.y + _PADDING + _LINE - 5, self.box.title_lines
        lines = [*((line, True) for line in title), *((_clip(line), False) for line in self.box.lines)]
        return [(first + at * _LINE, line, is_title) for at, (line, is_title) in enumerate(lines)]


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """A plan, drawn from left to right. edges: paths of SVG."""

    boxes: tuple[PlacedBox, ...]
    edges: tuple[str, ...]
    width: int
    height: int

    @property
    def summary(self) -> str:
        """The plan in words, for those who cannot see it."""
        return "; ".join(": ".join([each.box.title, ", ".join(each.box.lines)]) for each in self.boxes)


def draw_plan(shapes: Sequence[QueryShape], names: Sequence[str], progress: Progress | None, now_ms: int) -> PlanGraph:
    """Draw the queries of a job.

    names: of the operators in the checkpoint, in the order of the shapes. progress: of the last
    batch.
    """
    facts = _Facts(progress, now_ms)
    boxes: dict[str, Box] = {}
    edges: list[tuple[str, str]] = []
    for shape in shapes:
        own, names = names[: len(shape.operators)], names[len(shape.operators) :]
        ranks = _rank_operators(shape.operators)
        for at, (name, operator) in enumerate(zip(own, shape.operators, strict=False)):
            key = f"operator {name}"
            boxes[key] = Box(
                key=key,
                kind="operator",
                title=f"{name} {operator.label}",
                lines=facts.describe_operator(name),
                rank=ranks[at],
            )
            edges += [(f"operator {own[below]}", key) for below in operator.below if below < len(own)]
            for table in dict.fromkeys(operator.input.tables):
                boxes.setdefault(
                    f"table {table}",
                    Box(key=f"table {table}", kind="table", title=table, lines=facts.describe_source(table)),
                )
                edges.append((f"table {table}", key))
        sink = shape.sink or "(result)"
        boxes[f"sink {sink}"] = Box(
            key=f"sink {sink}",
            kind="sink",
            title=sink,
            lines=facts.describe_sink(sink),
            rank=max(ranks, default=0) + 1,
        )
        if own:
            edges.append((f"operator {own[0]}", f"sink {sink}"))
    return _place(boxes, edges)


def _rank_operators(operators: Sequence[OperatorShape]) -> list[int]:
    """Return the column of each operator: one more than those below it."""
    ranks = [1] * len(operators)
    for at in reversed(range(len(operators))):
        ranks[at] = 1 + max((ranks[below] for below in operators[at].below if below < len(operators)), default=0)
    return ranks


@dataclass(frozen=True, slots=True)
class _Facts:
    progress: Progress | None
    now_ms: int

    def describe_source(self, table: str) -> tuple[str, ...]:
        sources = () if self.progress is None else self.progress.sources
        found = next((each for each in sources if each.table == table), None)
        if found is None:
            return ()
        behind = [] if found.lag is None else [f"{sum(found.lag.values()):,} behind"]
        return (f"{found.rows:,} rows in", *behind)

    def describe_sink(self, table: str) -> tuple[str, ...]:
        sinks = () if self.progress is None else self.progress.sinks
        return next(((f"{each.rows:,} rows out",) for each in sinks if each.table == table), ())

    def describe_operator(self, name: str) -> tuple[str, ...]:
        operators = () if self.progress is None else self.progress.operators
        found = next((each for each in operators if each.name == name), None)
        if found is None:
            return ()
        lines = [f"{found.rows_out:,} rows out", f"{found.state_rows:,} state rows"]
        if found.state_bytes is not None:
            lines[-1] += f", {format_bytes(found.state_bytes)}"
        if found.watermark_ms is not None:
            lines.append(f"watermark {format_instant(found.watermark_ms)}")
            lines.append(f"lag {format_span(self.now_ms - found.watermark_ms)}")
        if found.late_rows:
            lines.append(f"{found.late_rows:,} late rows dropped")
        return tuple(lines)


def _place(boxes: Mapping[str, Box], edges: Sequence[tuple[str, str]]) -> PlanGraph:
    columns: dict[int, list[Box]] = {}
    for box in boxes.values():
        columns.setdefault(box.rank, []).append(box)
    placed: dict[str, PlacedBox] = {}
    tallest = 0
    for at, rank in enumerate(sorted(columns)):
        y = _GAP_Y
        for box in columns[rank]:
            height = 2 * _PADDING + _LINE * (len(box.title_lines) + len(box.lines))
            placed[box.key] = PlacedBox(box, _GAP_Y + at * (_WIDTH + _GAP_X), y, _WIDTH, height)
            y += height + _GAP_Y
        tallest = max(tallest, y)
    paths = [_draw_edge(placed[start], placed[end]) for start, end in dict.fromkeys(edges)]
    width = 2 * _GAP_Y + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    return PlanGraph(tuple(placed.values()), tuple(paths), width, tallest)


def _draw_edge(start: PlacedBox, end: PlacedBox) -> str:
    x1, y1 = start.x + start.width, start.y + start.height // 2
    x2, y2 = end.x, end.y + end.height // 2
    middle = (x1 + x2) // 2
    return f"M {x1} {y1} C {middle} {y1}, {middle} {y2}, {x2 - 6} {y2}"


def _clip(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
