"""Folds frames with aggregate calls: rows to slots, slots to slots, slots to values. All of it whole columns at a time.

Frames come in the order of arrival; grouping keeps the order of the rows of a group.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Signature
from everfold.errors import ConnectorError

SIGN = "sign"
"""Column of rows that may be taken back, BIGINT: +1 for a row that comes, -1 for one that is taken back."""
_LARGE = 8192
"""Frames of so many rows are first parted by their first grouping column, if its values have an eighth of that each."""


class Eager(Aggregate):
    """An aggregate whose value no expression can make: it gets whole columns."""

    def settled(self, of: Signature, slots: pl.DataFrame, whole: bool) -> Sequence[pl.Series] | None:
        """As `settle`, of a frame of the slots."""
        exprs = self.settle(of, [pl.col(name) for name in slots.columns], whole)
        if exprs is None:
            return None
        named = zip(exprs, slots.columns, strict=True)
        return slots.select(expr.alias(name) for expr, name in named).get_columns()

    def compacted(self, of: Signature, slots: pl.DataFrame) -> Sequence[pl.Series] | None:
        """The settled slots of whole groups, to which only later rows will come, in as little room as may be; None: as they are."""
        return None

    @abstractmethod
    def value(self, of: Signature, slots: pl.DataFrame) -> pl.Series:
        """As `result`, of a frame of settled slots."""

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Fold:
    """A call as a frame sees it: the entry, its signature, the columns of its arguments and those of its slots.

    kept: a boolean column that says which rows FILTER keeps, for functions that do not skip NULL.
    """

    entry: Aggregate
    of: Signature
    columns: tuple[str, ...]
    slots: tuple[str, ...]
    kept: str | None = None

    @property
    def ordered(self) -> bool:
        """Whether the value depends on the order in which rows come."""
        return self.entry.ordered

    @property
    def adds_up(self) -> bool:
        """Whether the slots of a part of a group can be subtracted from those of the whole."""
        return self.entry.adds_up

    def update(self) -> list[pl.Expr]:
        """Slots of a group of rows, named."""
        return self._named(self.entry.update(self.of, *self._rows()))

    def merge(self, newest_first: bool = False) -> list[pl.Expr]:
        """Slots of a group of slots, named."""
        slots = self._slots()
        if newest_first and self.entry.newest_slice_first:
            slots = [slot.reverse() for slot in slots]
        return self._named(self.entry.merge(self.of, slots))

    def lift(self) -> list[pl.Expr] | None:
        """Slots of each row, named; None if the function cannot say."""
        lifted = None if self.kept is not None else self.entry.lift(self.of, *self._rows())
        return None if lifted is None else self._named(lifted)

    def settle(self, frame: pl.DataFrame, whole: bool) -> list[pl.Expr | pl.Series]:
        """Slots with what was taken back removed, named; nothing for slots that need none."""
        if isinstance(self.entry, Eager):
            return self._aliased(self.entry.settled(self.of, frame.select(self.slots), whole))
        settled = self.entry.settle(self.of, self._slots(), whole)
        return [] if settled is None else [*self._named(settled)]

    def compact(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        """Settled slots of whole groups in less room, named; nothing for slots that have none to spare."""
        if isinstance(self.entry, Eager):
            return self._aliased(self.entry.compacted(self.of, frame.select(self.slots)))
        return []

    def result(self, frame: pl.DataFrame, name: str) -> pl.Expr | pl.Series:
        """The value of settled slots, under a name."""
        if isinstance(self.entry, Eager):
            return self.entry.value(self.of, frame.select(self.slots)).alias(name)
        return self.entry.result(self.of, self._slots()).alias(name)

    def check(self, frame: pl.DataFrame) -> None:
        """Raises ConnectorError where settled slots have no value: the data are to blame."""
        for fault in self.entry.faults(self.of, self._slots()):
            if frame.select(fault.where.any()).item():
                raise ConnectorError.of(fault.code, fault.message)

    def _rows(self) -> tuple[list[pl.Expr], pl.Expr | None]:
        columns = [pl.col(name) for name in self.columns]
        sign = pl.col(SIGN) if self.of.retracting else None
        if self.kept is None:
            return columns, sign
        kept = pl.col(self.kept).fill_null(False)
        return [column.filter(kept) for column in columns], None if sign is None else sign.filter(kept)

    def _slots(self) -> list[pl.Expr]:
        return [pl.col(name) for name in self.slots]

    def _aliased(self, columns: Sequence[pl.Series] | None) -> list[pl.Expr | pl.Series]:
        return [] if columns is None else [each.alias(name) for each, name in zip(columns, self.slots, strict=True)]

    def _named(self, exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
        return [expr.alias(name) for expr, name in zip(exprs, self.slots, strict=True)]


def fold_rows(frame: pl.DataFrame, by: Sequence[str], folds: Sequence[Fold], extra: Sequence[pl.Expr]) -> pl.DataFrame:
    """One row a group: `by`, the `extra` expressions, the slots. Without `by` the whole frame is the group."""
    return _fold(frame, by, [*extra, *(expr for fold in folds for expr in fold.update())])


def fold_slots(
    frame: pl.DataFrame,
    by: Sequence[str],
    folds: Sequence[Fold],
    extra: Sequence[pl.Expr] = (),
    newest_first: bool = False,
) -> pl.DataFrame:
    """One row a group: `by`, the `extra` expressions, the merged slots.

    newest_first: the slots are those of the slices of a HOP window: some functions put newer slices before older ones.
    """
    return _fold(frame, by, [*extra, *(expr for fold in folds for expr in fold.merge(newest_first))])


def settle(frame: pl.DataFrame, folds: Sequence[Fold], whole: bool) -> pl.DataFrame:
    """The frame with its list slots netted. whole: each row has all rows of its group from the first on, not a part of them."""
    if frame.is_empty():
        return frame
    netted = [column for fold in folds for column in fold.settle(frame, whole)]
    return frame.with_columns(netted) if netted else frame


def compacted(frame: pl.DataFrame, folds: Sequence[Fold]) -> pl.DataFrame:
    """The frame of settled slots, one row a whole group, as state that later rows are added to and nothing else: no other part of a group."""
    if frame.is_empty():
        return frame
    smaller = [column for fold in folds for column in fold.compact(frame)]
    return frame.with_columns(smaller) if smaller else frame


def results(frame: pl.DataFrame, folds: Sequence[Fold], names: Sequence[str]) -> list[pl.Series]:
    """The values of the calls, out of settled slots. Raises ConnectorError where there is none."""
    for fold in folds:
        fold.check(frame)
    return frame.select(fold.result(frame, name) for fold, name in zip(folds, names, strict=True)).get_columns()


def _fold(frame: pl.DataFrame, by: Sequence[str], exprs: Sequence[pl.Expr]) -> pl.DataFrame:
    if not by:
        return frame.select(exprs) if exprs else frame.head(1)
    if len(by) == 1 or frame.height < _LARGE or frame.is_empty():
        return frame.group_by(by).agg(exprs)
    # The first column is a window or slice, of which there are few: a group-by of each by the keys alone is several times faster.
    place, *keys = by
    if frame[place].n_unique() * _LARGE > frame.height * 8:
        return frame.group_by(by).agg(exprs)
    parts = frame.partition_by(place, as_dict=True)
    folded = [part.group_by(keys).agg(exprs).with_columns(pl.lit(at).alias(place)) for (at,), part in parts.items()]
    return pl.concat(folded).with_columns(pl.col(place).cast(frame.schema[place])).select(*by, pl.exclude(by))
