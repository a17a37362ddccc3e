"""Convert shapes to and from JSON, as stored in a job's manifest.

The JSON has no options, no rows and no spans.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from everfold.compat.shape import (
    BranchShape,
    CallShape,
    ColumnShape,
    ConditionShape,
    InputShape,
    OperatorShape,
    PositionShape,
    QueryShape,
)
from everfold.compat.state_schema import NamedShape, OrderShape, StateSchema


def to_json(shape: QueryShape) -> dict[str, Any]:
    """Return a shape as an object of strings, numbers and lists."""
    found = _plain(shape)
    assert isinstance(found, dict)
    return found


def from_json(found: Any) -> QueryShape:
    """Return the shape of such an object.

    Raises ValueError, TypeError or KeyError if the object is not a shape.
    """
    operators = tuple(_operator(each) for each in found["operators"])
    columns = tuple(
        ColumnShape(
            each["name"],
            each["text"],
            tuple((at, call) for at, call in each["origins"]),
            tuple(tuple(map(tuple, branch)) for branch in each.get("branches", ())),
        )
        for each in found["columns"]
    )
    conditions = tuple(
        ConditionShape(**{**condition, "origins": tuple((position, call) for position, call in condition["origins"])})
        for condition in found.get("conditions", ())
    )
    return QueryShape(found["sink"], operators, columns, conditions)


def _operator(found: dict[str, Any]) -> OperatorShape:
    calls = tuple(CallShape(**_members(each)) for each in found["calls"])
    nested = ("calls", "input", "kept", "positions", "state_names")
    plain = _members({name: value for name, value in found.items() if name not in nested})
    # Manifests that were written before state could be shown have no names for its columns.
    kept = _state_schema(found["kept"]) if "kept" in found else StateSchema()
    stored = found.get("positions")
    positions = None if stored is None else tuple(PositionShape(**each) for each in stored)
    members = found["input"]
    branches = tuple(BranchShape(**_members(branch)) for branch in members.get("branches", ()))
    below = InputShape(**{**_members(members), "branches": branches})
    names = tuple((name, earlier) for name, earlier in found.get("state_names", ()))
    return OperatorShape(**plain, calls=calls, input=below, positions=positions, state_names=names, kept=kept)


def _state_schema(found: dict[str, Any]) -> StateSchema:
    named = {name: tuple(NamedShape(**each) for each in found[name]) for name in ("columns", "expressions")}
    order = tuple(OrderShape(**each) for each in found["order"])
    return StateSchema(**{**_members(found), **named, "order": order})


def _members(found: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in found.items()}


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name != "span"}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
