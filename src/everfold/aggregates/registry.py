"""The registry of aggregate functions: one entry a function, the one source for binding, docs, state layout and kernels.

Kernels are Polars expressions over whole columns. An entry's life: `update` folds the rows of a batch into slots (per group),
`merge` folds slots with slots, `result` makes the value. `spark_sql` and `duckdb_sql` are the batch twins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from everfold.types import DataType

if TYPE_CHECKING:
    import polars as pl

Types = tuple[DataType, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of an aggregate's state: found by the call's canonical text and this name, never by position."""

    name: str
    type: DataType


class Aggregate(ABC):
    """An aggregate function. The docstring says what it means; the first line is its help text.

    Arguments arrive with the rows that FILTER excludes already NULL, which is right for every function that skips NULL
    (`skips_nulls`).
    """

    name: ClassVar[str]
    arity: ClassVar[tuple[int, int]] = (1, 1)
    skips_nulls: ClassVar[bool] = True

    @abstractmethod
    def result_type(self, args: Types) -> DataType | None:
        """The result's type by Flink's rules, None if it does not take such arguments."""

    @abstractmethod
    def slots(self, args: Types) -> tuple[Slot, ...]:
        """The state of a group."""

    @abstractmethod
    def update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """The slots of a group of rows."""

    @abstractmethod
    def merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """The slots of a group of slots."""

    @abstractmethod
    def result(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr:
        """The value of a group, of the result type."""

    @abstractmethod
    def spark_sql(self, args: Types, texts: Sequence[str]) -> str:
        """The function in Spark SQL, with Flink's result and type, over argument texts."""

    @abstractmethod
    def duckdb_sql(self, args: Types, texts: Sequence[str]) -> str:
        """The function in DuckDB SQL, with Flink's result and type, over argument texts."""


_REGISTRY: dict[str, Aggregate] = {}
_Entry = TypeVar("_Entry", bound=type[Aggregate])


def aggregate(name: str) -> Callable[[_Entry], _Entry]:
    """Registers a class as the aggregate function of that name; twice is an error."""

    def register(entry: _Entry) -> _Entry:
        assert name not in _REGISTRY, f"{name} is registered twice"
        entry.name = name
        _REGISTRY[name] = entry()
        return entry

    return register


def lookup(name: str) -> Aggregate | None:
    """The function of that name in upper case, None if there is none."""
    return _REGISTRY.get(name)


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_REGISTRY))
