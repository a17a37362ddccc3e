"""Canonical texts of plans: what their rows, columns and operators mean.

Texts refer to the columns of tables and are equal if the meaning is equal, so they name state.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from typing import assert_never

from everfold.limits import MAX_TEXT, too_complex_error
from everfold.plan.branches import (
    Branch,
    Joined,
    Path,
    join_alternatives,
    name_window_columns,
    number_joins,
    without_numbers,
)
from everfold.plan.expression_text import canonical_text, condition_texts, is_constant_text
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Column,
    Filter,
    Frame,
    GroupAggregate,
    InWindow,
    Join,
    JoinKind,
    Limit,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Scan,
    SetOperation,
    Sort,
    SortKey,
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
from everfold.plan.walk import walk_without
from everfold.plan.windows import duration, simplify, window_text

KINDS: dict[type[StatefulNode], str] = {
    ChangelogNormalize: "ChangelogNormalize",
    GroupAggregate: "GroupAggregate",
    OverAggregate: "OverAggregate",
    Rank: "Rank",
    WindowAggregate: "WindowAggregate",
    WindowEmit: "WindowEmit",
    WindowTableFunction: "WindowTableFunction",
}
"""The names of operators in stored shapes."""
NO_CLOCK = "no clock"
"""The `time` of an OVER whose rows are not ordered by time.

Its result follows every change, and all its rows are in its state.
"""


_SPECIAL = re.compile(r"[\s.,()|#`'\":\[\]]")
"""Characters of a name that have a meaning in canonical texts."""
_VALUES = "VALUES"


# --- branches -------------------------------------------------------------------------------------


def branches_of(plan: Plan) -> tuple[Branch, ...]:
    """Return the branches of a plan, in the order in which they are written.

    Raises SqlError `too-complex`.
    """
    return plan.remember("branches", _number_paths)


def _number_paths(plan: Plan) -> tuple[Branch, ...]:
    for node in reversed([*walk_without("paths", plan)]):
        _paths_of(node)
    return tuple(map(number_joins, _paths_of(plan)))


def check_length(texts: Sequence[str], plan: Plan) -> None:
    """Raise SqlError `too-complex` if the texts of a node's columns are too long together."""
    length = sum(map(len, texts))
    if length > MAX_TEXT:
        what = f"a step of its query has {length:,} characters when expanded down to the columns of tables"
        raise too_complex_error(what, MAX_TEXT, plan.span, "write the result of a view to a table and read that table")


def _paths_of(plan: Plan) -> tuple[Path, ...]:
    return plan.remember("paths", _find_paths)


def _find_paths(plan: Plan) -> tuple[Path, ...]:
    match plan:
        case Scan():
            table = plan.table.identity
            columns = tuple(f"{quote_name(table)}.{quote_name(column.identity)}" for column in plan.table.columns)
            return (Path(table, columns, used={table: 1}),)
        case Values():
            rows = ", ".join(f"({', '.join(canonical_text(value, ()) for value in row)})" for row in plan.rows)
            columns = tuple(f"{_VALUES}.{quote_name(field.name)}" for field in plan.fields)
            return (Path(f"{_VALUES} {rows}", columns, used={_VALUES: 1}),)
        case WatermarkAssigner():
            return _paths_of(plan.input)
        case Union():
            return tuple(path for branch in plan.inputs for path in _paths_of(branch))
        case Project():
            return tuple(_project(plan, path) for path in _paths_of(plan.input))
        case Filter():
            return tuple(
                replace(path, filters=(*path.filters, *condition_texts(plan.condition, path.columns)))
                for path in _paths_of(plan.input)
            )
        case Unnest():
            return tuple(_unnest(plan, path) for path in _paths_of(plan.input))
        case Join():
            return tuple(_join(plan, path) for path in _paths_of(plan.left))
        case WindowTableFunction() if not is_stateful(plan):
            return tuple(_assign_windows(plan, path) for path in _paths_of(plan.input))
        case Sort():
            return _limit(f"ORDER BY {order_text(plan.keys, column_texts(plan.input))}", [plan.input])
        case Limit():
            return _limit(f"LIMIT {plan.count} OFFSET {plan.offset}", [plan.input])
        case SetOperation():
            return _limit(plan.kind.value, [plan.left, plan.right])
        case _:
            assert is_stateful(plan)
            texts = texts_of(plan)
            adds_window = isinstance(plan, WindowAggregate | WindowTableFunction)
            window_count = max(branch.window_count for branch in texts.branches) + adds_window
            used = _count_used(texts.branches)
            return (Path(texts.operator_text, output_texts(plan), operator=plan, used=used, window_count=window_count),)


