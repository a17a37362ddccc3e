"""The shape of a query: what of it decides whether its state can be used by another query, and nothing else.

Everything is told by canonical texts, which go down to the columns of tables, so two shapes can be compared without their plans, and a shape can be kept
where a plan cannot. Texts for people (`label`, `name`) and places do not compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import assert_never

from everfold.compat.state_schema import KeptShape, kept_of
from everfold.errors import Span
from everfold.plan.canonical import call_text, column_texts, expr_text, frame_text
from everfold.plan.changelog import is_updating
from everfold.plan.explain import call_sql, duration, expr_sql, window_text
from everfold.plan.expressions import Expr, InputRef, conjuncts, inputs_of, text_of
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    Join,
    JoinKind,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Root,
    Scan,
    SetOperation,
    Sink,
    Sort,
    StatefulNode,
    TimeKind,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
    children,
    is_stateful,
    last_operators,
    streamed,
    tables_of,
)
from everfold.plan.readable import readable
from everfold.types import ArrayType, DataType, MapType, RowType

NO_CLOCK = "no clock"
"""The `time` of an OVER whose rows are not ordered by time: its result follows every change, and all its rows are in its state."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """An aggregate call. text: what it means. python: whether it is the user's. computed: what of it is no mere column of the operator's input.
    since: the version of the job in which its state begins. function, args, constants: what it computes, of which types, with which constants as texts."""

    text: str
    distinct: bool = False
    python: bool = False
    computed: tuple[str, ...] = ()
    since: int = field(default=0, compare=False)
    label: str = field(default="", compare=False)
    function: str = field(default="", compare=False)
    args: tuple[str, ...] = field(default=(), compare=False)
    constants: tuple[str, ...] = field(default=(), compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InputShape:
    """What an operator reads, down to the operators and tables below it. tables: each as often as it is read. filters: conditions on the way.
    windows: window functions on the way that keep nothing. others: joins and UNNESTs. updating: whether its rows may change."""

    tables: tuple[str, ...]
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    others: tuple[str, ...]
    updating: bool


@dataclass(frozen=True, slots=True)
class PositionShape:
    """Where a record that names no fields has one. field: the column, and the path in it of a field of a ROW. position: as for people."""

    field: str
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShape:
    """A stateful operator. kind: the name of its plan node. keys: of groups and partitions, in order. order: what rows are sorted by. window: window or
    frame. time: the clock it runs on. columns: what it keeps of rows as they are, sorted. counted: the numbers of rows that a Top-N gives.
    emission: when it gives what. scans: all tables below. below: its operators, by their places in the query's. kept: what its pages do not say.
    positions: of the fields that it reads of records without names; None in a shape of before they were noted."""

    kind: str
    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    window: str = ""
    time: str = ""
    columns: tuple[str, ...] = ()
    counted: tuple[int, ...] = ()
    numbered: bool = False
    by_arrival: bool = False
    emission: str = ""
    calls: tuple[CallShape, ...] = ()
    input: InputShape
    scans: tuple[str, ...] = ()
    below: tuple[int, ...] = ()
    positions: tuple[PositionShape, ...] | None = None
    kept: KeptShape = field(default=KeptShape(), compare=False)
    label: str = field(default="", compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A column of the result. text: what it is made of. origins: whose state it comes from: an operator's place, and the text of a call of it, or None
    for its keys and rows."""

    name: str
    text: str
    origins: tuple[tuple[int, str | None], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query: `sink` is the table that it writes, `` for a bare SELECT. operators: those of the sink's side first."""

    sink: str
    operators: tuple[OperatorShape, ...]
    columns: tuple[ColumnShape, ...]

    @property
    def tops(self) -> tuple[int, ...]:
        """The operators above which there is none."""
        below = {at for each in self.operators for at in each.below}
        return tuple(at for at in range(len(self.operators)) if at not in below)

    def below(self, operator: OperatorShape) -> tuple[OperatorShape, ...]:
        """The operators that one of the query's reads."""
        return tuple(self.operators[at] for at in operator.below)

    @property
    def aggregates(self) -> bool:
        """Whether the result has an aggregate of some operator in it."""
        return any(call is not None for each in self.columns for _, call in each.origins)


def shape_of(root: Root) -> QueryShape:
    """The shape of a plan."""
    nodes = [node for node in streamed(root.input) if is_stateful(node)]
    places = {id(node): at for at, node in enumerate(nodes)}
    operators = tuple(_locate(_operator(node, places), node) for node in nodes)
    texts, origins = column_texts(root.input), _origins(root.input, places)
    columns = tuple(
        ColumnShape(
            name if not name.startswith("EXPR$") else _shown(text, operators),
            text,
            tuple(sorted(found, key=lambda each: (each[0], each[1] or ""))),
        )
        for name, text, found in zip(root.input.schema.names, texts, origins, strict=True)
    )
    return QueryShape(root.table.name if isinstance(root, Sink) else "", operators, columns)


def _shown(text: str, operators: Sequence[OperatorShape]) -> str:
    """What a column without a name is, for people."""
    text = readable(text)
    for call in sorted((call for each in operators for call in each.calls), key=lambda each: -len(each.text)):
        text = text.replace(readable(call.text), call.label)
    for table in {table for each in operators for table in each.scans}:
        text = text.replace(f"{table}.", "")
    return text


# --- operators --------------------------------------------------------------------------------------------------------


def _operator(node: StatefulNode, places: dict[int, int]) -> OperatorShape:
    texts = column_texts(node.input)
    common = {
        "kind": type(node).__name__,
        "input": _input(_rows_of(node) if isinstance(node, OverAggregate) else node.input),
        "scans": tuple(sorted({table.name for table in tables_of(streamed(node))})),
        "below": tuple(places[id(each)] for each in last_operators(node.input)),
        "kept": kept_of(node),
        "span": node.span,
    }

    def made(**parts: object) -> OperatorShape:
        return OperatorShape(**common, **parts)  # type: ignore[arg-type]

    match node:
        case GroupAggregate():
            emission = (
                "" if node.window is None else f"{window_text(node.window.of)} until {node.window.lateness_ms} ms later"
            )
            keys = _texts(node.keys, node.input)
            return made(
                keys=keys,
                calls=_calls(node.calls, node),
                emission=emission,
                label=_label("GROUP BY", node.keys, node.input),
            )
        case WindowAggregate():
            emission = "" if node.lateness_ms is None else f"as it grows, until {node.lateness_ms} ms later"
            return made(
                keys=_texts(node.keys, node.input),
                window=window_text(node.window),
                time=_time(node),
                emission=emission,
                calls=_calls(node.calls, node),
                label=_label(f"{window_text(node.window)}, GROUP BY", node.keys, node.input),
            )
        case WindowTableFunction():
            keys = tuple(texts[at] for at in node.partition_keys)
            window = window_text(node.window)
            return made(keys=keys, window=window, time=_time(node), columns=_set(texts), label=window)
        case OverAggregate():
            return made(
                keys=_texts(node.partition, node.input),
                order=_order(node),
                window=frame_text(node.frame),
                time=NO_CLOCK if node.time is TimeKind.BOUNDED else "",
                columns=_set(column_texts(_rows_of(node))),
                calls=_calls(node.calls, node),
                label=_label("OVER, PARTITION BY", node.partition, node.input),
            )
        case Rank():
            window = "" if node.window is None else f"{window_text(node.window.of)}, {texts[node.window.end]}"
            return made(
                keys=_texts(node.partition, node.input),
                order=_order(node),
                window=window,
                columns=_set(texts),
                counted=(node.first, node.last),
                numbered=node.numbered,
                by_arrival=node.by_arrival and node.window is None and not is_updating(node.input),
                label=_label(f"Top-N, rows {node.first} to {node.last}, PARTITION BY", node.partition, node.input),
            )
        case ChangelogNormalize():
            keys = tuple(texts[at] for at in node.keys)
            return made(keys=keys, columns=_set(texts), label="last row by key")
        case WindowEmit():
            early, late = (None if ms is None else duration(ms) for ms in (node.early_ms, node.late_ms))
            emission = f"early {early}, late {late} within {node.window.lateness_ms} ms"
            keys = tuple(texts[at] for at in node.keys)
            return made(keys=keys, emission=emission, label="emission of windows")
        case _:
            assert_never(node)


def reads(text: str, column: str) -> bool:
    """Return whether something is made of a column, by their canonical texts."""
    return re.search(rf"(?<![\w.]){re.escape(column)}(?![\w.])", text) is not None


def _locate(shape: OperatorShape, node: StatefulNode) -> OperatorShape:
    """Add the positions of the fields that an operator reads."""
    below = shape.input
    texts = [*shape.keys, *shape.order, shape.window, shape.time, *shape.columns, *(call.text for call in shape.calls)]
    made_of = "\n".join([*texts, *below.filters, *below.windows, *below.others])
    found: dict[str, str] = {}
    for table in tables_of(streamed(node)):
        types = {column.name: column.type for column in table.columns}
        for name, position in table.positions:
            column = f"{table.name}.{name}"
            if name in types and reads(made_of, column):
                found |= {column: position, **dict(_positions_within(column, types[name]))}
    return replace(shape, positions=tuple(starmap(PositionShape, sorted(found.items()))))


def _positions_within(path: str, of: DataType) -> Iterator[tuple[str, str]]:
    """Yield the positions of the fields of ROWs in a value."""
    match of:
        case RowType(fields=fields):
            for at, each in enumerate(fields, 1):
                yield f"{path}.{each.name}", f"field {at} of its ROW"
                yield from _positions_within(f"{path}.{each.name}", each.type)
        case ArrayType(element=inner) | MapType(value=inner):
            yield from _positions_within(f"{path}[]", inner)
        case _:
            pass


def _texts(expressions: Iterable[Expr], plan: Plan) -> tuple[str, ...]:
    return tuple(expr_text(each, plan) for each in expressions)


def _set(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts))


