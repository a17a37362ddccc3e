"""EXPLAIN JSON_EXECUTION_PLAN: plans as JSON, in the shape that Flink uses for its own.

    {"nodes": [{"id": 1, "type": "Scan", "pact": "Data Source", "contents": "Scan(…)", …}, …]}

A node comes after its inputs, which `predecessors` lists. In streaming, a node also has the kinds
of changes that it emits (`changelog_mode`) and the description of its state (`state`). Flink's
`parallelism` and `ship_strategy` are absent: Spark decides about them when the job runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from everfold.plan.explain import changelog_mode, describe_node, describe_root, state_of
from everfold.plan.nodes import Plan, Root
from everfold.plan.parts import children, streamed_children


def format_execution_plan(roots: Sequence[Root], *, streaming: bool) -> str:
    """Return the plans of a query, of an INSERT or of a statement set as one JSON document."""
    return json.dumps(build_execution_plan(roots, streaming=streaming), indent=2, ensure_ascii=False)


def build_execution_plan(roots: Sequence[Root], *, streaming: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the plans of a query, of an INSERT or of a statement set as a JSON object."""
    nodes: list[dict[str, Any]] = []
    for root in roots:
        source = _add_node(nodes, root.input, streaming)
        sink = {"type": type(root).__name__, "pact": "Data Sink", "contents": describe_root(root)}
        _append(nodes, sink, root.input if streaming else None, [source])
    return {"nodes": nodes}


def _add_node(nodes: list[dict[str, Any]], node: Plan, streaming: bool) -> int:
    """Add a node after its inputs, and return its ID."""
    inputs = children(node)
    streamed = len(streamed_children(node))
    below = [_add_node(nodes, each, streaming and at < streamed) for at, each in enumerate(inputs)]
    pact = "Operator" if inputs else "Data Source"
    entry: dict[str, Any] = {"type": type(node).__name__, "pact": pact, "contents": describe_node(node)}
    if streaming and (state := state_of(node)) is not None:
        entry["state"] = state
    return _append(nodes, entry, node if streaming else None, below)


def _append(nodes: list[dict[str, Any]], entry: dict[str, Any], streamed: Plan | None, below: Sequence[int]) -> int:
    number = len(nodes) + 1
    changes = {} if streamed is None else {"changelog_mode": changelog_mode(streamed).strip("[]").split(",")}
    predecessors = {"predecessors": [{"id": each} for each in below]} if below else {}
    nodes.append({"id": number, **entry, **changes, **predecessors})
    return number
