"""Fold frames with aggregate calls: rows to slots, slots to slots, slots to values.

Everything works on whole columns. Frames are in arrival order; grouping keeps the order of the rows
within a group.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Fault, Signature
from everfold.errors import ConnectorError

SIGN = "sign"
"""Column of rows that may be retractions, BIGINT: +1 for an insert, -1 for a retraction."""
_LARGE = 8192
"""Frames with at least this many rows are first partitioned by their first grouping column, if it
has an eighth of this many rows per value."""


class Eager(Aggregate):
    """An aggregate whose value cannot be written as an expression. It gets whole columns."""

    def settle_frame(self, of: Signature, slots: pl.DataFrame, whole: bool) -> Sequence[pl.Series] | None:
        """Settle a frame of the slots, as `settle` does."""
        exprs = self.settle(of, [pl.col(name) for name in slots.columns], whole)
        if exprs is None:
            return None
        pairs = zip(exprs, slots.columns, strict=True)
        return slots.select_seq(expr.alias(name) for expr, name in pairs).get_columns()

    def compact_frame(self, of: Signature, slots: pl.DataFrame) -> Sequence[pl.Series] | None:
        """Return the settled slots of whole groups in as little space as possible.

        Only later rows are added to such groups. None if the slots stay as they are.
        """
        return None

    @abstractmethod
    def value(self, of: Signature, slots: pl.DataFrame) -> pl.Series:
        """Compute the values of a frame of settled slots, as `result` does."""

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        raise NotImplementedError


@dataclass(frozen=True)
class Fold:
    """A call as a frame sees it: its entry and signature, the columns of its arguments and slots.

    filter_column: a boolean column with the result of FILTER, for functions that do not skip NULL.
    begins_late: whether the call was added to a job that had state, so that slots can be unset (all
    NULL): it has no value, NULL, for a group without a row since then.
    Its expressions are built once: for a batch of one row that would take a tenth of the time.
    """

    entry: Aggregate
    of: Signature
    columns: tuple[str, ...]
    slots: tuple[str, ...]
    filter_column: str | None = None
    begins_late: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether the value depends on the order of the rows."""
        return self.entry.is_ordered

    @property
    def is_additive(self) -> bool:
        """Whether the slots of a part of a group can be subtracted from those of the whole."""
        return self.entry.is_additive

    @cached_property
    def updated(self) -> list[pl.Expr]:
        """The named slots of a group of rows."""
        return self._name_slots(self.entry.update(self.of, *self._rows()))

    @cached_property
    def merged(self) -> list[pl.Expr]:
        """The named slots of a group of slots."""
        return self._name_slots(self._merge(self._slots()))

    @cached_property
    def merged_newest_first(self) -> list[pl.Expr]:
        """The named slots of a group of slots of the slices of a HOP window, where some functions
        put newer slices before older ones.
        """
        if not self.entry.newest_slice_first:
            return self.merged
        return self._name_slots(self._merge([slot.reverse() for slot in self._slots()]))

    @cached_property
    def lifted(self) -> list[pl.Expr] | None:
        """The named slots of each row, None if the function does not support it."""
        lifted = None if self.filter_column is not None else self.entry.lift(self.of, *self._rows())
        return None if lifted is None else self._name_slots(lifted)

    def settle(self, frame: pl.DataFrame, whole: bool) -> list[pl.Expr | pl.Series]:
        """Return the named slots with retracted elements removed.

        Empty if the slots need no change.
        """
        if isinstance(self.entry, Eager):
            return self._name_columns(self.entry.settle_frame(self.of, frame[list(self.slots)], whole))
        settled = self.entry.settle(self.of, self._slots(), whole)
        return [] if settled is None else [*self._name_slots(settled)]

    def compact(self, frame: pl.DataFrame) -> list[pl.Expr | pl.Series]:
        """Return the named settled slots of whole groups in less space.

        Empty if they cannot shrink.
        """
        if isinstance(self.entry, Eager):
            return self._name_columns(self.entry.compact_frame(self.of, frame[list(self.slots)]))
        return []

    def result(self, frame: pl.DataFrame, name: str) -> pl.Expr | pl.Series:
        """Return the value of settled slots as a named column."""
        if isinstance(self.entry, Eager):
            value = self.entry.value(self.of, frame[list(self.slots)]).alias(name)
            unset = self.find_unset(frame)
            return value if unset is None else value.set(unset, None)
        return self._result.alias(name)

    def check(self, frame: pl.DataFrame) -> None:
        """Raise ConnectorError if settled slots have no valid value because of the input data."""
        for fault in self._faults:
            if frame.select_seq(fault.where.any()).item():
                raise ConnectorError.of(fault.code, fault.message)

    @cached_property
    def _result(self) -> pl.Expr:
        result = self.entry.result(self.of, self._slots())
        return result if self._is_set is None else pl.when(self._is_set).then(result)

    def _merge(self, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        merged = self.entry.merge(self.of, slots)
        if self._is_set is None:
            return merged
        return [pl.when(self._is_set.any()).then(slot) for slot in merged]

    @cached_property
    def _is_set(self) -> pl.Expr | None:
        """Whether slots are set, None if they always are."""
        if not self.begins_late or not self.slots:
            return None
        return pl.any_horizontal(pl.col(name).is_not_null() for name in self.slots)

    @cached_property
    def _faults(self) -> tuple[Fault, ...]:
        return self.entry.faults(self.of, self._slots())

    def find_unset(self, frame: pl.DataFrame) -> pl.Series | None:
        """Return which rows of a frame have unset slots, None if none can have."""
        return None if self._is_set is None else ~frame.select_seq(self._is_set).to_series()

    def _rows(self) -> tuple[list[pl.Expr], pl.Expr | None]:
        columns = [pl.col(name) for name in self.columns]
        sign = pl.col(SIGN) if self.of.retracting else None
        if self.filter_column is None:
            return columns, sign
        kept = pl.col(self.filter_column).fill_null(False)
        return [column.filter(kept) for column in columns], None if sign is None else sign.filter(kept)

    def _slots(self) -> list[pl.Expr]:
        return [pl.col(name) for name in self.slots]

    def _name_columns(self, columns: Sequence[pl.Series] | None) -> list[pl.Expr | pl.Series]:
        return [] if columns is None else [each.alias(name) for each, name in zip(columns, self.slots, strict=True)]

    def _name_slots(self, exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
        return [expr.alias(name) for expr, name in zip(exprs, self.slots, strict=True)]


def fold_rows(frame: pl.DataFrame, by: Sequence[str], folds: Sequence[Fold], extra: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return one row per group: `by`, the `extra` expressions, the slots.

    Without `by` the whole frame is the group.
    """
    return _fold(frame, by, [*extra, *(expr for fold in folds for expr in fold.updated)])


def fold_slots(
    frame: pl.DataFrame,
    by: Sequence[str],
    folds: Sequence[Fold],
    extra: Sequence[pl.Expr] = (),
    newest_first: bool = False,
) -> pl.DataFrame:
    """Return one row per group: `by`, the `extra` expressions, the merged slots.

    newest_first: the slots are those of the slices of a HOP window, where some functions put newer
    slices before older ones.
    """
    merged = (fold.merged_newest_first if newest_first else fold.merged for fold in folds)
    return _fold(frame, by, [*extra, *(expr for each in merged for expr in each)])


def settle(frame: pl.DataFrame, folds: Sequence[Fold], whole: bool) -> pl.DataFrame:
    """Return the frame with its list slots netted.

    whole: each row holds all rows of its group from the first on, not a part of them.
    """
    if frame.is_empty():
        return frame
    netted = [column for fold in folds for column in fold.settle(frame, whole)]
    return frame.with_columns_seq(netted) if netted else frame


def compact_slots(frame: pl.DataFrame, folds: Sequence[Fold]) -> pl.DataFrame:
    """Return settled slots, one row per whole group, in a smaller form.

    The result is state to which only later rows are added, never another part of a group.
    """
    if frame.is_empty():
        return frame
    smaller = [column for fold in folds for column in fold.compact(frame)]
    return frame.with_columns_seq(smaller) if smaller else frame


def compute_results(frame: pl.DataFrame, folds: Sequence[Fold], names: Sequence[str]) -> list[pl.Series]:
    """Compute the values of the calls from settled slots.

    Raises ConnectorError for a group without a valid value.
    """
    for fold in folds:
        fold.check(frame)
    return frame.select_seq(fold.result(frame, name) for fold, name in zip(folds, names, strict=True)).get_columns()


def reduce_groups(frame: pl.DataFrame, by: Sequence[str], exprs: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return one row per group: `by`, the values of the expressions.

    Without `by` the whole frame is the group. A single row is not grouped, which takes longer.
    """
    if by and frame.height != 1:
        return frame.group_by(by).agg(exprs)
    columns = [*by, *exprs]
    return frame.select_seq(columns) if columns else frame.head(1)


def _fold(frame: pl.DataFrame, by: Sequence[str], exprs: Sequence[pl.Expr]) -> pl.DataFrame:
    if len(by) <= 1 or frame.height < _LARGE:
        return reduce_groups(frame, by, exprs)
    # The first column is a window or slice with few values. Grouping each one by the other keys
    # alone is several times faster.
    first, *keys = by
    if frame[first].n_unique() * _LARGE > frame.height * 8:
        return frame.group_by(by).agg(exprs)
    parts = frame.partition_by(first, as_dict=True)
    values = {at: pl.lit(at, dtype=frame.schema[first]).alias(first) for (at,) in parts}
    folded = [part.group_by(keys).agg(exprs).with_columns_seq(values[at]) for (at,), part in parts.items()]
    return pl.concat(folded).select_seq(*by, pl.exclude(by))
