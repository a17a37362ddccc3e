"""Describe for EXPLAIN where the inputs of a query's operators are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from everfold.connectors.contract import Role
from everfold.connectors.validate import check_table
from everfold.plan.nodes import Root, Scan, StatefulNode, is_stateful
from everfold.plan.parts import streamed_children
from everfold.plan.walk import operators_of
from everfold.spark.worker_scan import ScanPlan, plan_worker_scans
from everfold.sql.settings import Settings


def describe_scans(roots: Sequence[Root], settings: Settings) -> str:
    """Return a line for each input of a stream's operators, an empty string if there is none."""
    if not settings.streaming:
        return ""
    found = [line for node in operators_of(roots) for line in _describe_inputs(node, settings)]
    return "\n".join(["Decoding:", *dict.fromkeys(found)]) if found else ""


def _describe_inputs(node: StatefulNode, settings: Settings) -> Iterator[str]:
    scans = list(_scans_below(node))
    reason = _reason_not_in_worker(node, settings) if scans else None
    where = "Python workers" if reason is None else f"Catalyst ({reason})"
    for scan in scans:
        yield f"  {scan.table.name} -> {type(node).__name__}: {where}"


def _scans_below(node: StatefulNode) -> Iterator[Scan]:
    """Yield the scans from which a node reads without another operator in between."""
    waiting = [node.input]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Scan):
            yield each
        elif not is_stateful(each):
            waiting += reversed(tuple(streamed_children(each)))


def _reason_not_in_worker(node: StatefulNode, settings: Settings) -> str | None:
    if settings.scan == "catalyst":
        return "'everfold.scan' = 'catalyst'"
    plans = plan_worker_scans(node)
    if isinstance(plans, str):
        return plans
    return next(filter(None, map(_reason_of_source, plans)), None)


def _reason_of_source(plan: ScanPlan) -> str | None:
    if plan.scan.table.connector is None:
        return "a DataFrame"
    return check_table(plan.scan.table, Role.SOURCE).source().reason_not_in_worker(plan.columns)