def column_texts(plan: Plan) -> tuple[str, ...]:
    """Return the canonical text of each column of a plan.

    It does not include what happens to rows on the way: conditions, joins, order. A column that
    differs between branches has the texts of all of them, in an order of the branches that does not
    depend on how they are written.
    """
    return plan.remember("column-texts", _merge_branches)


def _merge_branches(plan: Plan) -> tuple[str, ...]:
    branches = sorted(branches_of(plan), key=lambda branch: (branch.rows, branch.filters, sorted(branch.columns)))
    texts = tuple(map(join_alternatives, zip(*(branch.columns for branch in branches), strict=True)))
    check_length(texts, plan)
    return texts


def expression_text(plan: Plan, expression: Expr) -> str:
    """Return the canonical text of an expression over a plan's columns, in the same order of its
    branches.
    """
    keyed = [(branch.rows, branch.filters, canonical_text(expression, branch.columns)) for branch in branches_of(plan)]
    return join_alternatives([text for *_, text in sorted(keyed)])


def quote_name(name: str) -> str:
    """Return a name in a canonical text, in backticks if it contains special characters."""
    return f"`{name.replace('`', '``')}`" if _SPECIAL.search(name) else name


def order_text(keys: Sequence[SortKey], names: Sequence[str]) -> str:
    """Return ORDER BY keys with canonical texts."""
    return ", ".join(write_order(canonical_text(key.expression, names), key) for key in keys)


def write_order(text: str, key: SortKey) -> str:
    """Return an ORDER BY key, whose expression has the given text."""
    nulls = "" if key.nulls_first != key.descending else ", NULLs elsewhere"
    return f"{text}{' DESC' if key.descending else ''}{nulls}"


def time_text(node: WindowAggregate | WindowTableFunction, column: str) -> str:
    """Return the clock of a window, and the time zone in which it is aligned.

    column: the text of the time column.
    """
    return f"{column}, {node.time.value}{'' if node.zone is None else f' in {node.zone}'}"


# --- steps of a path ------------------------------------------------------------------------------


def _project(plan: Project, path: Path) -> Path:
    columns = tuple(canonical_text(expression, path.columns) for expression in plan.expressions)
    check_length(columns, plan)
    return replace(path, columns=columns)


def _unnest(plan: Unnest, path: Path) -> Path:
    text = canonical_text(plan.collection, path.columns)
    collection = f"UNNEST({text})"
    columns = [f"{collection}[{position}]{path.mark}" for position in range(len(plan.fields))]
    return path.join(Joined(unnest_text(plan, text), {without_numbers(collection): 1}), columns)


def join_text(plan: Join, left: Sequence[str], right: Sequence[str]) -> str:
    """Return the canonical text of a join. left, right: the texts of the columns of its sides."""
    rows = " UNION ALL ".join(sorted(branch.text for branch in branches_of(plan.right)))
    conditions = [] if plan.condition is None else condition_texts(plan.condition, (*left, *right))
    return f"{plan.kind.value} JOIN ({rows}) ON {' AND '.join(sorted(conditions))}"


def unnest_text(plan: Unnest, collection: str) -> str:
    """Return the canonical text of an UNNEST. collection: the text of what it reads."""
    return f"UNNEST({collection}){' OUTER' * plan.outer}{' WITH ORDINALITY' * plan.ordinality}"


def _join(plan: Join, path: Path) -> Path:
    columns = [f"{text}{path.mark}" for text in column_texts(plan.right)]
    text = join_text(plan, path.columns, columns)
    if plan.kind in (JoinKind.RIGHT, JoinKind.FULL):
        # Other joins and conditions do not commute with these.
        before = [joined.text for joined in path.joins]
        text += f" AFTER {sorted(before)} {sorted(path.filters)}"
    is_test = plan.kind in (JoinKind.SEMI, JoinKind.ANTI)
    joined = Joined(text, _count_used(branches_of(plan.right)), is_test)
    return path.join(joined, () if is_test else columns)


def _assign_windows(plan: WindowTableFunction, path: Path) -> Path:
    number = path.window_count + 1
    time = time_text(plan, path.columns[plan.time_column])
    return replace(
        path,
        windows=(*path.windows, f"{window_text(simplify(plan.window))} of {time}"),
        columns=(*path.columns, *name_window_columns(number)),
        window_count=number,
    )


def _limit(text: str, inputs: Sequence[Plan]) -> tuple[Path, ...]:
    """Return the path of rows that depend on all rows of some inputs."""
    sides = [" UNION ALL ".join(sorted(branch.text for branch in branches_of(side))) for side in inputs]
    columns = tuple(map(join_alternatives, zip(*map(column_texts, inputs), strict=True)))
    used = _count_used([branch for side in inputs for branch in branches_of(side)])
    window_count = max(branch.window_count for side in inputs for branch in branches_of(side))
    return (Path(f"{text} ({') ('.join(sides)})", columns, used=used, window_count=window_count),)


