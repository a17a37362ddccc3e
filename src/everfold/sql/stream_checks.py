"""Check that operators of a stream can follow the changes of their input."""

from __future__ import annotations

from collections.abc import Iterable

from everfold.aggregates.calls import entry_of
from everfold.errors import UnsupportedFeature
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import AggCall, GroupAggregate, InWindow, Rank, Root, WindowAggregate
from everfold.plan.walk import walk_streamed
from everfold.udf.declared import ColumnsFunction


def check_retractions(roots: Iterable[Root]) -> None:
    """Check every operator whose input may retract rows.

    Raises UnsupportedFeature `no-retraction` for an aggregate function that cannot remove a value,
    `unsupported-in-stream` for an operator that takes only inserts.
    """
    for root in roots:
        for node in walk_streamed(root.input):
            match node:
                case GroupAggregate() | WindowAggregate() if is_updating(node.input):
                    for call in node.calls:
                        _check_call(call)
                case Rank(window=InWindow()) if is_updating(node.input):
                    raise UnsupportedFeature.of(
                        "unsupported-in-stream",
                        "window Top-N over a table whose rows change is not supported",
                        node.span,
                        help="aggregate first: GROUP BY window_start, window_end, … produces append-only rows",
                    )


def _check_call(call: AggCall) -> None:
    function = call.python
    if function is None:
        if not entry_of(call).is_retractable:
            raise UnsupportedFeature.of(
                "no-retraction",
                f"`{call.function}` does not support retraction, and its input may retract rows",
                call.span,
                "COUNT(DISTINCT …) can" if call.function == "APPROX_COUNT_DISTINCT" else None,
            )
    elif not isinstance(function.function, ColumnsFunction) and not function.has_retract:
        raise UnsupportedFeature.of(
            "no-retraction",
            f"the Python function `{function.name}` has no method `retract`, but its input retracts rows",
            call.span,
            help=f"define retract(self, accumulator, …) in {type(function.function).__name__}, "
            "or SET 'execution.runtime-mode' = 'batch'",
        )
