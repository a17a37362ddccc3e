"""Canonical texts: what a column is made of, down to the columns of tables. Equal texts mean the same, so they name state."""

from __future__ import annotations

from typing import assert_never

from everfold.limits import MAX_TEXT, too_complex
from everfold.plan.expressions import Expr, text_of
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
    """Canonical text of an expression over a plan's columns."""
    return text_of(expr, column_texts(input_plan))


def call_text(call: AggCall, input_plan: Plan) -> str:
    """Canonical text of an aggregate call over a plan's columns: `SUM(Bid.price) FILTER (…)`; COUNT(*) is `COUNT()`."""
    names = column_texts(input_plan)
    args = ", ".join(text_of(arg, names) for arg in (*call.args, *call.constants))
    distinct = "DISTINCT " if call.distinct else ""
    condition = f" FILTER ({text_of(call.filter, names)})" if call.filter is not None else ""
    return f"{call.function}({distinct}{args}){condition}"


def over_text(call: AggCall, plan: OverAggregate) -> str:
    """Canonical text of a call over a window: what it is computed of, and over which rows."""
    return f"{call_text(call, plan.input)} OVER ({_partition_text(plan)} {frame_text(plan.frame)})"


def rank_text(plan: Rank) -> str:
    """Canonical text of the number that a row has in its partition."""
    return f"ROW_NUMBER() OVER ({_partition_text(plan)})"


def _partition_text(plan: OverAggregate | Rank) -> str:
    """What rows are apart by, and in which order."""
    names = column_texts(plan.input)
    keys = ", ".join(text_of(key, names) for key in plan.partition)
    order = ", ".join(text_of(key.expression, names) + (" DESC" if key.descending else "") for key in plan.order)
    return " ".join([*([f"PARTITION BY {keys}"] if keys else []), *([f"ORDER BY {order}"] if order else [])])


def frame_text(frame: Frame) -> str:
    """A frame as SQL writes it, distances of a time in milliseconds."""
    bounds = [_bound_text(frame.first, "PRECEDING"), _bound_text(frame.last, "FOLLOWING")]
    return f"{'ROWS' if frame.rows else 'RANGE'} BETWEEN {bounds[0]} AND {bounds[1]}"


def _bound_text(bound: int | None, without: str) -> str:
    if bound is None:
        return f"UNBOUNDED {without}"
    return "CURRENT ROW" if bound == 0 else f"{-bound} PRECEDING" if bound < 0 else f"{bound} FOLLOWING"


def column_texts(plan: Plan) -> tuple[str, ...]:
    """What each column of a plan is made of. What happens to rows on the way (filters, windows, order) is not in it."""
    return plan.remember("column-texts", _limited_texts)


def _limited_texts(plan: Plan) -> tuple[str, ...]:
    texts = _column_texts(plan)
    if sum(map(len, texts)) > MAX_TEXT:
        what = "written out down to the columns of tables, a step of its query has more characters"
        raise too_complex(what, MAX_TEXT, plan.span, "write what a view finds into a table, and read that")
    return texts


def _column_texts(plan: Plan) -> tuple[str, ...]:
    match plan:
        case Scan():
            return tuple(f"{plan.table.name}.{column.name}" for column in plan.table.columns)
        case WatermarkAssigner() | ChangelogNormalize() | Filter() | WindowEmit() | Sort() | Limit():
            return column_texts(plan.input)
        case Project():
            below = column_texts(plan.input)
            return tuple(text_of(each, below) for each in plan.expressions)
        case Union():
            return _either(tuple(column_texts(each) for each in plan.inputs))
        case SetOperation():
            return _either((column_texts(plan.left), column_texts(plan.right)))
        case Values():
            return tuple(f"VALUES.{field.name}" for field in plan.fields)
        case Unnest():
            below = column_texts(plan.input)
            collection = text_of(plan.collection, below)
            return (*below, *(f"UNNEST({collection})[{at}]" for at in range(len(plan.fields))))
        case WindowTableFunction():
            return (*column_texts(plan.input), "window_start", "window_end", "window_time")
        case WindowAggregate():
            return (*_aggregated(plan), "window_start", "window_end", "window_time")
        case GroupAggregate():
            return _aggregated(plan)
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


def _aggregated(plan: WindowAggregate | GroupAggregate) -> tuple[str, ...]:
    below = column_texts(plan.input)
    keys = tuple(text_of(key, below) for key in plan.keys)
    return (*keys, *(call_text(call, plan.input) for call in plan.calls))


def _either(sides: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The columns of rows that come from one side or another, whichever stands first."""
    return tuple(
        texts[0] if len(set(texts)) == 1 else "(" + " | ".join(sorted(texts)) + ")"
        for texts in zip(*sides, strict=True)
    )
