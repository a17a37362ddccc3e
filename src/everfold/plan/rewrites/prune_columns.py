"""Remove columns and aggregate calls that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from everfold.plan.expressions import InputRef
from everfold.plan.nodes import (
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
from everfold.plan.parts import children, columns_read, move_columns


def prune_columns(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    """Return plans whose scans read only the columns that are used; a scan keeps at least one.

    A table has the same columns in all of its scans, so that it can be read once.

    Before: Project(k0 AS c, a1 AS n)
            └─ GroupAggregate(keys=[c], calls=[SUM(b), COUNT(*)])
               └─ Scan(table=[t], columns=[a, b, c])
    After:  Project(k0 AS c, a0 AS n)
            └─ GroupAggregate(keys=[c], calls=[COUNT(*)])
               └─ Scan(table=[t], columns=[c])
    """
    wanted: dict[Table, frozenset[int]] = {}
    for root in roots:
        _Pruning(wanted, collecting=True).node(root.input, _all_columns(root.input))
    pruned = (_Pruning(wanted, collecting=False).node(root.input, _all_columns(root.input)) for root in roots)
    return tuple(replace(root, input=each.exact(root.input)) for root, each in zip(roots, pruned, strict=True))


def _all_columns(plan: Plan) -> frozenset[int]:
    return frozenset(range(len(plan.schema)))


@dataclass(frozen=True, slots=True)
class _Pruned:
    """A plan with fewer columns, and the new position of each remaining column."""

    plan: Plan
    at: Mapping[int, int]

    def exact(self, before: Plan) -> Plan:
        """Return the plan with the columns of `before`, in their order."""
        return self.only(range(len(before.schema)), before)

    def only(self, positions: Iterable[int], before: Plan) -> Plan:
        """Return the plan with some columns of `before`, in this order."""
        wanted = tuple(positions)
        if tuple(self.at[at] for at in wanted) == tuple(range(len(self.plan.schema))):
            return self.plan
        fields = before.schema
        return Project(
            input=self.plan,
            expressions=tuple(
                InputRef(type=fields[at].type, position=self.at[at], name=fields[at].name) for at in wanted
            ),
            names=tuple(fields[at].name for at in wanted),
        )


def _number(columns: Iterable[int], first: int = 0) -> dict[int, int]:
    """Return the new positions of columns that are left, by their old ones."""
    return {old: new for new, old in enumerate(columns, first)}


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
                return _Pruned(node, _number(range(len(node.schema))))
            case Project():
                return self._project(node, needed)
            case GroupAggregate() | WindowAggregate():
                return self._aggregate(node, needed)
            case OverAggregate():
                return self._over(node, needed)
            case Rank():
                width = len(node.input.schema)
                return self._append(replace(node, numbered=width in needed), needed, needed & {width})
            case Unnest() | WindowTableFunction():
                return self._append(node, needed, range(len(node.input.schema), len(node.schema)))
            case Filter() | WatermarkAssigner() | ChangelogNormalize() | WindowEmit() | Sort() | Limit():
                return self._append(node, needed, ())
            case Union():
                kept = sorted(needed) or [0]
                inputs = tuple(self.node(each, frozenset(kept)).only(kept, each) for each in node.inputs)
                return _Pruned(replace(node, inputs=inputs), _number(kept))
            case SetOperation():
                left, right = (self.node(side, _all_columns(side)).exact(side) for side in (node.left, node.right))
                return _Pruned(replace(node, left=left, right=right), _number(range(len(node.schema))))
            case Join():
                return self._join(node, needed)
            case _:
                assert_never(node)

    def _scan(self, node: Scan, needed: frozenset[int]) -> _Pruned:
        table = node.table
        if self.collecting:
            self.wanted[table] = self.wanted.get(table, frozenset()) | needed
            return _Pruned(node, _number(range(len(table.columns))))
        needed = self.wanted[table]
        if table.needs_all_columns:
            needed |= {at for at, column in enumerate(table.columns) if column.metadata_key is None}
        kept = sorted(needed) or [0]
        if table.partition_keys and all(table.columns[at].name in table.partition_keys for at in kept):
            # They are the names of folders: a column of the files shows how many rows there are.
            others = (at for at, each in enumerate(table.columns) if each.name not in table.partition_keys)
            kept = sorted({*kept, next(at for at in others if table.columns[at].metadata_key is None)})
        columns = tuple(table.columns[at] for at in kept)
        return _Pruned(replace(node, table=replace(table, columns=columns)), _number(kept))

    def _project(self, node: Project, needed: frozenset[int]) -> _Pruned:
        kept = sorted(needed) or [0]
        expressions, names = tuple(node.expressions[at] for at in kept), tuple(node.names[at] for at in kept)
        return self._replace_columns(replace(node, expressions=expressions, names=names), kept)

    def _aggregate(self, node: GroupAggregate | WindowAggregate, needed: frozenset[int]) -> _Pruned:
        keys, calls = len(node.keys), len(node.calls)
        kept = [at for at in range(calls) if keys + at in needed]
        if isinstance(node, GroupAggregate) and not keys and not kept:
            kept = [0][:calls]
        columns = [*range(keys), *(keys + at for at in kept), *range(keys + calls, len(node.schema))]
        return self._replace_columns(replace(node, calls=tuple(node.calls[at] for at in kept)), columns)

    def _replace_columns(self, node: Plan, columns: Iterable[int]) -> _Pruned:
        """Prune the input of a node that computes all of its columns.

        columns: their old positions.
        """
        (source,) = children(node)
        below = self.node(source, columns_read(node))
        return _Pruned(move_columns(node, below.at, [below.plan]), _number(columns))

    def _over(self, node: OverAggregate, needed: frozenset[int]) -> _Pruned:
        width = len(node.input.schema)
        kept = [at for at in range(len(node.calls)) if width + at in needed]
        if node.calls and not kept:
            return self.node(node.input, needed)
        made = replace(node, calls=tuple(node.calls[at] for at in kept))
        return self._append(made, needed, [width + at for at in kept])

    def _append(
        self,
        node: Plan,
        needed: frozenset[int],
        appended: Iterable[int],
    ) -> _Pruned:
        """Prune the input of a node that passes its columns on.

        appended: the old positions of the columns that the node appends.
        """
        (source,) = children(node)
        width = len(source.schema)
        below = self.node(source, frozenset(at for at in needed if at < width) | columns_read(node))
        made = move_columns(node, below.at, [below.plan])
        return _Pruned(made, {**below.at, **_number(appended, len(below.plan.schema))})

    def _join(self, node: Join, needed: frozenset[int]) -> _Pruned:
        width = len(node.left.schema)
        wanted = needed | columns_read(node)
        left = self.node(node.left, frozenset(at for at in wanted if at < width))
        right = self.node(node.right, frozenset(at - width for at in wanted if at >= width))
        shift = len(left.plan.schema)
        at = {**left.at, **{width + old: shift + new for old, new in right.at.items()}}
        made = move_columns(node, at, [left.plan, right.plan])
        return _Pruned(made, left.at if node.kind in (JoinKind.SEMI, JoinKind.ANTI) else at)
