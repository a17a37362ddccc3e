"""A value of type ROW as functions see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_set = object.__setattr__
"""Rows set their fields with it: `row.n = 1` assigns to the field `n`."""


class Row:
    """The fields of a ROW, by position and, where they have names, by name. Fields can be assigned: accumulators are.

    `Row(1, 2)` has no names, `Row(total=1, n=2)` has. Rows are equal when their values are.
    """

    __slots__ = ("_names", "_values")

    _names: Sequence[str]
    _values: list[Any]

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and named:
            raise TypeError("a Row has either positions or names")
        _set(self, "_values", list(values or named.values()))
        _set(self, "_names", tuple(named))

    @classmethod
    def of(cls, names: Sequence[str], values: Sequence[Any]) -> Row:
        """The row of a type's fields."""
        made = cls.__new__(cls)
        _set(made, "_values", list(values))
        _set(made, "_names", names)
        return made

    def as_dict(self) -> dict[str, Any]:
        """The values by their names."""
        return dict(zip(self._names, self._values, strict=True))

    def __getitem__(self, field: int | str) -> Any:
        return self._values[self._place(field)]

    def __setitem__(self, field: int | str, value: Any) -> None:
        self._values[self._place(field)] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(f"this Row has no field `{name}`")
        return self._values[self._names.index(name)]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise AttributeError(f"this Row has no field `{name}`")
        self._values[self._names.index(name)] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __repr__(self) -> str:
        if self._names:
            return f"Row({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"
        return f"Row({', '.join(map(repr, self._values))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Row.of, (self._names, self._values)

    def _place(self, field: int | str) -> int:
        if not isinstance(field, str):
            return field
        if field not in self._names:
            raise KeyError(field)
        return self._names.index(field)
