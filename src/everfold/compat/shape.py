"""The shape of a query: what decides whether its state can be used by another query, and nothing
else.

Everything is identified by canonical expressions, which refer to the columns of tables. So two
shapes can be compared without their plans, and a shape can be stored where a plan cannot. Labels,
names and spans do not compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import assert_never

from everfold.compat.state_schema import StateSchema, state_schema_of
from everfold.errors import Span
from everfold.plan.canonical import call_text, column_texts, expr_text, frame_text
from everfold.plan.emitted_changes import is_updating
from everfold.plan.explain import call_sql, duration, expr_sql, window_text
from everfold.plan.expressions import Expr, InputRef, canonical_text, conjuncts, inputs_of
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
    is_stateful,
)
from everfold.plan.readable import format_canonical_text
from everfold.plan.walk import last_operators, operators_of, tables_of, walk_streamed, walk_to_operators
from everfold.types import ArrayType, DataType, MapType, RowType

NO_CLOCK = "no clock"
"""The `time` of an OVER whose rows are not ordered by time.

Its result follows every change, and all its rows are in its state.
"""


@dataclass(frozen=True, slots=True)
class CallShape:
    """An aggregate call.

    text: its canonical expression. python: whether it is a Python function of the user's. computed:
    its arguments and conditions that are more than a column of the operator's input. since: the
    version of the job in which its state begins. function, args, constants: what it computes, the
    types of its arguments, and its constants as strings.
    """

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

    def find_slots(self, columns: Iterable[str]) -> dict[str, str]:
        """Return the columns of a page that are slots of the call, by the slot's name."""
        since = f" since {self.since}" if self.since else ""
        named = re.compile(rf"{re.escape(self.text)}\|(\w+){since}")
        return {found[1]: column for column in columns if (found := named.fullmatch(column)) is not None}


@dataclass(frozen=True, slots=True)
class InputShape:
    """What an operator reads, down to the operators and tables below it.

    tables: each as often as it is read. filters: conditions in between. windows: stateless window
    functions in between. others: joins and UNNESTs. updating: whether its rows may change.
    """

    tables: tuple[str, ...]
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    others: tuple[str, ...]
    updating: bool


