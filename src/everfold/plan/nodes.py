"""The logical plan: the meaning of a query, typed by Flink's rules.

It is used by the stream, batch and memory engines and by the compatibility check. Nodes are frozen
and equal when their meaning is equal. Facts (schema, boundedness, updates) are properties, never
stored twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias, TypeGuard

from everfold.errors import EverfoldError, Span, SqlError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.plan_node import Fact, OperatorNode, PlanNode, check_positions, check_reads, check_widths
from everfold.plan.windows import Session, Window
from everfold.types import BIGINT, INT, TIMESTAMP3, DataType, Field, Schema, TimestampType
from everfold.udf.function import PythonFunction

Column: TypeAlias = int
"""The position of a column of a node's input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column that a table's connector reads or writes: physical, or METADATA (`metadata_key`).

    known_as: its name in the state of a job, if it was renamed since.
    """

    name: str
    type: DataType
    metadata_key: str | None = None
    virtual: bool = False
    known_as: str = field(default="", compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> str:
        """The name by which a job knows the column."""
        return self.known_as or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as declared by its DDL, with options already resolved by the catalog.

    Computed columns and the watermark are in the plan. `options` are sorted pairs. Option values
    can be secret: they are neither compared nor shown. `changelog`: the kinds of changes among its
    rows when it is read. `bounded`: whether its rows end. `needs_all_columns`: whether decoding a
    record needs all physical columns. `positions`: the position in a record of each column that is
    found by position, not by name. `declaration_error`: why its connector cannot read it as
    declared; `bounded` and `changelog` are then unknown. `known_as`: its name in the state of a
    job, if it was renamed since.
    """

    name: str
    columns: tuple[TableColumn, ...]
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    changelog: ChangelogMode = ChangelogMode.INSERT_ONLY
    bounded: bool = field(default=False, compare=False, repr=False)
    needs_all_columns: bool = field(default=False, compare=False, repr=False)
    positions: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)
    declaration_error: EverfoldError | None = field(default=None, compare=False, repr=False)
    known_as: str = field(default="", compare=False, repr=False)
    option_spans: tuple[tuple[str, Span], ...] = field(default=(), compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def identity(self) -> str:
        """The name by which a job knows the table."""
        return self.known_as or self.name

    def span_of(self, column: str) -> Span | None:
        """Return the location of a column's declaration, or else of the table's."""
        return next((of.span for of in self.columns if of.name == column and of.span is not None), self.span)

    def span_of_option(self, name: str) -> Span | None:
        """Return the location of an option, None if it is not set."""
        return dict(self.option_spans).get(name)

    def option(self, name: str) -> str | None:
        """Return an option as written, None if it is not set."""
        return dict(self.options).get(name)

    @property
    def connector(self) -> str | None:
        """The name of the connector, None for a table of a case file, without WITH."""
        return self.option("connector")

    @property
    def schema(self) -> Schema:
        """The columns, without time attributes."""
        return Schema(tuple(Field(name=column.name, type=column.type) for column in self.columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(PlanNode):
    """Read the physical and metadata columns of a table.

    source_name: the name of the source in the job, under which its position is kept
    (`plan.naming`); empty until it is named, and for a table that is read as a batch.
    """

    table: Table
    source_name: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        assert self.table.columns, f"no column of `{self.table.name}` is read"

    @Fact
    def schema(self) -> Schema:
        return self.table.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkAssigner(PlanNode):
    """Make a column the event time.

    Rows with a time below the greatest `watermark` seen so far are late.
    """

    input: Plan
    column: Column
    watermark: Expr

    def __post_init__(self) -> None:
        check_reads(self, self.input, [self.watermark], [self.column])

    @Fact
    def schema(self) -> Schema:
        return _set_time(self.input.schema, self.column, "rowtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogNormalize(OperatorNode):
    """Complete a changelog by key (streaming).

    An upsert becomes +I, or -U and +U; a delete becomes -D with all columns. The last row of each
    key is kept. An upsert that changes nothing and a delete of a missing row emit nothing. A key
    that has not been touched for `ttl_ms` is discarded (0: never).
    """

    input: Plan
    keys: tuple[Column, ...]
    ttl_ms: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        assert self.keys, "a changelog without a key"
        check_reads(self, self.input, columns=self.keys)

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(PlanNode):
    """Compute one column per expression.

    A bare reference to a time attribute remains one; `PROCTIME()` is one.
    """

    input: Plan
    expressions: tuple[Expr, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.expressions) == len(self.names), f"{len(self.expressions)} columns, {len(self.names)} names"
        check_reads(self, self.input, self.expressions)

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
    """Return an expression's kind of time attribute: "rowtime", "proctime" or None.

    below: the columns that the expression reads.
    """
    if isinstance(expr, InputRef):
        return below[expr.position].time
    return "proctime" if is_proctime(expr) else None


def is_proctime(expr: Expr) -> bool:
    """Return whether an expression is `PROCTIME()`, the time of the batch."""
    return isinstance(expr, Call) and expr.function == "PROCTIME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(PlanNode):
    """Keep the rows for which the condition is TRUE."""

    input: Plan
    condition: Expr

    def __post_init__(self) -> None:
        check_reads(self, self.input, [self.condition])

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Union(PlanNode):
    """UNION ALL: the rows of all inputs, whose columns agree in type.

    The names are those of the first input. A time attribute remains one if all inputs share it.
    """

    inputs: tuple[Plan, ...]

    def __post_init__(self) -> None:
        assert self.inputs, "a union of nothing"
        check_widths(self, self.inputs)

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

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.fields) for row in self.rows), "rows of different widths"

    @Fact
    def schema(self) -> Schema:
        return Schema(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unnest(PlanNode):
    """CROSS JOIN UNNEST: each input row once per element of a collection, with its columns.

    An ARRAY of ROW appends the fields of the row, any other ARRAY one column, a MAP key and value.
    `outer` keeps rows without elements.
    """

    input: Plan
    collection: Expr
    fields: tuple[Field, ...]
    outer: bool = False
    ordinality: bool = False

    def __post_init__(self) -> None:
        check_reads(self, self.input, [self.collection])

    @Fact
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *self.fields))


class TimeKind(StrEnum):
    """The clock of a window.

    "bounded" means no clock: a plain column of a bounded table, or of OVER in a stream that is not
    ordered by time.
    """

    ROWTIME = "rowtime"
    PROCTIME = "proctime"
    BOUNDED = "bounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTableFunction(OperatorNode):
    """`SELECT * FROM TUMBLE(…)`: the input's rows, each once per window that contains it.

    It appends window_start, window_end and window_time. `zone` is the session's zone if the time
    column is TIMESTAMP_LTZ: windows are aligned in it. `partition_keys` is SESSION's PARTITION BY.
    """

    input: Plan
    window: Window
    time_column: Column
    time: TimeKind
    partition_keys: tuple[Column, ...] = ()
    zone: str | None = None

    def __post_init__(self) -> None:
        assert not self.partition_keys or isinstance(self.window, Session), "only SESSION has partition keys"
        check_reads(self, self.input, columns=[self.time_column, *self.partition_keys])

    @Fact
    def schema(self) -> Schema:
        of = self.input.schema[self.time_column]
        return Schema((*self.input.schema.fields, *window_fields(of.type, self.time)))


def window_fields(time_type: DataType, time: TimeKind) -> tuple[Field, Field, Field]:
    """Return window_start, window_end and window_time.

    window_time has the given type of the time column.
    """
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
    """An aggregate function over rows.

    `args` and `filter` are expressions over the aggregate's input.

    constants: parameters that are the same for all rows, such as LISTAGG's separator; the value of
    an array is a tuple. python: the function, if it is a user's. since: the version of the job in
    which its state begins. Calls with the same meaning are equal: the column name belongs to the
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

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """What the call reads: its arguments, and the condition of FILTER."""
        return self.args if self.filter is None else (*self.args, self.filter)

    def map_expressions(self, change: Callable[[Expr], Expr]) -> AggCall:
        """Return the call with each expression replaced by what `change` returns for it."""
        condition = None if self.filter is None else change(self.filter)
        return replace(self, args=tuple(map(change, self.args)), filter=condition)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAggregate(OperatorNode):
    """GROUP BY window_start, window_end[, keys] over a window function: one row per window and key.

    Columns: the keys, the calls, window_start, window_end, window_time. SESSION forms its sessions
    by exactly these keys; grouped by others, it is a GroupAggregate over the window function. Each
    row is final: it is emitted once, when the watermark has passed the window. lateness_ms
    (SESSION): sessions are emitted from their first row on, as changes, and accept rows for this
    long after their end.
    """

    input: Plan
    window: Window
    time_column: Column
    time: TimeKind
    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    zone: str | None = None
    lateness_ms: int | None = None

    def __post_init__(self) -> None:
        check_reads(self, self.input, [*self.keys, *_parts_of(self.calls)], [self.time_column])

    @Fact
    def schema(self) -> Schema:
        of = self.input.schema[self.time_column]
        return Schema((*_number("k", self.keys), *_number("a", self.calls), *window_fields(of.type, self.time)))


@dataclass(frozen=True, slots=True, kw_only=True)
class InWindow:
    """The windows that contain the rows of an input, which has their bounds as columns.

    end: the position of the column with the end of a row's window. `zone` as in
    WindowTableFunction. lateness_ms: how long a window accepts rows after its end.
    """

    of: Window
    end: int
    time: TimeKind
    zone: str | None = None
    lateness_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAggregate(OperatorNode):
    """Unbounded GROUP BY: the keys, then the calls. Without calls it is DISTINCT.

    A group that has not been touched for `ttl_ms` is discarded (0: never). With `window`, whose end
    is one of the keys, groups are discarded when their window no longer accepts rows; later rows
    are dropped.
    """

    input: Plan
    keys: tuple[Expr, ...]
    calls: tuple[AggCall, ...]
    window: InWindow | None = None
    ttl_ms: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        assert self.keys or self.calls, "neither keys nor calls"
        assert self.window is None or self.window.end < len(self.keys), "the end of the window is a key"
        check_reads(self, self.input, [*self.keys, *_parts_of(self.calls)])

    @Fact
    def schema(self) -> Schema:
        return Schema((*_number("k", self.keys), *_number("a", self.calls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEmit(OperatorNode):
    """Emit control (streaming): when changes of window results are emitted.

    Changes are held back for `early_ms` while a window is open, and for `late_ms` after it has
    ended. 0: not at all; None: until the window ends, or forever. When the window ends, all held
    changes are emitted. keys: the key of the results. time_column: window_time, a time attribute.
    """

    input: Plan
    keys: tuple[Column, ...]
    window: InWindow
    time_column: Column
    early_ms: int | None
    late_ms: int | None

    def __post_init__(self) -> None:
        check_reads(self, self.input, columns=[*self.keys, self.window.end, self.time_column])

    @Fact
    def schema(self) -> Schema:
        return _set_time(self.input.schema, self.time_column, self.window.time.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKey:
    """One expression of ORDER BY. In Flink, NULL is the smallest value."""

    expression: Expr
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of an OVER window around each row: from `first` to `last`, both inclusive.

    rows: bounds count rows; otherwise they are distances of the only order key, in milliseconds for
    a time. 0 is the current row, including all its peers unless rows are counted; preceding rows
    are negative. None: unbounded. scale: distances of numbers are in units of 10^-scale; for a
    DECIMAL it is the scale of its type.
    """

    rows: bool
    first: int | None
    last: int | None
    scale: int = 0

    @property
    def is_by_distance(self) -> bool:
        """Whether the frame selects rows by their distance from the current one."""
        return not self.rows and bool({self.first, self.last} - {None, 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class OverAggregate(OperatorNode):
    """OVER: each input row with the aggregates of its frame, in a partition sorted by `order`.

    Columns: the input's, the calls. In a stream, if the order is one ascending time attribute and
    the input is insert-only, each row is emitted once: when the watermark has passed it (`time`
    ROWTIME), or at once (PROCTIME). With any other order (`time` BOUNDED) rows are emitted at once,
    and the result follows every change. Rows that are equal in the order stay in arrival order.
    Without calls the node sorts the rows of a stream (ORDER BY): further keys, which are columns,
    sort rows of the same time. A
    partition that has not been touched for `ttl_ms` is discarded (0: never). stream_error: the
    error for running it in a stream as it is; it may become a `Rank`.
    """

    input: Plan
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    frame: Frame
    calls: tuple[AggCall, ...]
    time: TimeKind
    ttl_ms: int = field(default=0, compare=False)
    stream_error: SqlError | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        assert self.calls or self.time is not TimeKind.BOUNDED, "OVER without calls"
        check_reads(
            self, self.input, [*self.partition, *_parts_of(self.calls), *(key.expression for key in self.order)]
        )

    @Fact
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, *_number("a", self.calls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(OperatorNode):
    """Top-N and deduplication (streaming): rows `first` to `last` of each partition, from 1.

    Partitions are sorted by `order`. Columns: the input's and, if `numbered`, the row number. Equal
    rows are in arrival order, but see `keeps_newest`; so are all rows if the order is processing
    time. With `window`, whose
    columns are among the partition columns, rows are emitted once, when time has passed their
    window. Otherwise the result follows every change of the input. A partition that has not been
    touched for `ttl_ms` is discarded (0: never).
    """

    input: Plan
    partition: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    first: int
    last: int
    numbered: bool = True
    window: InWindow | None = None
    ttl_ms: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        assert 1 <= self.first <= self.last, f"rows {self.first} to {self.last}"
        end = [] if self.window is None else [self.window.end]
        check_reads(self, self.input, [*self.partition, *(key.expression for key in self.order)], end)

    @Fact
    def schema(self) -> Schema:
        number = Field(name="rank", type=ROW_COUNT)
        return Schema((*self.input.schema.fields, *([number] if self.numbered else [])))

    @property
    def is_by_arrival(self) -> bool:
        """Whether rows are ranked in arrival order, so that a ranked row keeps its rank."""
        return not self.order or (self._by_proctime(self.order[0]) and not self.order[0].descending)

    @property
    def keeps_newest(self) -> bool:
        """Whether only the newest row by event time is taken. Of rows with equal times it is the
        last to arrive, unless the input has changes.
        """
        return (
            self.last == 1
            and len(self.order) == 1
            and self.order[0].descending
            and time_attribute(self.order[0].expression, self.input.schema) == "rowtime"
        )

    def _by_proctime(self, key: SortKey) -> bool:
        return time_attribute(key.expression, self.input.schema) == "proctime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(PlanNode):
    """ORDER BY (batch)."""

    input: Plan
    keys: tuple[SortKey, ...]

    def __post_init__(self) -> None:
        assert self.keys, "nothing to sort by"
        check_reads(self, self.input, [key.expression for key in self.keys])

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(PlanNode):
    """LIMIT and OFFSET (batch). `count` None means no limit."""

    input: Plan
    count: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        assert min(self.offset, self.count or 0) >= 0, f"{self.count} rows after {self.offset}"

    @Fact
    def schema(self) -> Schema:
        return self.input.schema


class JoinKind(StrEnum):
    """The kind of a join. SEMI and ANTI are [NOT] IN and [NOT] EXISTS."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    CROSS = "cross"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(PlanNode):
    """A join. The condition is over the columns of both sides, left first.

    SEMI and ANTI return only the left columns. In a stream the left side is streamed and the right
    side is bounded: it is read as a batch, and no state is kept for matches. So time attributes of
    the left side remain time attributes.
    """

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Expr | None

    def __post_init__(self) -> None:
        assert (self.condition is None) == (self.kind is JoinKind.CROSS), "only CROSS JOIN has no condition"
        if self.condition is not None:
            width = len(self.left.schema) + len(self.right.schema)
            check_positions(self, self.condition.least_width, width)

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
    """The kind of a set operation. UNION ALL is a separate node."""

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

    def __post_init__(self) -> None:
        check_widths(self, (self.left, self.right))

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
"""The nodes that an operator of everfold runs in a stream: those that `is_stateful` accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """An INSERT: the query's columns are written to the table's columns by position.

    They are already cast to the column types.
    """

    table: Table
    input: Plan
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """A bare SELECT: the rows are returned to the caller."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


Root: TypeAlias = Sink | Collect


def runs_on_arrival(node: StatefulNode) -> bool:
    """Return whether a stateful node runs on processing time, not on the time of its rows."""
    if isinstance(node, Rank | GroupAggregate | WindowEmit):
        return node.window is not None and node.window.time is TimeKind.PROCTIME
    return isinstance(node, WindowTableFunction | WindowAggregate | OverAggregate) and node.time is TimeKind.PROCTIME


def is_stateful(node: Plan) -> TypeGuard[StatefulNode]:
    """Return whether an operator of everfold runs the node in a stream and keeps state for it."""
    if isinstance(node, WindowTableFunction):
        return isinstance(node.window, Session)
    return isinstance(node, StatefulNode)


def _number(letter: str, values: Iterable[Expr | AggCall]) -> Iterator[Field]:
    """Yield the columns of keys or calls: k0, k1, … or a0, a1, …"""
    return (Field(name=f"{letter}{at}", type=each.type) for at, each in enumerate(values))


def _set_time(schema: Schema, column: int, time: str) -> Schema:
    """Return the schema with a column as the time attribute."""
    fields = list(schema.fields)
    fields[column] = Field(name=fields[column].name, type=fields[column].type, time=time)
    return Schema(tuple(fields))


def _parts_of(calls: Iterable[AggCall]) -> Iterator[Expr]:
    """Yield what aggregate calls read."""
    return (each for call in calls for each in call.expressions)


HAS_ROW = "HAS_ROW"
"""The aggregate that is TRUE for a group that has got a row. It is not part of a query
(`compat.new_columns`).
"""
ROW_COUNT = BIGINT.as_nullable(False)
"""The type of COUNT."""
_WHOLE = INT.as_nullable(False)
ONE_ROW = Values(rows=((Literal(type=_WHOLE, value=0),),), fields=(Field(name="", type=_WHOLE),))
"""One row with one unnamed column."""
