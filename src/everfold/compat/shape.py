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
from typing import TypeAlias, assert_never

from everfold.compat.state_schema import StateSchema, state_schema_of
from everfold.errors import Span
from everfold.plan.branches import Branch
from everfold.plan.canonical import (
    KINDS,
    call_text,
    column_texts,
    expr_text,
    expression_text,
    join_text,
    quote_name,
    texts_of,
    unnest_text,
)
from everfold.plan.emitted_changes import is_updating
from everfold.plan.explain import call_sql, expr_sql
from everfold.plan.expressions import Expr, InputRef, Literal, conjuncts, inputs_of
from everfold.plan.nodes import (
    HAS_ROW,
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
from everfold.plan.windows import window_text
from everfold.types import ArrayType, DataType, MapType, RowType

_WORD = re.compile(r"[^\s(),|]+")
"""A column or a function in canonical texts."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """An aggregate call.

    text: its canonical expression. python: whether it is a Python function of the user's. computed:
    its arguments and conditions that are more than a column of the operator's input. since: the
    version of the job in which its state begins. function, args, constants: what it computes, the
    types of its arguments, and its constants as strings. counts_since: the version of the job since
    which it covers rows, 0 for the beginning: with a backfill before its state begins.
    """

    text: str
    distinct: bool = False
    python: bool = False
    computed: tuple[str, ...] = field(default=(), compare=False)
    since: int = field(default=0, compare=False)
    label: str = field(default="", compare=False)
    function: str = field(default="", compare=False)
    args: tuple[str, ...] = field(default=(), compare=False)
    constants: tuple[str, ...] = field(default=(), compare=False)
    counts_since: int = field(default=0, compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    def find_slots(self, columns: Iterable[str]) -> dict[str, str]:
        """Return the columns of a page that are slots of the call, by the slot's name."""
        since = f" since {self.since}" if self.since else ""
        named = re.compile(rf"{re.escape(self.text)}\|(\w+){since}")
        return {found[1]: column for column in columns if (found := named.fullmatch(column)) is not None}


@dataclass(frozen=True, slots=True)
class BranchShape:
    """One way by which rows reach an operator.

    table: the name of the table, or the text of constant rows; empty for the rows of an operator.
    operator: the position of the operator in the query.
    filters, windows, joins: the texts of conditions, of stateless window functions, and of joins
        and UNNESTs on the way, sorted.
    """

    table: str
    operator: int | None
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    joins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputShape:
    """What an operator reads, down to the operators and tables below it.

    tables: each as often as it is read. filters: conditions in between. windows: stateless window
    functions in between. others: joins, UNNESTs and constant rows. updating: whether its rows may
    change. branches: which of these belong together, in the order of the texts that differ between
    branches.
    """

    tables: tuple[str, ...]
    filters: tuple[str, ...]
    windows: tuple[str, ...]
    others: tuple[str, ...]
    updating: bool
    branches: tuple[BranchShape, ...] = ()

    def without_filters(self) -> InputShape:
        """Return the input without conditions."""
        branches = tuple(replace(branch, filters=()) for branch in self.branches)
        return replace(self, filters=(), branches=branches)


@dataclass(frozen=True, slots=True)
class PositionShape:
    """Where a column is in the records of its table.

    field: the column, and the path to a field of a ROW in it. position: as shown to users; empty
    if it is found by its name.
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
    the query. kept: the schema of its state. positions: of the fields that it reads; None in a
    shape from before they were stored. state_names: see `OperatorNode`.
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
    below: tuple[int, ...] = field(default=(), compare=False)
    positions: tuple[PositionShape, ...] | None = None
    state_names: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    kept: StateSchema = field(default=StateSchema(), compare=False)
    label: str = field(default="", compare=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A column of the result.

    text: its canonical expression. origins: where its state is: the position of an operator, and
    the text of one of its calls, or None for its keys and rows. branches: the same by branch of
    UNION ALL in the result, each with whether it is not the argument of another call.
    """

    name: str
    text: str
    origins: tuple[tuple[int, str | None], ...]
    branches: tuple[tuple[tuple[int, str | None, bool], ...], ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ConditionShape:
    """A condition between the result and the operators or tables closest to it, as HAVING, or a
    join or an UNNEST there.

    text: its canonical expression. origins: as of a column. updating: whether the rows that it
    tests may change. is_join: whether it is a join or an UNNEST.
    """

    text: str
    origins: tuple[tuple[int, str | None], ...]
    updating: bool = False
    is_join: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query.

    sink: the table that it writes, `` for a bare SELECT. operators: those closest to the sink
    first. conditions: those between the sink and the operators closest to it.
    """

    sink: str
    operators: tuple[OperatorShape, ...]
    columns: tuple[ColumnShape, ...]
    conditions: tuple[ConditionShape, ...] = ()

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
    positions = {node.operator_id: position for position, node in enumerate(nodes)}
    assert len(positions) == len(nodes), "operators are named"
    operators = tuple(_locate(_operator(node, positions), node) for node in nodes)
    origins = _origins(root.input, positions)
    columns = tuple(
        ColumnShape(
            name if not name.startswith("EXPR$") else describe_text(text, operators),
            text,
            _merge_origins(branches),
            tuple(map(_sort_origins, branches)),
        )
        for name, text, *branches in zip(root.input.schema.names, column_texts(root.input), *origins, strict=True)
    )
    sink = root.table.identity if isinstance(root, Sink) else ""
    return QueryShape(sink, operators, columns, tuple(_find_conditions(root.input, positions)))


def describe_text(text: str, operators: Sequence[OperatorShape]) -> str:
    """Format the canonical text of a column for users."""
    calls = [call for operator in operators for call in operator.calls if call.text in text]
    text = format_canonical_text(text)
    for call in sorted(calls, key=lambda call: -len(call.text)):
        text = text.replace(format_canonical_text(call.text), call.label)
    for table in {table for each in operators for table in each.scans}:
        text = text.replace(f"{table}.", "")
    return text


def reads_column(text: str, column: str) -> bool:
    """Return whether an expression reads a column, by their canonical texts."""
    return re.search(rf"(?<![\w.]){re.escape(column)}(?![\w.#])", text) is not None


# --- operators ------------------------------------------------------------------------------------


def _operator(node: StatefulNode, positions: Mapping[str, int]) -> OperatorShape:
    lowest = _lowest(node)
    identity = texts_of(node).identity
    common = OperatorShape(
        kind=KINDS[type(node)],
        keys=identity.keys,
        order=identity.order,
        window=identity.window,
        time=identity.time,
        counted=identity.counted,
        emission=identity.emission,
        input=_input(lowest, positions),
        scans=tuple(sorted(table.identity for table in tables_of(walk_streamed(node)))),
        below=tuple(positions[below.operator_id] for below in last_operators(node.input)),
        state_names=node.state_names,
        kept=state_schema_of(node),
        label=_label(node),
        span=node.span,
    )
    match node:
        case GroupAggregate() | WindowAggregate():
            return replace(common, calls=_calls(node))
        case OverAggregate():
            return replace(common, calls=_calls(node), columns=_sort(texts_of(lowest).columns))
        case Rank():
            by_arrival = node.is_by_arrival and node.window is None and not is_updating(node.input)
            columns = _sort(texts_of(node).columns)
            return replace(common, columns=columns, numbered=node.numbered, by_arrival=by_arrival)
        case WindowTableFunction() | ChangelogNormalize():
            return replace(common, columns=_sort(texts_of(node).columns))
        case WindowEmit():
            return common
        case _:
            assert_never(node)


def _lowest(node: StatefulNode) -> StatefulNode:
    """Return the operator that receives the rows that an operator stores.

    An OVER that is ordered by time adds its calls to the rows of another one, and emits with it.
    Without a clock the results of the OVER below change, and are stored with the rows.
    """
    lowest = node
    if isinstance(node, OverAggregate) and node.time is not TimeKind.BOUNDED:
        while isinstance(lowest.input, OverAggregate):
            lowest = lowest.input
    return lowest


def _input(node: StatefulNode, positions: Mapping[str, int]) -> InputShape:
    branches = tuple(_branch(branch, positions) for branch in texts_of(node).branches)
    tables = [scan.table.identity for scan in _scans_above_operators(node.input)]
    constants = [branch.table for branch in branches if branch.operator is None and branch.table not in tables]
    return InputShape(
        tables=_sort(tables),
        filters=_sort(condition for branch in branches for condition in branch.filters),
        windows=_sort(window for branch in branches for window in branch.windows),
        others=_sort([*constants, *(join for branch in branches for join in branch.joins)]),
        updating=is_updating(node.input),
        branches=branches,
    )


def _scans_above_operators(plan: Plan) -> Iterator[Scan]:
    return (node for node in walk_to_operators(plan) if isinstance(node, Scan))


def _branch(branch: Branch, positions: Mapping[str, int]) -> BranchShape:
    operator = None if branch.operator is None else positions[branch.operator.operator_id]
    table = branch.source if operator is None else ""
    return BranchShape(table, operator, branch.filters, branch.windows, branch.joins)


def _locate(shape: OperatorShape, node: StatefulNode) -> OperatorShape:
    """Add the positions of the fields that an operator reads."""
    read = shape.input
    texts = [*shape.keys, *shape.order, shape.window, shape.time, *shape.columns, *(call.text for call in shape.calls)]
    expressions = "\n".join([*texts, *read.filters, *read.windows, *read.others])
    words = {word.partition("#")[0] for word in _WORD.findall(expressions)}
    found: dict[str, str] = {}
    for table in tables_of(walk_streamed(node)):
        positions = dict(table.positions)
        for column in table.columns:
            name = f"{quote_name(table.identity)}.{quote_name(column.identity)}"
            if name in words or ("`" in name and reads_column(expressions, name)):
                by_name = "" if column.metadata_key is None else f"metadata `{column.metadata_key}`"
                found[name] = positions.get(column.name, by_name)
                if column.name in positions:
                    found |= _positions_within(name, column.type)
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


def _sort(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts))


def _label(node: StatefulNode) -> str:
    match node:
        case GroupAggregate():
            return _label_keys("GROUP BY", node.keys, node.input)
        case WindowAggregate():
            return _label_keys(f"{window_text(node.window)}, GROUP BY", node.keys, node.input)
        case WindowTableFunction():
            return window_text(node.window)
        case OverAggregate():
            return _label_keys("OVER, PARTITION BY", node.partition, node.input) if node.calls else "ORDER BY"
        case Rank():
            return _label_keys(f"Top-N, rows {node.first} to {node.last}, PARTITION BY", node.partition, node.input)
        case ChangelogNormalize():
            return "last row by key"
        case WindowEmit():
            return "emission of windows"
        case _:
            assert_never(node)


def _label_keys(what: str, keys: Sequence[Expr], plan: Plan) -> str:
    names = plan.schema.names
    return (
        f"{what} {', '.join(expr_sql(key, names) for key in keys)}" if keys else what.rpartition(", ")[0] or "all rows"
    )


def _calls(node: GroupAggregate | WindowAggregate | OverAggregate) -> tuple[CallShape, ...]:
    """Return the calls, each once."""
    shapes: dict[str, CallShape] = {}
    for call in node.calls:
        if call.function == HAS_ROW:
            continue
        text = call_text(node, call)
        shape = CallShape(
            text,
            call.distinct,
            call.python is not None,
            tuple(expr_text(node, part) for part in call.expressions if not isinstance(part, InputRef | Literal)),
            call.since,
            call_sql(call, node.input.schema.names),
            call.function,
            tuple(str(arg.type) for arg in call.args),
            tuple(str(each.value) for each in call.constants),
            span=call.span,
        )
        shapes.setdefault(text, shape)
    return tuple(shapes.values())


# --- columns and conditions of the result ---------------------------------------------------------

_Origins: TypeAlias = frozenset[tuple[int, str | None, bool]]
"""The position of an operator, the text of a call or None, and whether it is not the argument of
another call.
"""
_NONE: _Origins = frozenset()


def _sort_origins(origins: _Origins) -> tuple[tuple[int, str | None, bool], ...]:
    return tuple(sorted(origins, key=lambda origin: (origin[0], origin[1] or "", origin[2])))


def _merge_origins(branches: Iterable[_Origins]) -> tuple[tuple[int, str | None], ...]:
    """Return the origins in any branch."""
    return tuple(dict.fromkeys((position, call) for position, call, _ in _sort_origins(_NONE.union(*branches))))


def _find_conditions(plan: Plan, positions: Mapping[str, int]) -> Iterator[ConditionShape]:
    """Yield the conditions on the rows of the operators closest to the result, and the joins."""
    for node in walk_to_operators(plan):
        match node:
            case Filter(condition=condition):
                for part in conjuncts(condition):
                    origins = _merge_origins(_read(part, below) for below in _origins(node.input, positions))
                    text = expression_text(node.input, part)
                    yield ConditionShape(text, origins, is_updating(node.input), span=part.span)
            case Join(left=left):
                text = join_text(node, column_texts(left), column_texts(node.right))
                origins = _merge_origins(_of_join(node, below) for below in _origins(left, positions))
                yield ConditionShape(text, origins, is_updating(left), is_join=True, span=node.span)
            case Unnest(collection=collection):
                text = unnest_text(node, expression_text(node.input, collection))
                origins = _merge_origins(_read(collection, below) for below in _origins(node.input, positions))
                yield ConditionShape(text, origins, is_updating(node.input), is_join=True, span=node.span)


def _origins(plan: Plan, positions: Mapping[str, int]) -> tuple[tuple[_Origins, ...], ...]:
    """Return where the state of each column of a plan is, by branch of UNION ALL."""
    match plan:
        case Scan() | Values():
            return ((_NONE,) * len(plan.schema),)
        case Project():
            return tuple(
                tuple(_read(expression, below) for expression in plan.expressions)
                for below in _origins(plan.input, positions)
            )
        case Union():
            return tuple(branch for each in plan.inputs for branch in _origins(each, positions))
        case SetOperation():
            return (*_origins(plan.left, positions), *_origins(plan.right, positions))
        case Join():
            count = 0 if plan.kind in (JoinKind.SEMI, JoinKind.ANTI) else len(plan.right.schema)
            return tuple((*below, *(_of_join(plan, below),) * count) for below in _origins(plan.left, positions))
        case Unnest():
            return tuple(
                (*below, *((_read(plan.collection, below),) * len(plan.fields)))
                for below in _origins(plan.input, positions)
            )
        case WindowTableFunction() if not is_stateful(plan):
            return tuple((*below, *((below[plan.time_column],) * 3)) for below in _origins(plan.input, positions))
        case WatermarkAssigner() | Filter() | Sort() | Limit():
            return _origins(plan.input, positions)
        case _:
            assert is_stateful(plan)
            # An operator merges the branches that it reads.
            below = tuple(map(_NONE.union, *_origins(plan.input, positions)))
            return (_operator_origins(plan, below, positions),)


def _operator_origins(
    plan: StatefulNode, below: Sequence[_Origins], positions: Mapping[str, int]
) -> tuple[_Origins, ...]:
    own: _Origins = frozenset({(positions[plan.operator_id], None, True)})
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
        case ChangelogNormalize() | WindowEmit():
            return tuple(each | own for each in below)
        case _:
            assert_never(plan)


def _of_join(plan: Join, below: Sequence[_Origins]) -> _Origins:
    """Return where the state of what a join compares is. below: of its left side."""
    right = (_NONE,) * len(plan.right.schema)
    return _NONE if plan.condition is None else _read(plan.condition, (*below, *right))


def _read(expression: Expr, below: Sequence[_Origins]) -> _Origins:
    return _NONE.union(*(below[position] for position in inputs_of(expression)))


def _of_call(
    call: AggCall,
    node: GroupAggregate | WindowAggregate | OverAggregate,
    below: Sequence[_Origins],
    positions: Mapping[str, int],
) -> _Origins:
    read = _NONE.union(*(_read(part, below) for part in call.expressions))
    arguments = {(position, text, False) for position, text, _ in read}
    return frozenset({*arguments, (positions[node.operator_id], call_text(node, call), True)})
