"""Lists and maps in accumulators, with the methods of PyFlink's views.

They are stored as a whole in the accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ListView(list[Any]):
    """A list with the methods of PyFlink's ListView."""

    def get(self) -> Iterable[Any]:
        """Return the elements."""
        return self

    def add(self, value: Any) -> None:
        """Append an element."""
        self.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append elements."""
        self.extend(values)


class MapView(dict[Any, Any]):
    """A dict with the methods of PyFlink's MapView."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        self[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set the values of keys."""
        self.update(entries)

    def remove(self, key: Any) -> None:
        """Remove a key. Raises KeyError if it does not exist."""
        del self[key]

    def contains(self, key: Any) -> bool:
        """Return whether a key exists."""
        return key in self

    def is_empty(self) -> bool:
        """Return whether there are no keys."""
        return not self
