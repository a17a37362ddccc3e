"""The text of a plan, by which a job recognizes its query: equal if the meaning is equal.

Everything that a plan computes is in it, but no names of result columns and no locations. Its
digest is stored with every job, so a change of this module that changes the text of any plan needs
a new `PLAN_TEXT_VERSION`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, assert_never

from everfold.plan.expression_text import canonical_text
from everfold.plan.expressions import Expr
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    GroupAggregate,
    InWindow,
    Join,
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
    SortKey,
    Table,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.parts import children
from everfold.plan.windows import simplify, window_text

PLAN_TEXT_VERSION = 2
"""Version of the texts. Jobs of releases before version 2 store a digest of another text."""


def root_text(root: Root) -> str:
    """Return the text of a sink or of the result of a query."""
    target = [root.table.identity] if isinstance(root, Sink) else []
    return f"{json.dumps(target)}\n{plan_text(root.input)}"


def plan_text(plan: Plan) -> str:
    """Return the text of a plan: one JSON array per node, inputs indented below."""
    lines: list[str] = []
    waiting = [(plan, 0)]
    while waiting:
        node, depth = waiting.pop()
        lines.append(" " * depth + json.dumps(_describe(node)))
        waiting += [(child, depth + 1) for child in reversed(children(node))]
    return "\n".join(lines)


_Parts: TypeAlias = list[Any]
"""Strings, numbers, booleans, None, and lists of these."""


def _describe(node: Plan) -> _Parts:
    match node:
        case Scan():
            return ["scan", *_describe_table(node.table)]
        case WatermarkAssigner():
            return ["watermark", node.column, _write(node.watermark)]
        case ChangelogNormalize():
            return ["last row", node.keys, node.ttl_ms]
        case Project():
            return ["project", _write_all(node.expressions)]
        case Filter():
            return ["filter", _write(node.condition)]
        case Union():
            return ["union", len(node.inputs)]
        case Values():
            return ["values", [str(field.type) for field in node.fields], [_write_all(row) for row in node.rows]]
        case Unnest():
            return ["unnest", _write(node.collection), len(node.fields), node.outer, node.ordinality]
        case WindowTableFunction():
            return ["window rows", *_describe_window(node), node.partition_keys]
        case WindowAggregate():
            return ["window", *_describe_window(node), *_describe_groups(node), node.lateness_ms]
        case GroupAggregate():
            return ["group", *_describe_groups(node), _describe_in_window(node.window), node.ttl_ms]
        case WindowEmit():
            return [
                "emit",
                node.keys,
                node.time_column,
                _describe_in_window(node.window),
                node.early_ms,
                node.late_ms,
            ]
        case OverAggregate():
            frame = [node.frame.rows, node.frame.first, node.frame.last, node.frame.scale]
            calls = _describe_calls(node.calls)
            return ["over", _write_all(node.partition), _write_order(node.order), frame, calls, node.time, node.ttl_ms]
        case Rank():
            return [
                "rank",
                _write_all(node.partition),
                _write_order(node.order),
                node.first,
                node.last,
                node.numbered,
                _describe_in_window(node.window),
                node.ttl_ms,
            ]
        case Sort():
            return ["sort", _write_order(node.keys)]
        case Limit():
            return ["limit", node.count, node.offset]
        case Join():
            return ["join", node.kind, None if node.condition is None else _write(node.condition)]
        case SetOperation():
            return ["set", node.kind]
        case _:
            assert_never(node)


def _describe_table(table: Table) -> _Parts:
    positions = dict(table.positions)
    columns = [
        [column.identity, str(column.type), column.metadata_key, column.virtual, positions.get(column.name)]
        for column in table.columns
    ]
    identities = {column.name: column.identity for column in table.columns}
    keys = [[identities.get(name, name) for name in names] for names in (table.primary_key, table.partition_keys)]
    return [table.identity, columns, *keys, table.changelog]


def _describe_window(node: WindowTableFunction | WindowAggregate) -> _Parts:
    return [window_text(simplify(node.window)), node.time_column, node.time, node.zone]


def _describe_in_window(window: InWindow | None) -> _Parts | None:
    if window is None:
        return None
    return [window_text(simplify(window.of)), window.end, window.time, window.zone, window.lateness_ms]


def _describe_groups(node: WindowAggregate | GroupAggregate) -> _Parts:
    return [_write_all(node.keys), _describe_calls(node.calls)]


def _describe_calls(calls: Iterable[AggCall]) -> _Parts:
    return [
        [
            call.function if call.python is None else call.python.identifier,
            call.distinct,
            _write_all(call.args),
            _write_all(call.constants),
            None if call.filter is None else _write(call.filter),
            str(call.type),
        ]
        for call in calls
    ]


class _Positions(Sequence[str]):
    """The texts of the columns of an input: their positions."""

    def __getitem__(self, position: int) -> str:  # type: ignore[override]
        return f"${position}"

    def __len__(self) -> int:
        raise NotImplementedError


_POSITIONS = _Positions()


def _write(expression: Expr) -> str:
    return canonical_text(expression, _POSITIONS)


def _write_all(expressions: Iterable[Expr]) -> list[str]:
    return [*map(_write, expressions)]


def _write_order(keys: Iterable[SortKey]) -> _Parts:
    return [[_write(key.expression), key.descending, key.nulls_first] for key in keys]
