"""Rewrites: the same meaning with less work.

Each is a function on plans; `rewrite` applies them to all plans that are submitted together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import assert_never

from everfold.limits import MAX_MERGED
from everfold.plan.expressions import (
    Expr,
    InputRef,
    PythonCall,
    conjunction,
    conjuncts,
    depth,
    inputs_of,
    substitute,
    transform,
    walk,
)
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Collect,
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
    Table,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.python_calls import calls_python, split_python_calls
from everfold.plan.walk import children, with_children


def rewrite(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Apply all rewrites, in order.

    Roots that run as one job are rewritten together: a table has the same columns wherever it is
    read.
    """
    merged = tuple(replace(root, input=split_python_calls(merge_projects(root.input))) for root in roots)
    pruned = prune_columns(merged)
    return tuple(replace(root, input=merge_projects(root.input)) for root in pruned)


# --- projections over projections -----------------------------------------------------------------


def merge_projects(node: Plan) -> Plan:
    """Merge consecutive projections, and drop those that change nothing.

    A column that is used more than once is not duplicated, unless it is a reference or a constant.
    """
    node = with_children(node, tuple(merge_projects(child) for child in children(node)))
    while isinstance(node, Project):
        below = node.input
        if isinstance(below, Project) and _is_merge_cheap(node, below):
            expressions = tuple(substitute(each, below.expressions) for each in node.expressions)
            node = replace(node, input=below.input, expressions=expressions)
        elif node.names == below.schema.names and all(
            isinstance(each, InputRef) and each.position == at for at, each in enumerate(node.expressions)
        ):
            return below
        else:
            break
    return node


def shorten(node: Plan) -> Plan:
    """Merge consecutive projections, filters and unions, which reduces the height of the plan."""
    return _merge_filters(merge_projects(node))


def _merge_filters(node: Plan) -> Plan:
    node = with_children(node, tuple(map(_merge_filters, children(node))))
    if isinstance(node, Filter) and isinstance(node.input, Filter):
        conditions = [*conjuncts(node.input.condition), *conjuncts(node.condition)]
        return replace(node, input=node.input.input, condition=conjunction(conditions))
    if isinstance(node, Union) and any(isinstance(each, Union) for each in node.inputs):
        inputs = (each.inputs if isinstance(each, Union) else (each,) for each in node.inputs)
        return replace(node, inputs=tuple(chain.from_iterable(inputs)))
    return node


def _is_merge_cheap(above: Project, below: Project) -> bool:
    for expression in above.expressions:
        # A Python call must remain a whole expression.
        if not isinstance(expression, InputRef) and any(map(calls_python, _columns_read(expression, below))):
            return False
    uses: dict[int, int] = {}
    for expression in above.expressions:
        for part in walk(expression):
            if isinstance(part, InputRef):
                uses[part.position] = uses.get(part.position, 0) + 1
    if not all(count == 1 or _costs_nothing(below.expressions[at]) for at, count in uses.items()):
        return False
    return (
        max(map(depth, above.expressions), default=0) + max((depth(below.expressions[at]) for at in uses), default=0)
        <= MAX_MERGED
    )


def _columns_read(expression: Expr, below: Project) -> list[Expr]:
    """Return the columns of a projection that an expression over it reads."""
    return [below.expressions[at] for at in inputs_of(expression)]


def _costs_nothing(expression: Expr) -> bool:
    return not isinstance(expression, PythonCall) and not getattr(expression, "args", ())


# --- unused columns ---------------------------------------------------------------------


