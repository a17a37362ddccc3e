"""A plan that exists is valid: constructors refuse nodes that make no sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everfold.plan.expressions import Call, Expr, InputRef, Literal
from everfold.plan.nodes import (
    AggCall,
    ChangelogNormalize,
    Filter,
    Frame,
    GroupAggregate,
    InWindow,
    Join,
    JoinKind,
    Limit,
    OverAggregate,
    Project,
    Rank,
    Scan,
    SetKind,
    SetOperation,
    Sort,
    SortKey,
    Table,
    TimeKind,
    Union,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    WindowEmit,
    WindowTableFunction,
)
from everfold.plan.windows import Tumble
from everfold.types import BIGINT, INT, Field

ZERO = Literal(type=INT, value=0)


def column(position: int) -> InputRef:
    return InputRef(type=INT, position=position)


def plus(*args: Expr) -> Call:
    return Call(type=INT, function="+", args=args)


def count(*args: Expr, condition: Expr | None = None) -> AggCall:
    return AggCall(function="COUNT", args=args, type=BIGINT, filter=condition)


def values(width: int) -> Values:
    return Values(rows=(), fields=tuple(Field(name=f"c{at}", type=INT) for at in range(width)))


TWO, WINDOW = values(2), Tumble(size_ms=1)
END = InWindow(of=WINDOW, end=2, time=TimeKind.ROWTIME)
FRAME = Frame(rows=True, first=None, last=0)

MISTAKES: dict[str, Callable[[], object]] = {
    "column -1 is before the first one": lambda: column(-1),
    "a call without a function": lambda: Call(type=INT, function="", args=()),
    "no column of `t` is read": lambda: Scan(table=Table(name="t", columns=())),
    "WatermarkAssigner reads column 2 of an input with 2 columns": lambda: WatermarkAssigner(
        input=TWO, column=2, watermark=ZERO
    ),
    "a changelog without a key": lambda: ChangelogNormalize(input=TWO, keys=()),
    "ChangelogNormalize reads column 3": lambda: ChangelogNormalize(input=TWO, keys=(0, 3)),
    "2 columns, 1 names": lambda: Project(input=TWO, expressions=(ZERO, ZERO), names=("a",)),
    "Project reads column 4": lambda: Project(input=TWO, expressions=(plus(ZERO, plus(column(4))),), names=("a",)),
    "Filter reads column 2": lambda: Filter(input=TWO, condition=column(2)),
    "a union of nothing": lambda: Union(inputs=()),
    r"the inputs of Union have \[2, 3\] columns": lambda: Union(inputs=(TWO, values(3))),
    "rows of different widths": lambda: Values(rows=((ZERO, ZERO),), fields=(Field(name="a", type=INT),)),
    "Unnest reads column 2": lambda: Unnest(input=TWO, collection=column(2), fields=()),
    "only SESSION has partition keys": lambda: WindowTableFunction(
        input=TWO, window=WINDOW, time_column=0, time=TimeKind.ROWTIME, partition_keys=(1,)
    ),
    "WindowTableFunction reads column 2": lambda: WindowTableFunction(
        input=TWO, window=WINDOW, time_column=2, time=TimeKind.ROWTIME
    ),
    "WindowAggregate reads column 5": lambda: WindowAggregate(
        input=TWO, window=WINDOW, time_column=0, time=TimeKind.ROWTIME, keys=(), calls=(count(condition=column(5)),)
    ),
    "neither keys nor calls": lambda: GroupAggregate(input=TWO, keys=(), calls=()),
    "the end of the window is a key": lambda: GroupAggregate(input=TWO, keys=(column(0),), calls=(), window=END),
    "GroupAggregate reads column 2": lambda: GroupAggregate(input=TWO, keys=(), calls=(count(column(2)),)),
    "WindowEmit reads column 2": lambda: WindowEmit(
        input=TWO, keys=(0,), window=END, time_column=1, early_ms=0, late_ms=0
    ),
    "OVER without calls": lambda: OverAggregate(
        input=TWO, partition=(), order=(), frame=FRAME, calls=(), time=TimeKind.BOUNDED
    ),
    "OverAggregate reads column 7": lambda: OverAggregate(
        input=TWO,
        partition=(),
        order=(SortKey(expression=column(7)),),
        frame=FRAME,
        calls=(count(),),
        time=TimeKind.BOUNDED,
    ),
    "rows 2 to 1": lambda: Rank(input=TWO, partition=(), order=(), first=2, last=1),
    "Rank reads column 2": lambda: Rank(input=TWO, partition=(), order=(), first=1, last=1, window=END),
    "nothing to sort by": lambda: Sort(input=TWO, keys=()),
    "Sort reads column 2": lambda: Sort(input=TWO, keys=(SortKey(expression=column(2)),)),
    "-1 rows after 0": lambda: Limit(input=TWO, count=-1),
    "only CROSS JOIN has no condition": lambda: Join(left=TWO, right=TWO, kind=JoinKind.LEFT, condition=None),
    "Join reads column 4 of an input with 4 columns": lambda: Join(
        left=TWO, right=TWO, kind=JoinKind.INNER, condition=column(4)
    ),
    r"the inputs of SetOperation have \[2, 1\] columns": lambda: SetOperation(
        kind=SetKind.EXCEPT, left=TWO, right=values(1)
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_an_impossible_node_is_refused(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        MISTAKES[message]()


def test_what_an_expression_reads_does_not_show() -> None:
    call = plus(column(0), column(1))
    assert (call.least_width, "least_width" in repr(call), call == plus(column(0), column(1))) == (2, False, True)
