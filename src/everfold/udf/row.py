"""A value of type ROW in user functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_set = object.__setattr__
"""Sets attributes of a row, since `row.n = 1` assigns the field `n`."""


class Row:
    """The fields of a ROW, by position and, if they have names, by name.

    Fields can be assigned, since accumulators are changed in place. `Row(1, 2)` has no names,
    `Row(total=1, n=2)` has. Rows are equal if their values are.
    """

    __slots__ = ("_names", "_values")

    _names: Sequence[str]
    _values: list[Any]

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and named:
            raise TypeError("a Row takes either positional or named fields, not both")
        _set(self, "_values", list(values or named.values()))
        _set(self, "_names", tuple(named))

    @classmethod
    def of(cls, names: Sequence[str], values: Sequence[Any]) -> Row:
        """Create a row with the field names of a type."""
        made = cls.__new__(cls)
        _set(made, "_values", list(values))
        _set(made, "_names", names)
        return made

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name."""
        return dict(zip(self._names, self._values, strict=True))

    def __getitem__(self, field: int | str) -> Any:
        return self._values[self._position(field)]

    def __setitem__(self, field: int | str, value: Any) -> None:
        self._values[self._position(field)] = value

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

    def _position(self, field: int | str) -> int:
        if not isinstance(field, str):
            return field
        if field not in self._names:
            raise KeyError(field)
        return self._names.index(field)
