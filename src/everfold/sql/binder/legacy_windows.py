"""Group window functions: TUMBLE, HOP and SESSION in GROUP BY, and their auxiliary functions.

They are the predecessors of window TVFs. `GROUP BY TUMBLE(ts, INTERVAL '1' DAY), k` is the same
window aggregation as `GROUP BY window_start, window_end, k` over the TVF, and runs on the same
operators. An auxiliary function (`TUMBLE_START(ts, INTERVAL '1' DAY)`) is a column of that window;
it has the same arguments as the window. Source: the seed on window aggregation; flink 2.3 through
`tests/cases/window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import AggCall, Plan, TimeKind, WindowAggregate, window_fields
from everfold.plan.windows import Window
from everfold.sql import syntax
from everfold.sql.binder.context import Context
from everfold.sql.binder.scope import Relation, resolve
from everfold.sql.binder.windows import build_window, time_kind
from everfold.types import TimestampType

_FAR = 1 << 21
"""First provisional position of references to the window: no relation has so many columns."""
_KINDS = ("TUMBLE", "HOP", "SESSION")
_ROLES = {"TUMBLE": ("SIZE",), "HOP": ("SLIDE", "SIZE"), "SESSION": ("GAP",)}
_PARTS = {"START": 0, "END": 1, "ROWTIME": 2}


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """The group window of a GROUP BY. `time_column` is a column of the query's input."""

    kind: str
    window: Window
    time_column: int
    time: TimeKind
    zone: str | None
    text: str

    def aggregate(
        self, plan: Plan, keys: Sequence[Expr], calls: Sequence[AggCall], context: Context, node: syntax.Node
    ) -> WindowAggregate:
        """Return the aggregate with one row per window and combination of keys."""
        return WindowAggregate(
            input=plan,
            window=self.window,
            time_column=self.time_column,
            time=self.time,
            keys=tuple(dict.fromkeys(keys)),
            calls=tuple(calls),
            zone=self.zone,
            span=node.span,
        )

    def column(self, node: syntax.FunctionCall, relation: Relation, context: Context) -> Expr:
        """Return the column of the window that an auxiliary function refers to, or `PROCTIME()`.

        Raises SqlError `other-window` unless it names this window, `other-time`, and
        `proctime-in-batch`.
        """
        name = node.name
        kind, _, part = name.partition("_")
        if not part:
            raise context.error(
                "misplaced-window",
                f"`{name}` defines the groups and has no value",
                node,
                f"select {name}_START(…), {name}_END(…) or {name}_ROWTIME(…)",
            )
        other = _bind(node, kind, relation, context)
        if (other.kind, other.window, other.time_column) != (self.kind, self.window, self.time_column):
            raise context.error(
                "other-window",
                f"`{context.sql(node)}` names a different window than GROUP BY",
                node,
                f"write {name}({self.text})" if kind == self.kind else f"GROUP BY has {self.kind}({self.text})",
            )
        if part == "PROCTIME":
            return _processing_time(node, context)
        if part == "ROWTIME" and self.time is TimeKind.PROCTIME:
            raise context.error(
                "other-time",
                f"the window runs on processing time: `{name}` is not defined",
                node,
                f"write {kind}_PROCTIME({self.text})",
            )
        field = window_fields(relation.plan.schema[self.time_column].type, self.time)[_PARTS[part]]
        return InputRef(type=field.type, position=_FAR + _PARTS[part], name=field.name, span=node.span)


def _processing_time(node: syntax.FunctionCall, context: Context) -> Expr:
    """Return the processing time in which the window's result is emitted: a time attribute."""
    from everfold.sql.functions import build

    if not context.streaming:
        raise context.unsupported(
            "proctime-in-batch",
            f"`{node.name}` is a processing time, and batch has none",
            node,
            f"use {node.name.partition('_')[0]}_ROWTIME(…), the last millisecond of the window",
        )
    return build("PROCTIME", (), node.span)


def window_part(expr: Expr) -> int | None:
    """Return which of the three window columns a reference means; None if none of them."""
    if isinstance(expr, InputRef) and expr.position >= _FAR:
        return expr.position - _FAR
    return None


def is_time_of_window(expr: Expr) -> bool:
    """Return whether a reference is the window's time attribute, such as `TUMBLE_ROWTIME(…)`."""
    return window_part(expr) == _PARTS["ROWTIME"]


def is_group_window(node: syntax.Expression) -> bool:
    """Return whether an element of GROUP BY is a group window."""
    return isinstance(node, syntax.FunctionCall) and node.name in _KINDS


def bind_group_window(nodes: Sequence[syntax.Expression], relation: Relation, context: Context) -> GroupWindow | None:
    """Return the group window among the elements of a GROUP BY; None if there is none."""
    windows = [node for node in nodes if is_group_window(node)]
    if not windows:
        return None
    if len(windows) > 1:
        raise context.unsupported(
            "two-windows",
            "GROUP BY takes one window",
            windows[1],
            "aggregate by one window, and then its result by the other",
        )
    (node,) = windows
    assert isinstance(node, syntax.FunctionCall)
    return _bind(node, node.name, relation, context)


def _bind(node: syntax.FunctionCall, kind: str, relation: Relation, context: Context) -> GroupWindow:
    roles = _ROLES[kind]
    nodes = node.arguments
    if len(nodes) != 1 + len(roles):
        wanted = ", ".join(("time", *(role.lower() for role in roles)))
        raise context.error("wrong-arguments", f"`{node.name}` takes {1 + len(roles)} arguments: {wanted}", node)
    time, *sizes = nodes
    if not isinstance(time, syntax.ColumnPath):
        raise context.error("no-time-attribute", f"the time of `{node.name}` must be a column", time)
    column = resolve(relation, time.names, time.span, context.outer)
    if not isinstance(column, InputRef):
        raise context.error("no-time-attribute", f"the time of `{node.name}` must be a column", time)
    clock = time_kind(kind, time, relation.plan, column.position, context)
    window = build_window(kind, dict(zip(roles, sizes, strict=True)), context)
    of = relation.plan.schema[column.position].type
    assert isinstance(of, TimestampType)
    zone = context.settings.local_time_zone if of.local_zone else None
    text = ", ".join(context.sql(each) for each in nodes)
    return GroupWindow(kind, window, column.position, clock, zone, text)
