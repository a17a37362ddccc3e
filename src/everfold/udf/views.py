"""Lists and maps within accumulators, with the methods of PyFlink's views. They are kept whole in the accumulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ListView(list[Any]):
    """A list that is also called as PyFlink calls its own."""

    def get(self) -> Iterable[Any]:
        """The elements."""
        return self

    def add(self, value: Any) -> None:
        """Appends an element."""
        self.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Appends elements."""
        self.extend(values)


class MapView(dict[Any, Any]):
    """A dict that is also called as PyFlink calls its own map."""

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of a key."""
        self[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Sets the values of keys."""
        self.update(entries)

    def remove(self, key: Any) -> None:
        """Removes a key that is there."""
        del self[key]

    def contains(self, key: Any) -> bool:
        """Whether a key is there."""
        return key in self

    def is_empty(self) -> bool:
        """Whether there are no keys."""
        return not self
