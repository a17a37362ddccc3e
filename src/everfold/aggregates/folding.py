"""Folds frames with aggregate calls: rows to slots, slots to slots, slots to values. All of it whole columns at a time.

Decimal sums are where the quick kernels can go wrong without saying so (128 bits wrap in a group-by). So an entry may tell for a frame
that it is not safe (`at_risk`); then, and only then, its careful kernels run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Types

_LARGE = 8192
"""Frames of so many rows are first parted by their first grouping column, if its values have an eighth of that each."""


class Foldable(Aggregate):
    """An aggregate that also says what a single row is as slots, and when its quick kernels are not safe."""

    def lift(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """The slots of each row alone."""
        raise NotImplementedError

    def rows_at_risk(self, args: Types, columns: Sequence[pl.Expr]) -> pl.Expr | None:
        """One boolean for a frame: `update` could overflow somewhere in it. None: never."""
        return None

    def slots_at_risk(self, args: Types, slots: Sequence[pl.Expr]) -> pl.Expr | None:
        """One boolean for a frame: `merge` could overflow somewhere in it. None: never."""
        return None

    def careful_update(self, args: Types, columns: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """As `update`, right on every input."""
        return self.update(args, columns)

    def careful_merge(self, args: Types, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        """As `merge`, right on every input."""
        return self.merge(args, slots)


@dataclass(frozen=True, slots=True)
class Fold:
    """A call as a frame sees it: the entry, its argument types, the columns of its arguments and those of its slots."""

    entry: Aggregate
    args: Types
    columns: tuple[str, ...]
    slots: tuple[str, ...]

    def update(self, careful: bool = False) -> list[pl.Expr]:
        """Slots of a group of rows, named."""
        columns = [pl.col(name) for name in self.columns]
        if careful and isinstance(self.entry, Foldable):
            return self._named(self.entry.careful_update(self.args, columns))
        return self._named(self.entry.update(self.args, columns))

    def merge(self, careful: bool = False) -> list[pl.Expr]:
        """Slots of a group of slots, named."""
        slots = [pl.col(name) for name in self.slots]
        if careful and isinstance(self.entry, Foldable):
            return self._named(self.entry.careful_merge(self.args, slots))
        return self._named(self.entry.merge(self.args, slots))

    def lift(self) -> list[pl.Expr] | None:
        """Slots of each row, named; None if the function cannot say."""
        if not isinstance(self.entry, Foldable):
            return None
        return self._named(self.entry.lift(self.args, [pl.col(name) for name in self.columns]))

    def result(self, name: str) -> pl.Expr:
        """The value, under a name."""
        return self.entry.result(self.args, [pl.col(slot) for slot in self.slots]).alias(name)

    def risk(self, rows: bool) -> pl.Expr | None:
        """Whether the quick kernels are unsafe for a frame of rows, or of slots."""
        if not isinstance(self.entry, Foldable):
            return None
        if rows:
            return self.entry.rows_at_risk(self.args, [pl.col(name) for name in self.columns])
        return self.entry.slots_at_risk(self.args, [pl.col(name) for name in self.slots])

    def _named(self, exprs: Sequence[pl.Expr]) -> list[pl.Expr]:
        return [expr.alias(name) for expr, name in zip(exprs, self.slots, strict=True)]


def fold_rows(frame: pl.DataFrame, by: Sequence[str], folds: Sequence[Fold], extra: Sequence[pl.Expr]) -> pl.DataFrame:
    """One row a group: `by`, the `extra` expressions, the slots. Without `by` the whole frame is the group."""
    careful = _at_risk(frame, folds, rows=True)
    return _fold(frame, by, [*extra, *(expr for fold in folds for expr in fold.update(careful))])


def fold_slots(
    frame: pl.DataFrame, by: Sequence[str], folds: Sequence[Fold], extra: Sequence[pl.Expr] = ()
) -> pl.DataFrame:
    """One row a group: `by`, the `extra` expressions, the merged slots."""
    careful = _at_risk(frame, folds, rows=False)
    return _fold(frame, by, [*extra, *(expr for fold in folds for expr in fold.merge(careful))])


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


def _at_risk(frame: pl.DataFrame, folds: Sequence[Fold], rows: bool) -> bool:
    risks = [risk.alias(f"r{at}") for at, fold in enumerate(folds) if (risk := fold.risk(rows)) is not None]
    if not risks or frame.is_empty():
        return False
    return any(frame.select(risks).row(0))
