"""The values of a group by frequency: TOPK and BOTTOMK of Lenses SQL.

The state is a bag of all values.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.aggregates import lists
from everfold.aggregates.bags import OfBags
from everfold.aggregates.first_n import FirstN, without_negative_zero
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Signature, aggregate


class _ByCount(OfBags, FirstN):
    most_frequent: bool

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        values = without_negative_zero(of.args[0], columns[0])
        one = pl.lit(1, dtype=pl.Int64) if sign is None else sign
        return (lists.collect_bag(values, values.is_not_null(), one),)

    def choose_values(self, of: Signature, slot: pl.Expr) -> pl.Expr:
        entry = pl.element().filter(pl.element().struct.field(lists.COUNT) > 0)
        value, count = entry.struct.field(lists.VALUE), entry.struct.field(lists.COUNT)
        ordered = value.sort_by(count, value, descending=[self.most_frequent, False])
        return slot.list.eval(ordered.head(self.limit(of)))

    def spark_list(self, of: Signature, text: str) -> str:
        values = f"collect_list({text})"
        count = f"{self._sign}size(filter({values}, __o -> __o <=> __e))"
        entries = f"transform(array_distinct({values}), __e -> struct({count} AS c, __e AS v))"
        return f"transform(array_sort({entries}), __e -> __e.v)"

    def duckdb_list(self, of: Signature, text: str) -> str:
        entry = f"struct_pack(c := {self._sign}CAST(e.value AS BIGINT), v := e.key)"
        entries = f"list_transform(map_entries(histogram({text})), lambda e: {entry})"
        return f"list_transform(list_sort({entries}), lambda e: e.v)"

    @property
    def _sign(self) -> str:
        return "-" if self.most_frequent else ""


@aggregate("TOPK")
class TopK(_ByCount):
    """The n most frequent values, the most frequent first, ties by least value: `TOPK(x, n)`."""

    most_frequent = True


@aggregate("BOTTOMK")
class BottomK(_ByCount):
    """The n least frequent values, the rarest first, ties by least value: `BOTTOMK(x, n)`."""

    most_frequent = False
