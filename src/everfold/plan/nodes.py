"""The logical plan: what a query means, typed by Flink's rules. Four readers: stream, batch, memory and the judge of changes.

Nodes are frozen and equal when their meaning is equal. Facts (schema, boundedness, updates) are properties, never stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeGuard, TypeVar, assert_never

from everfold.errors import Span, SqlError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.windows import Session, Window
from everfold.types import BIGINT, INT, TIMESTAMP3, DataType, Field, Schema, TimestampType
from everfold.udf.function import PythonFunction

N = TypeVar("N", bound="PlanNode")
T = TypeVar("T")


class Fact(Generic[N, T]):
    """A property that follows from a node and what is below it, computed once: a node may be asked often, and stand in several places."""

    def __init__(self, compute: Callable[[N], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[N], name: str) -> None:
        self.name = name

    def __get__(self, node: N, owner: type[N] | None = None) -> T:
        return node.remember(self.name, self.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    """What all nodes have: their place in the text."""

    span: Span | None = field(default=None, compare=False, repr=False)
    _facts: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def remember(self: N, what: str, compute: Callable[[N], T]) -> T:
        """What is computed of the node, once."""
        if what not in self._facts:
            self._facts[what] = compute(self)
        found: T = self._facts[what]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table that its connector delivers or takes: physical, or METADATA by `metadata_key`."""

    name: str
    type: DataType
    metadata_key: str | None = None
    virtual: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as its DDL declares it, options already resolved by the catalog; computed columns and watermark live in the plan.

    `options` are sorted pairs. Option values can be secret: they are neither compared nor shown. `changelog`: which changes its rows are
    when it is read. `bounded`: whether its rows come to an end by themselves. `read_whole`: whether a record is understood only
    with all physical columns in mind. `positions`: where in a record the fields of columns lie, of those that are found by position and not
    by name.
    """

    name: str
    columns: tuple[TableColumn, ...]
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    bounded: bool = field(default=False, compare=False, repr=False)
    read_whole: bool = field(default=False, compare=False, repr=False)
    positions: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    option_spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    def place_of(self, column: str) -> Span | None:
        """Where a column is declared, or else the table."""
        return next((of.span for of in self.columns if of.name == column and of.span is not None), self.span)

    @property
    def connector(self) -> str | None:
        """Name of the connector; None for a table without WITH, which a case file feeds."""
        return dict(self.options).get("connector")

    @property
    def schema(self) -> Schema:
        """The columns, none of them a time attribute yet."""
        return Schema(tuple(Field(name=column.name, type=column.type) for column in self.columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(PlanNode):
    """Reads a table: its physical and metadata columns."""

    table: Table

    @Fact
    def schema(self) -> Schema:
        return self.table.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkAssigner(PlanNode):
    """Makes column `column` the event time: no row with a time below the greatest `watermark` seen is expected any more."""

    input: Plan
    column: int
    watermark: Expr

    @Fact
    def schema(self) -> Schema:
        fields = list(self.input.schema.fields)
        of = fields[self.column]
        fields[self.column] = Field(name=of.name, type=of.type, time="rowtime")
        return Schema(tuple(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogNormalize(PlanNode):
    """Makes changes by key whole (streaming): an upsert becomes +I, or -U and +U, a delete -D with all columns.

    It keeps the last row of each key. An upsert that changes nothing and a delete of what is not there give nothing. A key that was not
    touched for `ttl_ms` is forgotten (0: never).
    """

    input: Plan
    keys: tuple[int, ...]
    ttl_ms: int = field(default=0, compare=False)

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(PlanNode):
    """Computes one column an expression. A bare reference to a time attribute stays one; `PROCTIME()` is one."""

    input: Plan
    expressions: tuple[Expr, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.expressions) == len(self.names)

    @Fact
    def schema(self) -> Schema:
        below = self.input.schema
        return Schema(
            tuple(
                Field(name=name, type=expr.type, time=time_attribute(expr, below))
                for expr, name in zip(self.expressions, self.names, strict=True)
            )
        )


def time_attribute(expr: Expr, below: Schema) -> str | None:
    """Which kind of time attribute an expression over `below` is: "rowtime", "proctime" or none."""
    if isinstance(expr, InputRef):
        return below[expr.position].time
    return "proctime" if isinstance(expr, Call) and expr.function == "PROCTIME" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(PlanNode):
    """Keeps the rows for which the condition is TRUE."""

    input: Plan
    condition: Expr

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(PlanNode):
    """UNION ALL: the rows of all inputs, whose columns agree in type. Names, and time attributes that all share, are the first's."""

    inputs: tuple[Plan, ...]

    @Fact
    def schema(self) -> Schema:
        first, *others = (each.schema for each in self.inputs)
        return Schema(
            tuple(
                of if all(other[at].time == of.time for other in others) else Field(name=of.name, type=of.type)
                for at, of in enumerate(first)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(PlanNode):
    """Constant rows."""

    rows: tuple[tuple[Expr, ...], ...]
    fields: tuple[Field, ...]

    @Fact
    def schema(self) -> Schema:
        return Schema(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnest(PlanNode):
    """CROSS JOIN UNNEST: each input row once for every element of a collection, whose columns are appended.

    An ARRAY of ROW gives the row's fields, any other ARRAY one column, a MAP key and value; `outer` keeps rows without elements.
    """

    input: Plan
    collection: Expr
    fields: tuple[Field, ...]
    outer: bool = False
    ordinality: bool = False

    @Fact
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *self.fields))


class TimeKind(StrEnum):
    """Which clock a window runs on. "bounded" is none: a plain column of a finished table, or of OVER in a stream that is not ordered by time."""

    ROWTIME = "rowtime"
    PROCTIME = "proctime"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTableFunction(PlanNode):
    """`SELECT * FROM TUMBLE(…)`: the input's rows, each once for every window it is in, with window_start, window_end, window_time.

    `zone` is the session's zone when the time column is TIMESTAMP_LTZ: windows align there. `partition_keys` is SESSION's
    PARTITION BY.
    """

    input: Plan
    window: Window
    time_column: int
    time: TimeKind
    partition_keys: tuple[int, ...] = ()
    zone: str | None = None

    def __post_init__(self) -> None:
        assert not self.partition_keys or isinstance(self.window, Session)

    @Fact
    def schema(self) -> Schema:
        of = self.input.schema[self.time_column]
        return Schema((*self.input.schema.fields, *window_fields(of.type, self.time)))


def window_fields(time_type: DataType, time: TimeKind) -> tuple[Field, Field, Field]:
    """window_start, window_end and window_time of a window over a time column of that type, which is window_time's too."""
    assert isinstance(time_type, TimestampType)
    attribute = None if time is TimeKind.BOUNDED else time.value
    return (
        Field(name="window_start", type=TIMESTAMP3.as_nullable(False)),
        Field(name="window_end", type=TIMESTAMP3.as_nullable(False)),
        Field(
            name="window_time",
            type=time_type.as_nullable(False),
            time=attribute,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AggCall:
    """An aggregate function over rows: `args` and `filter` are expressions over the aggregate's input.

    constants: parameters that are the same for all rows (LISTAGG's separator); an array's value is a tuple. python: the function, if it is the
    user's. since: the version of the job in which its state begins. Equal calls mean the same, whatever they are named: the name belongs to the
    projection above.
    """

    function: str
    args: tuple[Expr, ...]
    type: DataType
    constants: tuple[Literal, ...] = ()
    distinct: bool = False
    filter: Expr | None = None
    python: PythonFunction | None = None
    since: int = field(default=0, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate(PlanNode):
    """GROUP BY window_start, window_end[, keys] over a window function: one final row a window and key.

    Columns: the keys, the calls, window_start, window_end, window_time. SESSION makes its sessions by these very keys: grouped by
    others, it is a GroupAggregate over the window function. Rows are emitted once, when the watermark has passed the window.
    lateness_ms (SESSION): sessions are given from their first row on, as changes, and take rows for so long after their end.
    """

    input: Plan
    window: Window
    time_column: int
    time: TimeKind
    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    zone: str | None = None
    lateness_ms: int | None = None

    @Fact
    def schema(self) -> Schema:
        below = self.input.schema
        of = below[self.time_column]
        return Schema(
            (
                *(Field(name=f"k{at}", type=key.type) for at, key in enumerate(self.keys)),
                *(Field(name=f"a{at}", type=call.type) for at, call in enumerate(self.calls)),
                *window_fields(of.type, self.time),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InWindow:
    """The windows that rows lie in, whose bounds are columns of theirs. end: the column that says when a row's window ends. `zone` as in
    WindowTableFunction. lateness_ms: how long a window still takes rows when it has ended."""

    of: Window
    end: int
    time: TimeKind
    zone: str | None = None
    lateness_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAggregate(PlanNode):
    """Unbounded GROUP BY: the keys, then the calls. Without calls it is DISTINCT.

    A group that was not touched for `ttl_ms` is forgotten (0: never). With `window`, whose end is one of the keys, groups are forgotten when their
    window takes no rows any more, and rows that come later are dropped.
    """

    input: Plan
    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    window: InWindow | None = None
    ttl_ms: int = field(default=0, compare=False)

    @Fact
    def schema(self) -> Schema:
        return Schema(
            (
                *(Field(name=f"k{at}", type=key.type) for at, key in enumerate(self.keys)),
                *(Field(name=f"a{at}", type=call.type) for at, call in enumerate(self.calls)),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEmit(PlanNode):
    """Emit control (streaming): gives changes of windows' results when it is time for them.

    While a window is open they wait for `early_ms`, and when it has ended for `late_ms`; 0: not at all, None: until the window ends, or for ever.
    When the window ends all is given that waits. keys: by which a result is changed. time_column: window_time, a time attribute.
    """

    input: Plan
    keys: tuple[int, ...]
    window: InWindow
    time_column: int
    early_ms: int | None
    late_ms: int | None

    @Fact
    def schema(self) -> Schema:
        fields = list(self.input.schema.fields)
        of = fields[self.time_column]
        fields[self.time_column] = Field(name=of.name, type=of.type, time=self.window.time.value)
        return Schema(tuple(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKey:
    """One expression of ORDER BY. Flink takes NULL as the smallest value."""

    expression: Expr
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows around each row an OVER window takes: from `first` to `last`, both included.

    rows: counted in rows; else by the distance of the (only) order key, in milliseconds for a time. 0 is the current row, and with it, unless counted in
    rows, all its peers; what comes before is negative. None: without a bound. scale: of distances of numbers, which are counted in 10^-scale; that of a
    DECIMAL is the scale of its type.
    """

    rows: bool
    first: int | None
    last: int | None
    scale: int = 0

    @property
    def by_distance(self) -> bool:
        """Whether rows are in it by their distance from the current one."""
        return not self.rows and bool({self.first, self.last} - {None, 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class OverAggregate(PlanNode):
    """OVER: each row of the input with the aggregates of its frame, in a partition sorted by `order`.

    Columns: the input's, the calls. In a stream whose order is one time attribute, ascending, over rows that stay, a row is emitted
    once, when the watermark has passed it (`time` ROWTIME), or at once (PROCTIME). With any other order (`time` BOUNDED) rows are emitted
    at once, and the result follows every change. Rows that are equal in the order are in the order of their arrival.
    A partition that was not touched for `ttl_ms` is forgotten (0: never). refused: why no stream runs it as it is; it may become a `Rank`.
    """

    input: Plan
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    frame: Frame
    calls: tuple[AggCall, ...]
    time: TimeKind
    ttl_ms: int = field(default=0, compare=False)
    refused: SqlError | None = field(default=None, compare=False, repr=False)

    @Fact
    def schema(self) -> Schema:
        return Schema(
            (
                *self.input.schema.fields,
                *(Field(name=f"a{at}", type=call.type) for at, call in enumerate(self.calls)),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(PlanNode):
    """Top-N and deduplication (streaming): of each partition, sorted by `order`, the rows from the `first` to the `last`, counted from 1.

    Columns: the input's; if `numbered` the row's number. Equal rows are in the order of their arrival, and so are all if the order is
    processing time. With `window`, whose columns are among those of the partition, rows come once, when time has passed their window. Else the
    result follows every change of the input. A partition that was not touched for `ttl_ms` is forgotten (0: never).
    """

    input: Plan
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    numbered: bool = True
    window: InWindow | None = None
    ttl_ms: int = field(default=0, compare=False)

    @Fact
    def schema(self) -> Schema:
        number = Field(name="rank", type=ROW_COUNT)
        return Schema((*self.input.schema.fields, *([number] if self.numbered else [])))

    @property
    def by_arrival(self) -> bool:
        """Whether rows are ranked as they come: a row that has its place keeps it."""
        return not self.order or (self._by_proctime(self.order[0]) and not self.order[0].descending)

    def _by_proctime(self, key: SortKey) -> bool:
        return time_attribute(key.expression, self.input.schema) == "proctime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(PlanNode):
    """ORDER BY (batch)."""

    input: Plan
    keys: tuple[SortKey, ...]

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(PlanNode):
    """LIMIT and OFFSET (batch); `count` None takes all."""

    input: Plan
    count: int | None
    offset: int = 0

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


class JoinKind(StrEnum):
    """How rows without a partner are treated; SEMI and ANTI are [NOT] IN and [NOT] EXISTS."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    CROSS = "cross"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(PlanNode):
    """A join; the condition is over the columns of both, left first. SEMI and ANTI give the left's columns only.

    In a stream the left side flows, and the right one is bounded: it is read as a batch, and no row of it is remembered with a row of the
    left. So a time attribute of the left stays one.
    """

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Expr | None

    @Fact
    def schema(self) -> Schema:
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.schema
        left = self.left.schema.fields
        right = tuple(Field(name=of.name, type=of.type) for of in self.right.schema.fields)
        if self.kind in (JoinKind.RIGHT, JoinKind.FULL):
            left = tuple(Field(name=of.name, type=of.type.as_nullable()) for of in left)
        if self.kind in (JoinKind.LEFT, JoinKind.FULL):
            right = tuple(Field(name=of.name, type=of.type.as_nullable()) for of in right)
        return Schema((*left, *right))


class SetKind(StrEnum):
    """Which set operation; UNION ALL is a node of its own."""

    UNION = "UNION"
    INTERSECT = "INTERSECT"
    INTERSECT_ALL = "INTERSECT ALL"
    EXCEPT = "EXCEPT"
    EXCEPT_ALL = "EXCEPT ALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOperation(PlanNode):
    """UNION, INTERSECT, EXCEPT [ALL] of two inputs whose columns agree in type (batch)."""

    kind: SetKind
    left: Plan
    right: Plan

    @Fact
    def schema(self) -> Schema:
        return self.left.schema


Plan: TypeAlias = (
    Scan
    | WatermarkAssigner
    | ChangelogNormalize
    | Project
    | Filter
    | Union
    | Values
    | Unnest
    | WindowTableFunction
    | WindowAggregate
    | GroupAggregate
    | WindowEmit
    | OverAggregate
    | Rank
    | Sort
    | Limit
    | Join
    | SetOperation
)
StatefulNode: TypeAlias = (
    WindowTableFunction | WindowAggregate | GroupAggregate | WindowEmit | OverAggregate | Rank | ChangelogNormalize
)
"""The nodes that an operator of ours runs in a stream: those of which `is_stateful` says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """An INSERT: the query's columns go to the table's columns, position by position, already cast to their types."""

    table: Table
    input: Plan
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """A bare SELECT: the rows go to whoever asked. `names` are the result's columns."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


Root: TypeAlias = Sink | Collect


def children(node: Plan) -> tuple[Plan, ...]:
    """The inputs of a node."""
    match node:
        case Scan() | Values():
            return ()
        case Union():
            return node.inputs
        case Join() | SetOperation():
            return (node.left, node.right)
        case (
            WatermarkAssigner()
            | ChangelogNormalize()
            | Project()
            | Filter()
            | Unnest()
            | WindowTableFunction()
            | WindowAggregate()
            | GroupAggregate()
            | WindowEmit()
            | OverAggregate()
            | Rank()
            | Sort()
            | Limit()
        ):
            return (node.input,)
        case _:
            assert_never(node)


def with_children(node: Plan, inputs: tuple[Plan, ...]) -> Plan:
    """The node over other inputs."""
    match node:
        case Scan() | Values():
            return node
        case Union():
            return replace(node, inputs=inputs)
        case Join() | SetOperation():
            return replace(node, left=inputs[0], right=inputs[1])
        case _:
            return replace(node, input=inputs[0])


def walk_plan(node: Plan) -> Iterator[Plan]:
    """The node and all below it, topmost first."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        yield each
        waiting += reversed(children(each))


def streamed(node: Plan) -> Iterator[Plan]:
    """The node and all below it that flows in a stream, topmost first: not what a join reads as a batch."""
    yield node
    for child in children(node)[: 1 if isinstance(node, Join) else None]:
        yield from streamed(child)


def tables_of(nodes: Iterable[Plan]) -> list[Table]:
    """The tables that are read among nodes (`walk_plan`, `streamed`), once for each time."""
    return [node.table for node in nodes if isinstance(node, Scan)]


def last_operators(plan: Plan) -> Iterator[StatefulNode]:
    """The operators whose rows are a plan's, as far as they come from operators: the plan itself if it is one."""
    if is_stateful(plan):
        yield plan
        return
    for child in children(plan)[: 1 if isinstance(plan, Join) else None]:
        yield from last_operators(child)


def repeated(name: str, seen: dict[str, int]) -> str:
    """What a table is called where it is read: by its name, with a number from the second time on. seen: how often each was read so far, which is counted."""
    nth = seen.get(name, 0)
    seen[name] = nth + 1
    return name if nth == 0 else f"{name}_{nth}"


def read_as_batch(node: Plan) -> Iterator[Plan]:
    """What the joins below a node read as a batch beside a stream."""
    return (each.right for each in streamed(node) if isinstance(each, Join))


def runs_on_arrival(node: StatefulNode) -> bool:
    """Whether a stateful node's clock is that of processing, and not that of its rows."""
    if isinstance(node, Rank | GroupAggregate | WindowEmit):
        return node.window is not None and node.window.time is TimeKind.PROCTIME
    return isinstance(node, WindowTableFunction | WindowAggregate | OverAggregate) and node.time is TimeKind.PROCTIME


def is_stateful(node: Plan) -> TypeGuard[StatefulNode]:
    """Whether the node keeps state in a stream: what an operator of ours runs, not the engine's scalar part."""
    if isinstance(node, WindowTableFunction):
        return isinstance(node.window, Session)
    return isinstance(node, StatefulNode)


ROW_COUNT = BIGINT.as_nullable(False)
"""The type of COUNT."""
_WHOLE = INT.as_nullable(False)
ONE_ROW = Values(rows=((Literal(type=_WHOLE, value=0),),), fields=(Field(name="", type=_WHOLE),))
"""One row of nothing to name."""
