"""How large a plan is, counted without walking over what stands in it many times."""

from __future__ import annotations

from collections.abc import Iterable

from everfold.errors import Span
from everfold.limits import MAX_CELLS, MAX_COLUMNS, MAX_HEIGHT, MAX_NODES, too_complex
from everfold.plan.expressions import Expr, walk
from everfold.plan.nodes import (
    Filter,
    GroupAggregate,
    Join,
    OverAggregate,
    Plan,
    Project,
    Rank,
    Sort,
    Unnest,
    Values,
    WatermarkAssigner,
    WindowAggregate,
    children,
)


def height(plan: Plan) -> int:
    """Nodes from the plan's topmost one down to a table, along the longest way."""
    return plan.remember("height", lambda node: 1 + max(map(height, children(node)), default=0))


def nodes(plan: Plan) -> int:
    """Nodes of a plan, each as often as it stands in it."""
    return plan.remember("nodes", lambda node: 1 + sum(map(nodes, children(node))))


def cells(plan: Plan) -> int:
    """Columns and parts of expressions of a plan's nodes, each node as often as it stands in it."""
    return plan.remember("cells", lambda node: own_cells(node) + sum(map(cells, children(node))))


def own_cells(node: Plan) -> int:
    """Columns of a node, and parts of its expressions."""
    return node.remember(
        "own-cells", lambda of: len(of.schema) + sum(1 for each in _expressions(of) for _ in walk(each))
    )


def check_size(plan: Plan, span: Span | None = None) -> None:
    """Refuses a plan that no engine could run: SqlError `too-complex`."""
    check_columns(len(plan.schema), "a result", span)
    if height(plan) > MAX_HEIGHT:
        raise too_complex(
            f"its query has {height(plan)} steps one above the other",
            MAX_HEIGHT,
            span,
            "write what some of them find into a table, and read that",
        )
    if nodes(plan) > MAX_NODES:
        raise too_complex(
            f"its query has {nodes(plan):,} steps, those of a view or of WITH counted as often as it is used",
            MAX_NODES,
            span,
            "write what a view finds into a table, and read that",
        )


def check_columns(count: int, what: str, span: Span | None = None) -> None:
    """Refuses more columns, or things that are listed as columns are, than anything should have: SqlError `too-complex`."""
    if count > MAX_COLUMNS:
        raise too_complex(
            f"{what} has {count:,} columns",
            MAX_COLUMNS,
            span,
            "put columns that belong together into a ROW, an ARRAY or a MAP",
        )


class Work:
    """What the plans of a script come to."""

    def __init__(self) -> None:
        self.cells = 0

    def add(self, cells: int, span: Span | None = None) -> None:
        """Counts; SqlError `too-complex` if it is too much."""
        self.cells += cells
        if self.cells > MAX_CELLS:
            raise too_complex(
                f"its queries have {self.cells:,} columns and parts of expressions",
                MAX_CELLS,
                span,
                "make several scripts of it",
            )


def _expressions(node: Plan) -> Iterable[Expr]:
    match node:
        case Project():
            return node.expressions
        case Filter():
            return (node.condition,)
        case WatermarkAssigner():
            return (node.watermark,)
        case Unnest():
            return (node.collection,)
        case Values():
            return (each for row in node.rows for each in row)
        case Sort():
            return (key.expression for key in node.keys)
        case Rank():
            return (*node.partition, *(key.expression for key in node.order))
        case Join():
            return () if node.condition is None else (node.condition,)
        case GroupAggregate() | WindowAggregate():
            return (*node.keys, *(arg for call in node.calls for arg in call.args))
        case OverAggregate():
            return (*node.partition, *(arg for call in node.calls for arg in call.args))
        case _:
            return ()
