"""Which rows of a stream are emitted by one task, in order.

An operator partitions its rows by its keys. A sink that writes in tasks keeps the order of the
changes of a key only if one task emits all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.plan import nodes
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.keys import column_parts
from everfold.plan.walk import walk_streamed


def are_colocated(plan: nodes.Plan, columns: frozenset[int]) -> bool:
    """Return whether one task emits all rows that agree in some columns, in their order.

    Rows that no operator has processed have the order of their source, which is also the one of its
    tasks. Where it is unknown, the answer is no.
    """
    return not any(map(nodes.is_stateful, walk_streamed(plan))) or _are_partitioned(plan, columns)


def _are_partitioned(plan: nodes.Plan, columns: frozenset[int]) -> bool:
    match plan:
        case nodes.Filter() | nodes.WatermarkAssigner():
            return _are_partitioned(plan.input, columns)
        case nodes.Project():
            parts = (column_parts(plan.expressions[at]) for at in columns)
            return _are_partitioned(plan.input, frozenset().union(*(each for each in parts if each is not None)))
        case nodes.GroupAggregate() | nodes.WindowAggregate():
            return columns >= set(range(len(plan.keys)))
        case nodes.ChangelogNormalize() | nodes.WindowEmit():
            return columns >= set(plan.keys)
        case nodes.Rank() | nodes.OverAggregate():
            return _is_covered(plan.partition, columns)
        case _:
            return False


def _is_covered(partition: Sequence[Expr], columns: frozenset[int]) -> bool:
    """Return whether all expressions are columns of an input, and among those given."""
    return all(isinstance(each, InputRef) and each.position in columns for each in partition)