def prune_columns(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Return plans whose scans read only the columns that are used; a scan keeps at least one.

    A table has the same columns in all of its scans, so that it can be read once.
    """
    wanted: dict[Table, frozenset[int]] = {}
    for root in roots:
        _Pruning(wanted, collecting=True).node(root.input, frozenset(range(len(root.input.schema))))
    made: list[Root] = []
    for root in roots:
        whole = frozenset(range(len(root.input.schema)))
        pruned = _Pruning(wanted, collecting=False).node(root.input, whole)
        assert pruned.whole(len(root.input.schema)), "a root keeps its columns"
        match root:
            case Sink():
                made.append(replace(root, input=pruned.exact(root.input)))
            case Collect():
                made.append(replace(root, input=pruned.exact(root.input)))
    return tuple(made)


@dataclass(frozen=True, slots=True)
class _Pruned:
    """A plan with fewer columns, and the new position of each remaining column."""

    plan: Plan
    at: Mapping[int, int]

    def whole(self, width: int) -> bool:
        return all(position in self.at for position in range(width))

    def exact(self, before: Plan) -> Plan:
        """Return the plan with the columns of `before`, in their order."""
        width = len(before.schema)
        if len(self.plan.schema) == width and all(self.at[at] == at for at in range(width)):
            return self.plan
        return self.only(range(width), before)

    def only(self, positions: Iterable[int], before: Plan) -> Project:
        """Return a projection to some columns of `before`."""
        positions = tuple(positions)
        fields = before.schema
        return Project(
            input=self.plan,
            expressions=tuple(
                InputRef(type=fields[at].type, position=self.at[at], name=fields[at].name) for at in positions
            ),
            names=tuple(fields[at].name for at in positions),
        )

    def expr(self, expression: Expr) -> Expr:
        def moved(part: Expr) -> Expr | None:
            return replace(part, position=self.at[part.position]) if isinstance(part, InputRef) else None

        return transform(expression, moved)

    def call(self, call: AggCall) -> AggCall:
        condition = None if call.filter is None else self.expr(call.filter)
        return replace(call, args=tuple(self.expr(arg) for arg in call.args), filter=condition)


def _positions_read(expressions: Iterable[Expr]) -> frozenset[int]:
    return frozenset().union(*(inputs_of(each) for each in expressions))


def _call_parts(calls: Iterable[AggCall]) -> list[Expr]:
    return [part for call in calls for part in (*call.args, *(() if call.filter is None else (call.filter,)))]


def _identity(positions: Iterable[int]) -> dict[int, int]:
    return {at: at for at in positions}


@dataclass(frozen=True, slots=True)
class _Pruning:
    """A walk down the plan with the required columns.

    The first walk only collects the columns that each table must have.
    """

    wanted: dict[Table, frozenset[int]]
    collecting: bool

    def node(self, node: Plan, needed: frozenset[int]) -> _Pruned:
        match node:
            case Scan():
                return self._scan(node, needed)
            case Values():
                return _Pruned(node, _identity(range(len(node.schema))))
            case Project():
                return self._project(node, needed)
            case Filter():
                below = self.node(node.input, needed | inputs_of(node.condition))
                return _Pruned(replace(node, input=below.plan, condition=below.expr(node.condition)), below.at)
            case WatermarkAssigner():
                below = self.node(node.input, needed | {node.column} | inputs_of(node.watermark))
                made = replace(
                    node, input=below.plan, column=below.at[node.column], watermark=below.expr(node.watermark)
                )
                return _Pruned(made, below.at)
            case ChangelogNormalize():
                below = self.node(node.input, needed | frozenset(node.keys))
                made_whole = replace(node, input=below.plan, keys=tuple(below.at[at] for at in node.keys))
                return _Pruned(made_whole, below.at)
            case Sort():
                below = self.node(node.input, needed | _positions_read(key.expression for key in node.keys))
                keys = tuple(replace(key, expression=below.expr(key.expression)) for key in node.keys)
                return _Pruned(replace(node, input=below.plan, keys=keys), below.at)
            case Limit():
                below = self.node(node.input, needed)
                return _Pruned(replace(node, input=below.plan), below.at)
            case Unnest():
                return self._unnest(node, needed)
            case WindowTableFunction():
                return self._window_function(node, needed)
            case WindowAggregate():
                return self._window_aggregate(node, needed)
            case GroupAggregate():
                return self._group_aggregate(node, needed)
            case WindowEmit():
                below = self.node(node.input, needed | {*node.keys, node.window.end, node.time_column})
                made_emit = replace(
                    node,
                    input=below.plan,
                    keys=tuple(below.at[at] for at in node.keys),
                    window=replace(node.window, end=below.at[node.window.end]),
                    time_column=below.at[node.time_column],
                )
                return _Pruned(made_emit, below.at)
            case OverAggregate():
                return self._over(node, needed)
            case Rank():
                return self._rank(node, needed)
            case Union():
                return self._union(node, needed)
            case SetOperation():
                left, right = (self.node(side, frozenset(range(len(side.schema)))) for side in (node.left, node.right))
                made_set = replace(node, left=left.exact(node.left), right=right.exact(node.right))
                return _Pruned(made_set, _identity(range(len(node.schema))))
            case Join():
                return self._join(node, needed)
            case _:
                assert_never(node)

    def _scan(self, node: Scan, needed: frozenset[int]) -> _Pruned:
        table = node.table
        if self.collecting:
            self.wanted[table] = self.wanted.get(table, frozenset()) | needed
            return _Pruned(node, _identity(range(len(table.columns))))
        needed = self.wanted[table]
        if table.needs_all_columns:
            needed |= {at for at, column in enumerate(table.columns) if column.metadata_key is None}
        kept = sorted(needed) or [0]
        columns = tuple(table.columns[at] for at in kept)
        return _Pruned(replace(node, table=replace(table, columns=columns)), {old: new for new, old in enumerate(kept)})

    def _project(self, node: Project, needed: frozenset[int]) -> _Pruned:
        kept = sorted(needed) or [0]
        below = self.node(node.input, _positions_read(node.expressions[at] for at in kept))
        made = replace(
            node,
            input=below.plan,
            expressions=tuple(below.expr(node.expressions[at]) for at in kept),
            names=tuple(node.names[at] for at in kept),
        )
        return _Pruned(made, {old: new for new, old in enumerate(kept)})

    def _unnest(self, node: Unnest, needed: frozenset[int]) -> _Pruned:
        width = len(node.input.schema)
        below = self.node(node.input, frozenset(at for at in needed if at < width) | inputs_of(node.collection))
        made = replace(node, input=below.plan, collection=below.expr(node.collection))
        left = len(below.plan.schema)
        return _Pruned(made, {**below.at, **{width + at: left + at for at in range(len(node.fields))}})

    def _window_function(self, node: WindowTableFunction, needed: frozenset[int]) -> _Pruned:
        width = len(node.input.schema)
        below = self.node(
            node.input, frozenset(at for at in needed if at < width) | {node.time_column, *node.partition_keys}
        )
        made = replace(
            node,
            input=below.plan,
            time_column=below.at[node.time_column],
            partition_keys=tuple(below.at[at] for at in node.partition_keys),
        )
        left = len(below.plan.schema)
        return _Pruned(made, {**below.at, **{width + at: left + at for at in range(3)}})

    def _window_aggregate(self, node: WindowAggregate, needed: frozenset[int]) -> _Pruned:
        keys, calls = len(node.keys), len(node.calls)
        kept = [at for at in range(calls) if keys + at in needed]
        used = tuple(node.calls[at] for at in kept)
        below = self.node(node.input, _positions_read((*node.keys, *_call_parts(used))) | {node.time_column})
        made = replace(
            node,
            input=below.plan,
            time_column=below.at[node.time_column],
            keys=tuple(below.expr(key) for key in node.keys),
            calls=tuple(below.call(call) for call in used),
        )
        at = _identity(range(keys)) | {keys + old: keys + new for new, old in enumerate(kept)}
        return _Pruned(made, at | {keys + calls + each: keys + len(kept) + each for each in range(3)})

    def _over(self, node: OverAggregate, needed: frozenset[int]) -> _Pruned:
        width = len(node.input.schema)
        kept = [at for at in range(len(node.calls)) if width + at in needed]
        if not kept:
            return self.node(node.input, needed)
        used = tuple(node.calls[at] for at in kept)
        read = _positions_read((*node.partition, *(key.expression for key in node.order), *_call_parts(used)))
        below = self.node(node.input, frozenset(at for at in needed if at < width) | read)
        made = replace(
            node,
            input=below.plan,
            partition=tuple(below.expr(key) for key in node.partition),
            order=tuple(replace(key, expression=below.expr(key.expression)) for key in node.order),
            calls=tuple(below.call(call) for call in used),
        )
        columns = len(below.plan.schema)
        return _Pruned(made, {**below.at, **{width + at: columns + new for new, at in enumerate(kept)}})

    def _rank(self, node: Rank, needed: frozenset[int]) -> _Pruned:
        width = len(node.input.schema)
        read = _positions_read((*node.partition, *(key.expression for key in node.order)))
        read |= {node.window.end} if node.window is not None else set()
        below = self.node(node.input, frozenset(at for at in needed if at < width) | read)
        made = replace(
            node,
            input=below.plan,
            partition=tuple(below.expr(key) for key in node.partition),
            order=tuple(replace(key, expression=below.expr(key.expression)) for key in node.order),
            numbered=width in needed,
            window=None if node.window is None else replace(node.window, end=below.at[node.window.end]),
        )
        return _Pruned(made, {**below.at, **({width: len(below.plan.schema)} if made.numbered else {})})

    def _group_aggregate(self, node: GroupAggregate, needed: frozenset[int]) -> _Pruned:
        keys = len(node.keys)
        kept = [at for at in range(len(node.calls)) if keys + at in needed]
        if not keys and not kept:
            kept = list(range(min(1, len(node.calls))))
        used = tuple(node.calls[at] for at in kept)
        below = self.node(node.input, _positions_read((*node.keys, *_call_parts(used))))
        made = replace(
            node,
            input=below.plan,
            keys=tuple(below.expr(key) for key in node.keys),
            calls=tuple(below.call(call) for call in used),
        )
        return _Pruned(made, _identity(range(keys)) | {keys + old: keys + new for new, old in enumerate(kept)})

    def _union(self, node: Union, needed: frozenset[int]) -> _Pruned:
        kept = sorted(needed) or [0]
        inputs: list[Plan] = []
        for each in node.inputs:
            below = self.node(each, frozenset(kept))
            plain = len(below.plan.schema) == len(kept) and all(below.at[old] == new for new, old in enumerate(kept))
            inputs.append(below.plan if plain else below.only(kept, each))
        return _Pruned(replace(node, inputs=tuple(inputs)), {old: new for new, old in enumerate(kept)})

    def _join(self, node: Join, needed: frozenset[int]) -> _Pruned:
        width = len(node.left.schema)
        wanted = needed | (frozenset() if node.condition is None else inputs_of(node.condition))
        left = self.node(node.left, frozenset(at for at in wanted if at < width))
        right = self.node(node.right, frozenset(at - width for at in wanted if at >= width))
        shift = len(left.plan.schema)
        at = {**left.at, **{width + old: shift + new for old, new in right.at.items()}}
        both = _Pruned(node, at)
        condition = None if node.condition is None else both.expr(node.condition)
        made = replace(node, left=left.plan, right=right.plan, condition=condition)
        return _Pruned(made, left.at if node.kind in (JoinKind.SEMI, JoinKind.ANTI) else at)