@dataclass(frozen=True, slots=True)
class PositionShape:
    """The position of a field in a record that has no field names.

    field: the column, and the path to a field of a ROW in it. position: the position as shown to
    users.
    """

    field: str
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShape:
    """A stateful operator.

    kind: the name of its plan node. keys: of groups and partitions, in order. order: the ORDER BY
    keys. window: window or frame. time: the clock it runs on. columns: the columns of the rows that
    it stores unchanged, sorted. counted: the first and last row number of a Top-N. emission: when
    results are emitted. scans: all tables below. below: the operators below, by their positions in
    the query. kept: the schema of its state. positions: of the fields that it reads from records
    without field names; None in a shape from before they were stored.
    """

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
    kept: StateSchema = field(default=StateSchema(), compare=False)
    label: str = field(default="", compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A column of the result.

    text: its canonical expression. origins: where its state is: the position of an operator, and
    the text of one of its calls, or None for its keys and rows.
    """

    name: str
    text: str
    origins: tuple[tuple[int, str | None], ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query.

    sink: the table that it writes, `` for a bare SELECT. operators: those closest to the sink
    first.
    """

    sink: str
    operators: tuple[OperatorShape, ...]
    columns: tuple[ColumnShape, ...]

    @property
    def tops(self) -> tuple[int, ...]:
        """The operators that have none above them."""
        below = {at for each in self.operators for at in each.below}
        return tuple(at for at in range(len(self.operators)) if at not in below)

    def below(self, operator: OperatorShape) -> tuple[OperatorShape, ...]:
        """Return the operators that one of the query's operators reads."""
        return tuple(self.operators[at] for at in operator.below)


def shape_of(root: Root) -> QueryShape:
    """Return the shape of a plan."""
    nodes = operators_of([root])
    positions = {node.operator_id: at for at, node in enumerate(nodes)}
    assert len(positions) == len(nodes), "operators are named"
    operators = tuple(_locate(_operator(node, positions), node) for node in nodes)
    texts, origins = column_texts(root.input), _origins(root.input, positions)
    columns = tuple(
        ColumnShape(
            name if not name.startswith("EXPR$") else _describe(text, operators),
            text,
            tuple(sorted(found, key=lambda each: (each[0], each[1] or ""))),
        )
        for name, text, found in zip(root.input.schema.names, texts, origins, strict=True)
    )
    return QueryShape(root.table.name if isinstance(root, Sink) else "", operators, columns)


def _describe(text: str, operators: Sequence[OperatorShape]) -> str:
    """Format a column without a name for users."""
    text = format_canonical_text(text)
    for call in sorted((call for each in operators for call in each.calls), key=lambda each: -len(each.text)):
        text = text.replace(format_canonical_text(call.text), call.label)
    for table in {table for each in operators for table in each.scans}:
        text = text.replace(f"{table}.", "")
    return text


# --- operators ------------------------------------------------------------------------------------


def _operator(node: StatefulNode, positions: Mapping[str, int]) -> OperatorShape:
    texts = column_texts(node.input)
    common = {
        "kind": type(node).__name__,
        "input": _input(_rows_of(node) if isinstance(node, OverAggregate) else node.input),
        "scans": tuple(sorted({table.name for table in tables_of(walk_streamed(node))})),
        "below": tuple(positions[each.operator_id] for each in last_operators(node.input)),
        "kept": state_schema_of(node),
        "span": node.span,
    }

    def shape(**parts: object) -> OperatorShape:
        return OperatorShape(**common, **parts)  # type: ignore[arg-type]

    match node:
        case GroupAggregate():
            emission = (
                "" if node.window is None else f"{window_text(node.window.of)} until {node.window.lateness_ms} ms later"
            )
            keys = _texts(node.keys, node.input)
            return shape(
                keys=keys,
                calls=_calls(node.calls, node),
                emission=emission,
                label=_label("GROUP BY", node.keys, node.input),
            )
        case WindowAggregate():
            emission = "" if node.lateness_ms is None else f"as it grows, until {node.lateness_ms} ms later"
            return shape(
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
            return shape(keys=keys, window=window, time=_time(node), columns=_set(texts), label=window)
        case OverAggregate():
            return shape(
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
            return shape(
                keys=_texts(node.partition, node.input),
                order=_order(node),
                window=window,
                columns=_set(texts),
                counted=(node.first, node.last),
                numbered=node.numbered,
                by_arrival=node.is_by_arrival and node.window is None and not is_updating(node.input),
                label=_label(f"Top-N, rows {node.first} to {node.last}, PARTITION BY", node.partition, node.input),
            )
        case ChangelogNormalize():
            keys = tuple(texts[at] for at in node.keys)
            return shape(keys=keys, columns=_set(texts), label="last row by key")
        case WindowEmit():
            early, late = (None if ms is None else duration(ms) for ms in (node.early_ms, node.late_ms))
            emission = f"early {early}, late {late} within {node.window.lateness_ms} ms"
            keys = tuple(texts[at] for at in node.keys)
            return shape(keys=keys, emission=emission, label="emission of windows")
        case _:
            assert_never(node)


def reads_column(text: str, column: str) -> bool:
    """Return whether an expression reads a column, by their canonical texts."""
    return re.search(rf"(?<![\w.]){re.escape(column)}(?![\w.])", text) is not None


def _locate(shape: OperatorShape, node: StatefulNode) -> OperatorShape:
    """Add the positions of the fields that an operator reads."""
    below = shape.input
    texts = [*shape.keys, *shape.order, shape.window, shape.time, *shape.columns, *(call.text for call in shape.calls)]
    expressions = "\n".join([*texts, *below.filters, *below.windows, *below.others])
    found: dict[str, str] = {}
    for table in tables_of(walk_streamed(node)):
        types = {column.name: column.type for column in table.columns}
        for name, position in table.positions:
            column = f"{table.name}.{name}"
            if name in types and reads_column(expressions, column):
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
    """Return the clock of a window, and the time zone in which it is aligned."""
    zone = "" if node.zone is None else f" in {node.zone}"
    return f"{column_texts(node.input)[node.time_column]}, {node.time.value}{zone}"


def _rows_of(node: OverAggregate) -> Plan:
    """Return the input of the windows of a SELECT.

    An OVER that is ordered by time adds its calls to the rows of another one, and emits with it.
    Without a clock the results of the OVER below change, and are stored with the rows.
    """
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
    """Return the calls, each once."""
    found: dict[str, CallShape] = {}
    for call in calls:
        text = call_text(call, node.input)
        computed = tuple(expr_text(part, node.input) for part in call.expressions if not isinstance(part, InputRef))
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


# --- inputs ---------------------------------------------------------------------------------------


def _input(plan: Plan) -> InputShape:
    tables: list[str] = []
    filters: list[str] = []
    windows: list[str] = []
    others: list[str] = []
    for node in walk_to_operators(plan):
        if is_stateful(node):
            continue
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
    """Return a join with everything except the stream."""
    names = (*column_texts(node.left), *column_texts(node.right))
    on = "" if node.condition is None else canonical_text(node.condition, names)
    return f"{node.kind.value} JOIN {node.right!r} ON {on}"


# --- columns --------------------------------------------------------------------------------------

_Origins = frozenset[tuple[int, str | None]]
_NONE: _Origins = frozenset()


def _origins(plan: Plan, positions: Mapping[str, int]) -> tuple[_Origins, ...]:
    """Return where the state of each column of a plan is."""
    match plan:
        case Scan() | Values():
            return (_NONE,) * len(plan.schema)
        case Project():
            below = _origins(plan.input, positions)
            return tuple(_read(each, below) for each in plan.expressions)
        case Union():
            return tuple(
                frozenset().union(*each)
                for each in zip(*(_origins(each, positions) for each in plan.inputs), strict=True)
            )
        case Join():
            left = _origins(plan.left, positions)
            if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
                return left
            return (*left, *((_NONE,) * len(plan.right.schema)))
        case SetOperation():
            sides = (_origins(plan.left, positions), _origins(plan.right, positions))
            return tuple(one | other for one, other in zip(*sides, strict=True))
        case Unnest():
            below = _origins(plan.input, positions)
            return (*below, *((_read(plan.collection, below),) * len(plan.fields)))
        case _:
            below = _origins(plan.input, positions)
    own: _Origins = frozenset({(positions[plan.operator_id], None)}) if is_stateful(plan) else _NONE
    match plan:
        case GroupAggregate() | WindowAggregate():
            keys = tuple(_read(key, below) | own for key in plan.keys)
            window = (own,) * 3 if isinstance(plan, WindowAggregate) else ()
            return (*keys, *(_of_call(call, plan, below, positions) for call in plan.calls), *window)
        case OverAggregate():
            return (*below, *(_of_call(call, plan, below, positions) for call in plan.calls))
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
    positions: Mapping[str, int],
) -> _Origins:
    read = frozenset[tuple[int, str | None]]().union(*(_read(part, below) for part in call.expressions))
    return read | {(positions[node.operator_id], call_text(call, node.input))}
