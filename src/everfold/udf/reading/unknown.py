"""Values that only running a module would show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from everfold.udf.function import SOURCE

_UNKNOWN = "__everfold_unknown__"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known.

    position: the file and line of the expression, such as `shop.py:12`.
    """

    position: str

    def fail(self) -> NoReturn:
        """Raise UnknownError."""
        raise UnknownError(self)


class UnknownError(Exception):
    """A value is needed that is not known."""

    def __init__(self, value: Unknown) -> None:
        super().__init__(value.position)
        self.value = value


def require_known(value: object) -> object:
    """Return a value. Raises UnknownError if it is not known."""
    if isinstance(value, Unknown):
        value.fail()
    return value


def make_unknown_callable(value: Unknown, name: str) -> Callable[..., Any]:
    """Return a callable of which nothing but its name is known, such as a decorated function."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        value.fail()

    stand_in.__name__ = stand_in.__qualname__ = name
    setattr(stand_in, SOURCE, None)
    setattr(stand_in, _UNKNOWN, value)
    return stand_in


def find_unknown(value: object) -> Unknown | None:
    """Return why a value is not known, None if it is. A callable may be anything that has calls."""
    if isinstance(value, Unknown):
        return value
    unknown: Unknown | None = getattr(value, "__dict__", {}).get(_UNKNOWN)
    return unknown
