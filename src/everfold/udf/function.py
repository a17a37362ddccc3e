"""A registered Python function as a part of plans."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from everfold.types import DataType
from everfold.udf.interface import AggregateFunction, UserDefinedFunction

FuncType: TypeAlias = Literal["general", "arrow", "polars", "pandas"]
"""The kind of arguments: Python values, or whole columns of one of these libraries."""
FUNC_TYPES: tuple[FuncType, ...] = get_args(FuncType)

SOURCE = "__everfold_source__"
"""Attribute of a stand-in for a function or class whose module is read and not imported: its source
code, None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFunction:
    """A user's function.

    Two are equal if they have the same name in SQL and the same origin in Python. name: the name in
    SQL. identifier: module and attribute. accumulator: the type of an AggregateFunction's
    accumulator.
    """

    name: str
    identifier: str
    function: UserDefinedFunction = field(compare=False, repr=False)
    func_type: FuncType = "general"
    deterministic: bool = True
    accumulator: DataType | None = None

    @property
    def is_vectorized(self) -> bool:
        """Whether it is called with whole columns."""
        return self.func_type != "general"

    @property
    def has_retract(self) -> bool:
        """Whether an AggregateFunction defines `retract`."""
        return self._defines("retract")

    @property
    def has_merge(self) -> bool:
        """Whether an AggregateFunction defines `merge`."""
        return self._defines("merge")

    @property
    def is_source_known(self) -> bool:
        """Whether its source code, or that it has none, is known without importing its module."""
        return _stand_in_source(self._find_origin()) is not None

    def digest_source(self) -> str:
        """Return a digest of the function's source code, empty if it cannot be read."""
        origin = self._find_origin()
        source = _stand_in_source(origin)
        if source is None:
            return ""
        try:
            source = source or inspect.getsource(origin)
        except (OSError, TypeError):
            return ""
        lines = (line.rstrip() for line in textwrap.dedent(source).splitlines())
        return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()[:16]

    def _find_origin(self) -> Any:
        return inspect.unwrap(getattr(self.function, "wrapped", type(self.function)))

    def _defines(self, method: str) -> bool:
        of = type(self.function)
        return isinstance(self.function, AggregateFunction) and getattr(of, method) is not getattr(
            AggregateFunction, method
        )


def _stand_in_source(origin: object) -> str | None:
    """Return the source code of a stand-in, None if it is not known. Empty for other objects."""
    source: str | None = getattr(origin, "__dict__", {}).get(SOURCE, "")
    return source
