"""The inputs, expressions and columns of nodes are found by the annotations of their fields."""

from __future__ import annotations

from typing import get_args

from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import (
    AggCall,
    Frame,
    InWindow,
    Join,
    JoinKind,
    OverAggregate,
    Plan,
    Rank,
    SortKey,
    TimeKind,
    Union,
    Values,
    WindowEmit,
)
from everfold.plan.parts import (
    children,
    columns_read,
    expressions_of,
    map_expressions,
    map_inputs,
    map_streamed_inputs,
    move_columns,
    streamed_children,
    with_children,
)
from everfold.plan.windows import Tumble
from everfold.types import INT, Field

END = InWindow(of=Tumble(size_ms=1), end=2, time=TimeKind.ROWTIME)


def column(position: int) -> InputRef:
    return InputRef(type=INT, position=position)


def values(width: int) -> Values:
    return Values(rows=(), fields=tuple(Field(name=f"c{at}", type=INT) for at in range(width)))


def positions(expressions: tuple[Expr, ...]) -> list[int]:
    return [each.position for each in expressions if isinstance(each, InputRef)]


ONE, THREE = values(1), values(3)
RANK = Rank(input=THREE, partition=(column(1),), order=(SortKey(expression=column(0)),), first=1, last=2, window=END)
JOIN = Join(left=ONE, right=THREE, kind=JoinKind.LEFT, condition=column(3))
CALL = AggCall(function="SUM", args=(column(1),), type=INT, filter=column(2))
OVER = OverAggregate(
    input=THREE,
    partition=(),
    order=(SortKey(expression=column(0)),),
    frame=Frame(rows=True, first=None, last=0),
    calls=(CALL,),
    time=TimeKind.ROWTIME,
)


def test_every_node_but_the_leaves_has_inputs() -> None:
    leaves = [node.__name__ for node in get_args(Plan) if not {"input", "inputs", "left"} & set(node.__slots__)]
    assert leaves == ["Scan", "Values"]
    union = Union(inputs=(ONE, ONE, ONE))
    assert [len(children(node)) for node in (ONE, RANK, JOIN, union)] == [0, 1, 2, 3]
    assert streamed_children(JOIN) == (ONE,)


def test_a_node_whose_inputs_stay_the_same_is_the_same() -> None:
    assert map_inputs(JOIN, lambda node: node) is JOIN
    assert with_children(JOIN, (THREE, ONE)) == Join(left=THREE, right=ONE, kind=JOIN.kind, condition=JOIN.condition)
    assert children(map_streamed_inputs(JOIN, lambda _: THREE)) == (THREE, THREE)


def test_expressions_are_also_those_in_calls_and_sort_keys() -> None:
    assert sorted(positions(tuple(expressions_of(OVER)))) == [0, 1, 2]
    assert positions(tuple(expressions_of(RANK))) == [1, 0]
    moved = map_expressions(OVER, lambda _: column(0), [ONE])
    assert (moved.input, set(positions(tuple(expressions_of(moved))))) == (ONE, {0})


def test_columns_are_read_by_expressions_and_by_position() -> None:
    emit = WindowEmit(input=values(5), keys=(0, 1), window=END, time_column=4, early_ms=0, late_ms=0)
    assert [columns_read(node) for node in (RANK, JOIN, emit)] == [{0, 1, 2}, {3}, {0, 1, 2, 4}]
    moved = move_columns(emit, {0: 3, 1: 2, 2: 1, 4: 0}, [values(4)])
    assert (moved.keys, moved.window.end, moved.time_column) == ((3, 2), 1, 0)
