"""The texts by which releases before format 7 of the manifest named state.

They do not tell apart two occurrences of a table, of a window or of a collection, nor the branches
of a UNION ALL, and differ for expressions that are spelled differently. State with these names is
still read (`earlier_shapes`). Nothing here changes any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from everfold.operators.state_names import StateNames
from everfold.plan.canonical import frame_text
from everfold.plan.expressions import Call, Expr, InputRef, Literal, Retyped
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
    Scan,
    SetOperation,
    Sort,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)


class EarlierNames(StateNames):
    """The names of the state of an operator in jobs of earlier releases."""

    def _use_earlier(self, names: Sequence[str]) -> list[str]:
        return [*names]

    def _write_each(self, expressions: Sequence[Expr]) -> Sequence[str]:
        return [write_expression(expression, write_columns(self._node.input)) for expression in expressions]

    def _write_together(self, expressions: Sequence[Expr]) -> Sequence[str]:
        return self._write_each(expressions)

    def _write_columns(self) -> Sequence[str]:
        return write_columns(self._node.input)

    def _write_call(self, call: AggCall) -> str:
        return write_call(call, self._node.input)


def write_expression(expr: Expr, names: Sequence[str]) -> str:
    """Return the earlier text of an expression over columns with the given texts."""
    match expr:
        case InputRef():
            return names[expr.position]
        case Literal():
            return repr(expr.value) if isinstance(expr.value, str | bytes) else f"{expr.value}:{expr.type.sql}"
        case Retyped(args=(operand,)):
            return write_expression(operand, names)
        case Call(function="CAST" | "TRY_CAST", args=(operand, *_)):
            return f"{expr.function}({write_expression(operand, names)} AS {expr.type.sql})"
        case Call():
            return f"{expr.function}({', '.join(write_expression(arg, names) for arg in expr.args)})"


def write_call(call: AggCall, input_plan: Plan) -> str:
    """Return the earlier text of an aggregate call over a plan's columns."""
    names = write_columns(input_plan)
    args = ", ".join(write_expression(arg, names) for arg in (*call.args, *call.constants))
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER ({write_expression(call.filter, names)})" if call.filter is not None else ""
    return f"{call.function}({distinct}{args}){condition}"


def write_columns(plan: Plan) -> tuple[str, ...]:
    """Return the earlier text of each column of a plan."""
    return plan.remember("earlier-column-texts", _write_columns)


def _write_columns(plan: Plan) -> tuple[str, ...]:
    match plan:
        case Scan():
            return tuple(f"{plan.table.name}.{column.name}" for column in plan.table.columns)
        case WatermarkAssigner() | ChangelogNormalize() | Filter() | WindowEmit() | Sort() | Limit():
            return write_columns(plan.input)
        case Project():
            below = write_columns(plan.input)
            return tuple(write_expression(expression, below) for expression in plan.expressions)
        case Union():
            return _merge_sides([write_columns(branch) for branch in plan.inputs])
        case SetOperation():
            return _merge_sides([write_columns(plan.left), write_columns(plan.right)])
        case Values():
            return tuple(f"VALUES.{field.name}" for field in plan.fields)
        case Unnest():
            below = write_columns(plan.input)
            collection = write_expression(plan.collection, below)
            return (*below, *(f"UNNEST({collection})[{position}]" for position in range(len(plan.fields))))
        case WindowTableFunction():
            return (*write_columns(plan.input), "window_start", "window_end", "window_time")
        case WindowAggregate():
            return (*_write_aggregate(plan), "window_start", "window_end", "window_time")
        case GroupAggregate():
            return _write_aggregate(plan)
        case Rank():
            number = (f"ROW_NUMBER() OVER ({_write_partition(plan)})",) if plan.numbered else ()
            return (*write_columns(plan.input), *number)
        case OverAggregate():
            over = f"OVER ({_write_partition(plan)} {frame_text(plan.frame)})"
            return (*write_columns(plan.input), *(f"{write_call(call, plan.input)} {over}" for call in plan.calls))
        case Join():
            if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
                return write_columns(plan.left)
            return (*write_columns(plan.left), *write_columns(plan.right))
        case _:
            assert_never(plan)


def _write_partition(plan: OverAggregate | Rank) -> str:
    names = write_columns(plan.input)
    keys = ", ".join(write_expression(key, names) for key in plan.partition)
    order = ", ".join(
        write_expression(key.expression, names) + (" DESC" if key.descending else "") for key in plan.order
    )
    return " ".join([*([f"PARTITION BY {keys}"] if keys else []), *([f"ORDER BY {order}"] if order else [])])


def _write_aggregate(plan: WindowAggregate | GroupAggregate) -> tuple[str, ...]:
    below = write_columns(plan.input)
    keys = tuple(write_expression(key, below) for key in plan.keys)
    return (*keys, *(write_call(call, plan.input) for call in plan.calls))


def _merge_sides(sides: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(
        texts[0] if len(set(texts)) == 1 else "(" + " | ".join(sorted(texts)) + ")"
        for texts in zip(*sides, strict=True)
    )
