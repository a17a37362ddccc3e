"""The registry of aggregate functions.

There is one entry per function. It is the only source for binding, docs, state layout and kernels.

Kernels are Polars expressions over whole columns. `update` folds the rows of a batch into slots,
per group; `merge` folds slots with slots; `settle` nets the contents of list slots; `result`
computes the value. `spark_sql` and `duckdb_sql` write the function for the batch engines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from everfold.types import DataType

if TYPE_CHECKING:
    import polars as pl

Types = tuple[DataType, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a call.

    args: the types of the arguments that vary from row to row. constants: the constant parameters
    of the function as Python values, such as LISTAGG's separator. retracting: whether rows may be
    retracted; then kernels get a sign with each row.
    """

    args: Types = ()
    constants: tuple[object, ...] = ()
    retracting: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One field of an aggregate's state.

    It is found by the call's canonical text and this name, never by position. internal: whether it
    only helps to compute the result, such as the number of values that are not NULL.
    """

    name: str
    type: DataType
    internal: bool = False


@dataclass(frozen=True, slots=True)
class SqlArguments:
    """The arguments of a call in the SQL of a batch engine.

    texts: the arguments as SQL expressions, NULL where FILTER excludes the row. distinct: whether
    each combination of arguments counts once. filter_condition: the condition of FILTER, only for
    functions that do not skip NULL; their arguments are then unchanged.
    """

    texts: tuple[str, ...]
    distinct: bool = False
    filter_condition: str | None = None

    @property
    def first_argument(self) -> str:
        """The first argument, with DISTINCT if it applies."""
        return f"DISTINCT {self.texts[0]}" if self.distinct else self.texts[0]

    def where(self, condition: str) -> SqlArguments:
        """Return the same arguments over the rows that also meet a condition."""
        return replace(
            self,
            filter_condition=condition
            if self.filter_condition is None
            else f"({self.filter_condition}) AND {condition}",
        )


class Distinct(StrEnum):
    """The effect of DISTINCT in a call: it applies, makes no difference, or is refused."""

    APPLIES = "applies"
    NO_DIFFERENCE = "no-difference"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Fault:
    """An invalid result.

    If `where` holds for a group, the job fails with the error's code and message.
    """

    code: str
    where: pl.Expr
    message: str


class NotInBatchEngine(Exception):
    """A batch engine cannot compute the function as Flink does. The message gives the reason."""


class Aggregate(ABC):
    """An aggregate function.

    The docstring of a subclass documents the function; its first line is the help text.

    - arity: the least and the greatest number of arguments in SQL.
    - constant: the position of the argument that must be a constant.
    - clause: the clause of the call that sets the constant.
    - default: the constant if it is not given.
    - argument_functions: scalar functions that are applied to the arguments before the kernels get
      them.
    - takes_hashes: the kernels get the 64-bit hash of each argument, and whether it is not NULL, in
      place of the argument.
    - is_ordered: the result depends on the order of the rows.
    - newest_slice_first: in a HOP window the rows of newer slices come before those of older ones,
      as Flink merges them.
    - skips_nulls: a row with a NULL argument changes nothing, so FILTER is a NULL argument. Other
      functions get only the rows that pass FILTER.
    - is_retractable: rows can be retracted.
    - distinct: the effect of DISTINCT.
    - is_additive: slots merge by addition, so whole numbers among them can be subtracted again.
    - extreme: without retraction, the only slot is the "least" or the "greatest" value.
    - is_window_function: a window function: it needs OVER and takes no frame.
    - ignores_peers: over a window, it sees the rows up to its own, without later peers.
    - ignores_peers_in_batch: as `ignores_peers`, but in batch only.
    - looks_ahead: it sees its own row and the rows after it, which a stream does not have.
    - takes_order_key: its argument is the order key of the window.
    - dialect: the SQL dialect that calls it by this name. Another dialect may use another name.
    """

    name: ClassVar[str]
    arity: ClassVar[tuple[int, int]] = (1, 1)
    constant: ClassVar[int | None] = None
    clause: ClassVar[str | None] = None
    default: ClassVar[str | int | None] = None
    argument_functions: ClassVar[tuple[str, ...]] = ()
    takes_hashes: ClassVar[bool] = False
    skips_nulls: ClassVar[bool] = True
    is_ordered: ClassVar[bool] = False
    newest_slice_first: ClassVar[bool] = False
    is_retractable: ClassVar[bool] = True
    distinct: ClassVar[Distinct] = Distinct.APPLIES
    is_additive: ClassVar[bool] = False
    extreme: ClassVar[Literal["least", "greatest"] | None] = None
    is_window_function: ClassVar[bool] = False
    ignores_peers: ClassVar[bool] = False
    ignores_peers_in_batch: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    takes_order_key: ClassVar[bool] = False
    dialect: ClassVar[str] = "flink"

    def constant_value(self, value: object) -> object | None:
        """Return a constant as the kernels take it, None if it is not valid."""
        return value

    @abstractmethod
    def result_type(self, of: Signature) -> DataType | None:
        """Return the result type by Flink's rules, None if the arguments are not accepted."""

    @abstractmethod
    def slots(self, of: Signature) -> tuple[Slot, ...]:
        """Return the state fields of a group."""

    @abstractmethod
    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        """Return the slots of a group of rows.

        sign: +1 or -1 for each row, BIGINT; None if all rows are inserts.
        """

    def lift(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr] | None:
        """Return the slots of each single row, None if the slots are lists."""
        return None

    @abstractmethod
    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """Return the slots of a group of slots, which are in the order of their rows."""

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        """Return the slots with retracted elements removed from their lists.

        None if there is nothing to remove. whole: the slots hold all rows of their group from the
        first on. A part of the rows can be netted only where order does not matter.
        """
        return None

    @abstractmethod
    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        """Return the value of a group, of the result type, from settled slots."""

    def faults(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Fault, ...]:
        """Return what is not allowed in settled slots."""
        return ()

    @abstractmethod
    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        """Return the function in Spark SQL, with Flink's result and type. Raises NoTwin."""

    @abstractmethod
    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        """Return the function in DuckDB SQL, with Flink's result and type. Raises NoTwin."""


_REGISTRY: dict[str, Aggregate] = {}
_Entry = TypeVar("_Entry", bound=type[Aggregate])


def aggregate(name: str) -> Callable[[_Entry], _Entry]:
    """Register a class as the aggregate function of that name. Each name can be registered once."""

    def register(entry: _Entry) -> _Entry:
        assert name not in _REGISTRY, f"{name} is registered twice"
        entry.name = name
        _REGISTRY[name] = entry()
        return entry

    return register


def lookup(name: str) -> Aggregate | None:
    """Return the function with that name in upper case, None if there is none."""
    return _REGISTRY.get(name)


def names(dialect: str = "flink") -> tuple[str, ...]:
    """Return the sorted names of a dialect's aggregate functions."""
    return tuple(
        sorted(name for name, entry in _REGISTRY.items() if not entry.is_window_function and entry.dialect == dialect)
    )


def window_function_names() -> tuple[str, ...]:
    """Return the sorted names of the functions that need OVER."""
    return tuple(sorted(name for name, entry in _REGISTRY.items() if entry.is_window_function))