def _order(node: OverAggregate | Rank) -> tuple[str, ...]:
    return tuple(
        expr_text(key.expression, node.input)
        + (" DESC" if key.descending else "")
        + ("" if key.nulls_first != key.descending else ", NULLs elsewhere")
        for key in node.order
    )


def _time(node: WindowAggregate | WindowTableFunction) -> str:
    """The clock that a window runs on, and the zone in which it is aligned."""
    zone = "" if node.zone is None else f" in {node.zone}"
    return f"{column_texts(node.input)[node.time_column]}, {node.time.value}{zone}"


def _rows_of(node: OverAggregate) -> Plan:
    """What the windows of a SELECT are over: one by time adds its calls to the rows of another, and is due with it. Without a clock the rows of one
    below, whose calls change, are kept with these."""
    below = node.input
    while isinstance(below, OverAggregate) and node.time is not TimeKind.BOUNDED:
        below = below.input
    return below


def _label(what: str, keys: Sequence[Expr], plan: Plan) -> str:
    names = plan.schema.names
    return (
        f"{what} {', '.join(expr_sql(key, names) for key in keys)}" if keys else what.rpartition(", ")[0] or "all rows"
    )


def _calls(calls: Iterable[AggCall], node: GroupAggregate | WindowAggregate | OverAggregate) -> tuple[CallShape, ...]:
    """The calls, a repeated one once."""
    found: dict[str, CallShape] = {}
    for call in calls:
        text = call_text(call, node.input)
        parts = [*call.args, *([call.filter] if call.filter is not None else [])]
        computed = tuple(expr_text(part, node.input) for part in parts if not isinstance(part, InputRef))
        label = call_sql(call, node.input.schema.names)
        shape = CallShape(
            text,
            call.distinct,
            call.python is not None,
            computed,
            call.since,
            label,
            call.function,
            tuple(str(arg.type) for arg in call.args),
            tuple(str(each.value) for each in call.constants),
            call.span,
        )
        found.setdefault(text, shape)
    return tuple(found.values())


