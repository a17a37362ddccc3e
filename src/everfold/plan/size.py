"""The size of a plan, computed once per node even if the node occurs many times in it."""

from __future__ import annotations

from everfold.errors import Span
from everfold.limits import MAX_CELLS, MAX_COLUMNS, MAX_HEIGHT, MAX_NODES, too_complex_error
from everfold.plan.expressions import walk
from everfold.plan.nodes import Plan
from everfold.plan.parts import children, expressions_of


def height(plan: Plan) -> int:
    """Return the number of nodes on the longest path from the top of the plan to a table."""
    return plan.remember("height", lambda node: 1 + max(map(height, children(node)), default=0))


def count_nodes(plan: Plan) -> int:
    """Return the number of nodes of a plan, each counted once per occurrence."""
    return plan.remember("nodes", lambda node: 1 + sum(map(count_nodes, children(node))))


def count_cells(plan: Plan) -> int:
    """Return the number of columns and subexpressions of a plan, counted once per occurrence."""
    return plan.remember("cells", lambda node: count_own_cells(node) + sum(map(count_cells, children(node))))


def count_own_cells(node: Plan) -> int:
    """Return the number of columns of a node and of its subexpressions."""
    return node.remember(
        "own-cells", lambda of: len(of.schema) + sum(1 for each in expressions_of(of) for _ in walk(each))
    )


def check_size(plan: Plan, span: Span | None = None) -> None:
    """Raise SqlError `too-complex` for a plan that is too large for the engines."""
    check_columns(len(plan.schema), "a result", span)
    if height(plan) > MAX_HEIGHT:
        raise too_complex_error(
            f"its query has {height(plan)} nested steps",
            MAX_HEIGHT,
            span,
            "write an intermediate result to a table and read that table",
        )
    if count_nodes(plan) > MAX_NODES:
        raise too_complex_error(
            f"its query has {count_nodes(plan):,} steps, counting those of a view or WITH query once per use",
            MAX_NODES,
            span,
            "write the result of a view to a table and read that table",
        )


def check_columns(count: int, what: str, span: Span | None = None) -> None:
    """Raise SqlError `too-complex` for too many columns, or for other lists of that kind."""
    if count > MAX_COLUMNS:
        raise too_complex_error(
            f"{what} has {count:,} columns",
            MAX_COLUMNS,
            span,
            "combine related columns into a ROW, an ARRAY or a MAP",
        )


class ScriptSize:
    """The total size of the plans of a script."""

    def __init__(self) -> None:
        self.cells = 0

    def add(self, cells: int, span: Span | None = None) -> None:
        """Add the cells of a plan. Raises SqlError `too-complex` if the total is too large."""
        self.cells += cells
        if self.cells > MAX_CELLS:
            raise too_complex_error(
                f"its queries have {self.cells:,} columns and subexpressions",
                MAX_CELLS,
                span,
                "split it into several scripts",
            )
