"""Shapes as JSON, as a job's manifest keeps them: nothing of options or rows is in them, and no places."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from everfold.compat.shape import CallShape, ColumnShape, InputShape, OperatorShape, QueryShape


def to_json(shape: QueryShape) -> dict[str, Any]:
    """A shape as an object of texts, numbers and lists."""
    made = _plain(shape)
    assert isinstance(made, dict)
    return made


def from_json(found: Any) -> QueryShape:
    """A shape out of such an object. Raises ValueError, TypeError or KeyError if it is none."""
    operators = tuple(_operator(each) for each in found["operators"])
    columns = tuple(
        ColumnShape(each["name"], each["text"], tuple((at, call) for at, call in each["origins"]))
        for each in found["columns"]
    )
    return QueryShape(found["sink"], operators, columns)


def _operator(found: dict[str, Any]) -> OperatorShape:
    calls = tuple(CallShape(**{**each, "computed": tuple(each["computed"])}) for each in found["calls"])
    of_input = InputShape(**{name: _tuples(value) for name, value in found["input"].items()})
    plain = {name: _tuples(value) for name, value in found.items() if name not in ("calls", "input")}
    return OperatorShape(**plain, calls=calls, input=of_input)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name != "span"}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