def _count_used(branches: Iterable[Branch]) -> Mapping[str, int]:
    """Return how often each table or collection occurs at most in one of some branches."""
    used: Counter[str] = Counter()
    for branch in branches:
        used |= Counter(branch.used)
    return used


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorIdentity:
    """What identifies the groups, the partitions or the rows of an operator.

    keys: of groups and partitions, in order.
    order: the ORDER BY keys.
    window: the window or the frame.
    time: the clock that it runs on.
    counted: the first and last row number of a Top-N.
    emission: when results are emitted.
    """

    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    window: str = ""
    time: str = ""
    counted: tuple[int, ...] = ()
    emission: str = ""


class OperatorTexts:
    """The canonical texts of the expressions of an operator, over the branches that it reads.

    An expression that differs between branches has the texts of all of them. They are in the order
    of the branches: by what identifies the rows and the groups of a branch. Branches that agree in
    these are in the order of the texts themselves, so that the order in which a UNION ALL is
    written does not matter.
    """

    def __init__(self, node: StatefulNode) -> None:
        self._node = node
        identifying = _identifying_expressions(node)
        keyed = [
            ((branch.rows, self._texts_in(branch, identifying), branch.filters), branch)
            for branch in branches_of(node.input)
        ]
        keyed.sort(key=lambda pair: pair[0])
        self.branches = tuple(branch for _, branch in keyed)
        ranks: dict[object, int] = {}
        self._ranks = [ranks.setdefault(key, rank) for rank, (key, _) in enumerate(keyed)]

    @staticmethod
    def _texts_in(branch: Branch, expressions: Sequence[Expr]) -> tuple[str, ...]:
        return tuple(canonical_text(expression, branch.columns) for expression in expressions)

    def write(self, expressions: Sequence[Expr]) -> tuple[str, ...]:
        """Return the texts of expressions that are computed together, as the arguments of a
        call.
        """
        if len(self.branches) == 1:
            return self._texts_in(self.branches[0], expressions)
        by_branch = [self._texts_in(branch, expressions) for branch in self.branches]
        ordered = [texts for _, texts in sorted(zip(self._ranks, by_branch, strict=True))]
        return tuple(map(join_alternatives, zip(*ordered, strict=True)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The texts of the columns of its input, which are stored together."""
        return self._node.remember("row-texts", lambda _: self._write_columns())

    def _write_columns(self) -> tuple[str, ...]:
        pairs = zip(self._ranks, self.branches, strict=True)
        ordered = sorted(pairs, key=lambda pair: (pair[0], sorted(pair[1].columns)))
        return tuple(map(join_alternatives, zip(*(branch.columns for _, branch in ordered), strict=True)))

    @property
    def identity(self) -> OperatorIdentity:
        """What identifies its groups or partitions."""
        return self._node.remember("identity", lambda _: _identify(self._node, self))

    @property
    def operator_text(self) -> str:
        """The text of the rows that the operator emits, whatever it computes for them."""
        rows = " UNION ALL ".join(branch.text for branch in self.branches)
        return f"{KINDS[type(self._node)]}{astuple(self.identity)} of ({rows})"


def texts_of(node: StatefulNode) -> OperatorTexts:
    """Return the canonical texts of an operator."""
    return node.remember("operator-texts", OperatorTexts)


def call_text(node: StatefulNode, call: AggCall) -> str:
    """Return the canonical text of a call of an operator.

    For example `SUM(Bid.price) FILTER (…)`; COUNT(*) and COUNT(1) are `COUNT()`.
    """
    texts = texts_of(node).write(call.expressions)
    args = [*texts[: len(call.args)], *(canonical_text(constant, ()) for constant in call.constants)]
    if call.function == "COUNT" and not call.distinct and all(map(is_constant_text, args)):
        args = []
    function = call.function if call.python is None else call.python.identifier
    condition = "" if call.filter is None else f" FILTER ({texts[-1]})"
    return f"{function}({'DISTINCT ' * call.distinct}{', '.join(args)}){condition}"


def expr_texts(node: StatefulNode, expressions: Iterable[Expr]) -> tuple[str, ...]:
    """Return the canonical text of each of some expressions of an operator."""
    texts = texts_of(node)
    return tuple(texts.write([expression])[0] for expression in expressions)


def expr_text(node: StatefulNode, expression: Expr) -> str:
    """Return the canonical text of an expression of an operator."""
    return expr_texts(node, [expression])[0]


def output_texts(node: StatefulNode) -> tuple[str, ...]:
    """Return the canonical text of each column that an operator emits."""
    texts = texts_of(node)
    number = max(branch.window_count for branch in texts.branches) + 1
    match node:
        case GroupAggregate():
            columns = (*texts.identity.keys, *(call_text(node, call) for call in node.calls))
        case WindowAggregate():
            calls = (call_text(node, call) for call in node.calls)
            columns = (*texts.identity.keys, *calls, *name_window_columns(number))
        case WindowTableFunction():
            columns = (*texts.columns, *name_window_columns(number))
        case OverAggregate():
            columns = (*texts.columns, *(_over_text(node, call) for call in node.calls))
        case Rank():
            columns = (*texts.columns, *([f"ROW_NUMBER(){_partition_text(texts.identity)}"] * node.numbered))
        case ChangelogNormalize() | WindowEmit():
            columns = texts.columns
        case _:
            assert_never(node)
    check_length(columns, node)
    return columns


def _over_text(node: OverAggregate, call: AggCall) -> str:
    return f"{call_text(node, call)}{_partition_text(texts_of(node).identity, frame_text(node.frame))}"


def _partition_text(identity: OperatorIdentity, frame: str = "") -> str:
    parts = [
        f"PARTITION BY {', '.join(sorted(identity.keys))}" if identity.keys else "",
        f"ORDER BY {', '.join(identity.order)}" if identity.order else "",
        frame,
    ]
    return f" OVER ({' '.join(filter(None, parts))})"


def frame_text(frame: Frame) -> str:
    """Return a frame in SQL, with time distances in milliseconds."""
    bounds = [_bound_text(frame.first, "PRECEDING", frame.scale), _bound_text(frame.last, "FOLLOWING", frame.scale)]
    return f"{'ROWS' if frame.rows else 'RANGE'} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound_text(bound: int | None, without: str, scale: int) -> str:
    if bound is None:
        return f"UNBOUNDED {without}"
    if bound == 0:
        return "CURRENT ROW"
    return f"{Decimal(abs(bound)).scaleb(-scale)} {'PRECEDING' if bound < 0 else 'FOLLOWING'}"


# --- identity -------------------------------------------------------------------------------------


def _identifying_expressions(node: StatefulNode) -> list[Expr]:
    """Return the expressions by which an operator groups, partitions and sorts rows."""
    match node:
        case GroupAggregate():
            return [*node.keys]
        case WindowAggregate():
            return [*node.keys, *_references(node.input, node.time_column)]
        case WindowTableFunction():
            return _references(node.input, *node.partition_keys, node.time_column)
        case OverAggregate() | Rank():
            return [*node.partition, *(key.expression for key in node.order)]
        case ChangelogNormalize() | WindowEmit():
            return _references(node.input, *node.keys)
        case _:
            assert_never(node)


def _references(plan: Plan, *columns: Column) -> list[Expr]:
    return [InputRef(type=plan.schema[column].type, position=column) for column in columns]


def _identify(node: StatefulNode, texts: OperatorTexts) -> OperatorIdentity:
    identifying = texts.write(_identifying_expressions(node))
    match node:
        case GroupAggregate(window=InWindow() as in_window):
            emission = f"{window_text(simplify(in_window.of))} until {in_window.lateness_ms} ms later"
            return OperatorIdentity(keys=identifying, emission=emission)
        case GroupAggregate():
            return OperatorIdentity(keys=identifying)
        case WindowAggregate():
            return OperatorIdentity(
                keys=identifying[:-1],
                window=window_text(simplify(node.window)),
                time=time_text(node, identifying[-1]),
                emission="" if node.lateness_ms is None else f"as it grows, until {node.lateness_ms} ms later",
            )
        case WindowTableFunction():
            window = window_text(simplify(node.window))
            return OperatorIdentity(keys=identifying[:-1], window=window, time=time_text(node, identifying[-1]))
        case OverAggregate():
            return OperatorIdentity(
                keys=identifying[: len(node.partition)],
                order=_order(node, identifying),
                window=frame_text(node.frame),
                time=NO_CLOCK if node.time is TimeKind.BOUNDED else "",
            )
        case Rank():
            # The end of the window is among the columns of the partition.
            end = None if node.window is None else expr_text(node, _references(node.input, node.window.end)[0])
            return OperatorIdentity(
                keys=identifying[: len(node.partition)],
                order=_order(node, identifying),
                window="" if node.window is None else f"{window_text(simplify(node.window.of))}, {end}",
                counted=(node.first, node.last),
            )
        case ChangelogNormalize():
            return OperatorIdentity(keys=identifying)
        case WindowEmit():
            early, late = (None if ms is None else duration(ms) for ms in (node.early_ms, node.late_ms))
            emission = f"early {early}, late {late} within {node.window.lateness_ms} ms"
            return OperatorIdentity(keys=identifying, emission=emission)
        case _:
            assert_never(node)


def _order(node: OverAggregate | Rank, identifying: Sequence[str]) -> tuple[str, ...]:
    texts = identifying[len(node.partition) :]
    return tuple(write_order(text, key) for text, key in zip(texts, node.order, strict=True))
