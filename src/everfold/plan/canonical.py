"""Canonical texts: the expression of a column down to the columns of tables.

Columns with equal texts have the same meaning, so the texts name state.
"""

from __future__ import annotations

from decimal import Decimal
from typing import assert_never

from everfold.limits import MAX_TEXT, too_complex_error
from everfold.plan.expressions import Expr, canonical_text
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    Frame,
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


def expr_text(expr: Expr, input_plan: Plan) -> str:
    """Return the canonical text of an expression over a plan's columns."""
    return canonical_text(expr, column_texts(input_plan))


def call_text(call: AggCall, input_plan: Plan) -> str:
    """Return the canonical text of an aggregate call over a plan's columns.

    For example `SUM(Bid.price) FILTER (…)`; COUNT(*) is `COUNT()`.
    """
    names = column_texts(input_plan)
    args = ", ".join(canonical_text(arg, names) for arg in (*call.args, *call.constants))
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER ({canonical_text(call.filter, names)})" if call.filter is not None else ""
    return f"{call.function}({distinct}{args}){condition}"


def over_text(call: AggCall, plan: OverAggregate) -> str:
    """Return the canonical text of a call over a window: its call and the rows it covers."""
    return f"{call_text(call, plan.input)} OVER ({_partition_text(plan)} {frame_text(plan.frame)})"


def rank_text(plan: Rank) -> str:
    """Return the canonical text of a row's number in its partition."""
    return f"ROW_NUMBER() OVER ({_partition_text(plan)})"


def _partition_text(plan: OverAggregate | Rank) -> str:
    """Return PARTITION BY and ORDER BY with canonical texts."""
    names = column_texts(plan.input)
    keys = ", ".join(canonical_text(key, names) for key in plan.partition)
    order = ", ".join(canonical_text(key.expression, names) + (" DESC" if key.descending else "") for key in plan.order)
    return " ".join([*([f"PARTITION BY {keys}"] if keys else []), *([f"ORDER BY {order}"] if order else [])])


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


def column_texts(plan: Plan) -> tuple[str, ...]:
    """Return the canonical text of each column of a plan.

    It does not include what happens to rows on the way: filters, windows, order.
    """
    return plan.remember("column-texts", _limited_texts)


def _limited_texts(plan: Plan) -> tuple[str, ...]:
    texts = _column_texts(plan)
    length = sum(map(len, texts))
    if length > MAX_TEXT:
        what = f"a step of its query has {length:,} characters when expanded down to the columns of tables"
        raise too_complex_error(what, MAX_TEXT, plan.span, "write the result of a view to a table and read that table")
    return texts


def _column_texts(plan: Plan) -> tuple[str, ...]:
    match plan:
        case Scan():
            return tuple(f"{plan.table.name}.{column.name}" for column in plan.table.columns)
        case WatermarkAssigner() | ChangelogNormalize() | Filter() | WindowEmit() | Sort() | Limit():
            return column_texts(plan.input)
        case Project():
            below = column_texts(plan.input)
            return tuple(canonical_text(each, below) for each in plan.expressions)
        case Union():
            return _merge_sides(tuple(column_texts(each) for each in plan.inputs))
        case SetOperation():
            return _merge_sides((column_texts(plan.left), column_texts(plan.right)))
        case Values():
            return tuple(f"VALUES.{field.name}" for field in plan.fields)
        case Unnest():
            below = column_texts(plan.input)
            collection = canonical_text(plan.collection, below)
            return (*below, *(f"UNNEST({collection})[{at}]" for at in range(len(plan.fields))))
        case WindowTableFunction():
            return (*column_texts(plan.input), "window_start", "window_end", "window_time")
        case WindowAggregate():
            return (*_aggregate_texts(plan), "window_start", "window_end", "window_time")
        case GroupAggregate():
            return _aggregate_texts(plan)
        case Rank():
            number = (rank_text(plan),) if plan.numbered else ()
            return (*column_texts(plan.input), *number)
        case OverAggregate():
            return (*column_texts(plan.input), *(over_text(call, plan) for call in plan.calls))
        case Join():
            if plan.kind in (JoinKind.SEMI, JoinKind.ANTI):
                return column_texts(plan.left)
            return (*column_texts(plan.left), *column_texts(plan.right))
        case _:
            assert_never(plan)


def _aggregate_texts(plan: WindowAggregate | GroupAggregate) -> tuple[str, ...]:
    below = column_texts(plan.input)
    keys = tuple(canonical_text(key, below) for key in plan.keys)
    return (*keys, *(call_text(call, plan.input) for call in plan.calls))


def _merge_sides(sides: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Return the column texts of rows from any side, independent of the order of the sides."""
    return tuple(
        texts[0] if len(set(texts)) == 1 else "(" + " | ".join(sorted(texts)) + ")"
        for texts in zip(*sides, strict=True)
    )