# --- inputs -----------------------------------------------------------------------------------------------------------


def _input(plan: Plan) -> InputShape:
    tables: list[str] = []
    filters: list[str] = []
    windows: list[str] = []
    others: list[str] = []
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if is_stateful(node):
            continue
        waiting += children(node)[: 1 if isinstance(node, Join) else None]
        match node:
            case Scan():
                tables.append(node.table.name)
            case Values():
                others.append(f"VALUES {node.rows!r}")
            case Filter():
                filters += [expr_text(part, node.input) for part in conjuncts(node.condition)]
            case WindowTableFunction():
                windows.append(f"{window_text(node.window)} of {_time(node)}")
            case Unnest():
                others.append(f"UNNEST {expr_text(node.collection, node.input)} {node.outer} {node.ordinality}")
            case Join():
                others.append(_join_text(node))
            case SetOperation() | Limit() | Sort():
                others.append(type(node).__name__)
            case Project() | Union() | WatermarkAssigner():
                pass
            case _:
                raise AssertionError(node)
    return InputShape(_set(tables), _set(filters), _set(windows), _set(others), is_updating(plan))


def _join_text(node: Join) -> str:
    """A join with all that is beside the stream."""
    names = (*column_texts(node.left), *column_texts(node.right))
    on = "" if node.condition is None else text_of(node.condition, names)
    return f"{node.kind.value} JOIN {node.right!r} ON {on}"


