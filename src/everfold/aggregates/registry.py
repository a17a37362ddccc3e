"""The registry of aggregate functions: one entry a function, the one source for binding, docs, state layout and kernels.

Kernels are Polars expressions over whole columns. An entry's life: `update` folds the rows of a batch into slots (per group),
`merge` folds slots with slots, `settle` nets what list slots hold, `result` makes the value. `spark_sql` and `duckdb_sql` are the batch twins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeVar

from everfold.types import DataType

if TYPE_CHECKING:
    import polars as pl

Types = tuple[DataType, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call gives its function.

    args: the types of the arguments that vary from row to row. constants: the parameters that do not, as Python values (LISTAGG's separator);
    all that the function has. retracting: rows may be taken back: then kernels get a sign with each row.
    """

    args: Types = ()
    constants: tuple[object, ...] = ()
    retracting: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of an aggregate's state: found by the call's canonical text and this name, never by position."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class Over:
    """What a batch twin is written over: the texts of the arguments, NULL where FILTER leaves the row out.

    distinct: over each combination of arguments once. kept: the condition of FILTER, given only to functions that do not skip NULL; their
    arguments are then as they are.
    """

    texts: tuple[str, ...]
    distinct: bool = False
    kept: str | None = None

    @property
    def each(self) -> str:
        """The first argument as a function takes it."""
        return f"DISTINCT {self.texts[0]}" if self.distinct else self.texts[0]

    def where(self, condition: str) -> Over:
        """Over the rows that also meet a condition."""
        return replace(self, kept=condition if self.kept is None else f"({self.kept}) AND {condition}")


class Distinct(StrEnum):
    """What DISTINCT in a call does: it applies, makes no difference, or is refused."""

    APPLIES = "applies"
    NO_DIFFERENCE = "no-difference"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Fault:
    """A result that must not be: `where` it holds for a group, the job stops with the error's code and message."""

    code: str
    where: pl.Expr
    message: str


class NoTwin(Exception):
    """A batch engine cannot compute the function as Flink does; the text says why."""


class Aggregate(ABC):
    """An aggregate function. The docstring says what it means; the first line is its help text.

    arity: how many arguments are written. constant: the position of the one that must be a constant. clause: the clause in the call that is
    its constant. default: the constant if it is not written. wrapped: the scalar functions that arguments go through before the kernels
    get them. hashed: the kernels get the 64-bit hash of each argument instead, and whether it is not NULL.
    ordered: the result depends on the order in which rows come. newest_slice_first: in a HOP window the rows of newer slices stand before those of
    older ones, as Flink merges them. skips_nulls: a row with a NULL argument changes nothing; so FILTER is a NULL
    argument, while other functions get only the rows that FILTER keeps. adds_up: slots merge by addition, so that whole numbers among them can be
    subtracted again. over_only: the function is one of windows, not of groups; it takes no frame. by_rows: over a window it sees the rows up to its own,
    without later peers; rows_in_batch: in a batch only. forward: it sees its own row and those behind it, which a stream does not have. of_order: its
    argument is the order key of the window. dialect: which SQL calls it by its name; another may do so by another name.
    """

    name: ClassVar[str]
    arity: ClassVar[tuple[int, int]] = (1, 1)
    constant: ClassVar[int | None] = None
    clause: ClassVar[str | None] = None
    default: ClassVar[str | int | None] = None
    wrapped: ClassVar[tuple[str, ...]] = ()
    hashed: ClassVar[bool] = False
    skips_nulls: ClassVar[bool] = True
    ordered: ClassVar[bool] = False
    newest_slice_first: ClassVar[bool] = False
    retractable: ClassVar[bool] = True
    distinct: ClassVar[Distinct] = Distinct.APPLIES
    adds_up: ClassVar[bool] = False
    over_only: ClassVar[bool] = False
    by_rows: ClassVar[bool] = False
    rows_in_batch: ClassVar[bool] = False
    forward: ClassVar[bool] = False
    of_order: ClassVar[bool] = False
    dialect: ClassVar[str] = "flink"

    def constant_value(self, value: object) -> object | None:
        """A constant as kernels take it; None if it must not be that."""
        return value

    @abstractmethod
    def result_type(self, of: Signature) -> DataType | None:
        """The result's type by Flink's rules, None if it does not take such arguments."""

    @abstractmethod
    def slots(self, of: Signature) -> tuple[Slot, ...]:
        """The state of a group."""

    @abstractmethod
    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        """The slots of a group of rows. sign: +1 or -1 of each row, BIGINT; None: all rows are new."""

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr] | None:
        """The slots of each row alone; None for slots that are lists."""
        return None

    @abstractmethod
    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """The slots of a group of slots, which come in the order of their rows."""

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        """The slots with all that was taken back removed from their lists; None: there is nothing to remove.

        whole: the slots hold all rows of their group from the first on. A part of them can be netted only where order does not matter.
        """
        return None

    @abstractmethod
    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        """The value of a group, of the result type, out of settled slots."""

    def faults(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Fault, ...]:
        """What must not be in settled slots."""
        return ()

    @abstractmethod
    def spark_sql(self, of: Signature, over: Over) -> str:
        """The function in Spark SQL, with Flink's result and type. Raises NoTwin."""

    @abstractmethod
    def duckdb_sql(self, of: Signature, over: Over) -> str:
        """The function in DuckDB SQL, with Flink's result and type. Raises NoTwin."""


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


def names(dialect: str = "flink") -> tuple[str, ...]:
    """The names of the functions of groups that a dialect brings, sorted."""
    return tuple(sorted(name for name, entry in _REGISTRY.items() if not entry.over_only and entry.dialect == dialect))


def names_of_windows() -> tuple[str, ...]:
    """The names of the functions that OVER has besides, sorted."""
    return tuple(sorted(name for name, entry in _REGISTRY.items() if entry.over_only))