# --- columns ----------------------------------------------------------------------------------------------------------

_Origins = frozenset[tuple[int, str | None]]
_NONE: _Origins = frozenset()


def _origins(plan: Plan, places: dict[int, int]) -> tuple[_Origins, ...]:
    """Whose state each column of a plan comes from."""
    match plan:
        case Scan() | Values():
            return (_NONE,) * len(plan.schema)
        case Project():
            below = _origins(plan.input, places)
            return tuple(_read(each, below) for each in plan.expressions)
        case Union():
            return tuple(
                frozenset().union(*each) for each in zip(*(_origins(each, places) for each in plan.inputs), strict=True)
            )
        case Join():
            left = _origins(plan.left, places)
            if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
                return left
            return (*left, *((_NONE,) * len(plan.right.schema)))
        case SetOperation():
            sides = (_origins(plan.left, places), _origins(plan.right, places))
            return tuple(one | other for one, other in zip(*sides, strict=True))
        case Unnest():
            below = _origins(plan.input, places)
            return (*below, *((_read(plan.collection, below),) * len(plan.fields)))
        case _:
            below = _origins(plan.input, places)
    own: _Origins = frozenset({(places[id(plan)], None)}) if id(plan) in places else _NONE
    match plan:
        case GroupAggregate() | WindowAggregate():
            keys = tuple(_read(key, below) | own for key in plan.keys)
            window = (own,) * 3 if isinstance(plan, WindowAggregate) else ()
            return (*keys, *(_of_call(call, plan, below, places) for call in plan.calls), *window)
        case OverAggregate():
            return (*below, *(_of_call(call, plan, below, places) for call in plan.calls))
        case Rank():
            return (*(each | own for each in below), *([own] if plan.numbered else []))
        case WindowTableFunction():
            return (*(each | own for each in below), *((below[plan.time_column] | own,) * 3))
        case _:
            return tuple(each | own for each in below)


def _read(expression: Expr, below: Sequence[_Origins]) -> _Origins:
    return frozenset().union(*(below[at] for at in inputs_of(expression)))


def _of_call(
    call: AggCall,
    node: GroupAggregate | WindowAggregate | OverAggregate,
    below: Sequence[_Origins],
    places: dict[int, int],
) -> _Origins:
    parts = [*call.args, *([call.filter] if call.filter is not None else [])]
    read = frozenset[tuple[int, str | None]]().union(*(_read(part, below) for part in parts))
    return read | {(places[id(node)], call_text(call, node.input))}
