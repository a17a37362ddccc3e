"""The rows of a Rank, or of an OVER that stores all rows: their columns and their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import PART, partition_order
from everfold.operators.layout import normalize_keys, page_columns
from everfold.operators.protocol import InputColumn
from everfold.operators.state_names import StateNames, number_repeats
from everfold.plan.expressions import Expr, InputRef, column_references
from everfold.plan.nodes import OverAggregate, Rank, time_attribute
from everfold.state.partition_rows import NUMBER
from everfold.state.segments import take_rows
from everfold.types import FloatingType


class RankedRows:
    """The columns and the order of ranked rows.

    columns: of the node's input, `r0, …`. keys: of the partition. order: the columns that rows are
    sorted by. inputs: all columns of the rows. page_names: their names in pages. A key or an order
    that is a column of the input is not stored twice. newest_first: whether rows that are equal in
    the order are sorted from the last to arrive to the first.
    """

    def __init__(self, node: Rank | OverAggregate, *, newest_first: bool = False) -> None:
        below = node.input.schema
        self.columns = tuple(f"r{at}" for at in range(len(below)))
        self._inputs = [*map(InputColumn.of, self.columns, column_references(below))]
        self._state_names = StateNames(node)
        self._names = dict(zip(self.columns, self._state_names.name_columns(), strict=True))
        self._node = node
        # In canonical order, so that the hash of a partition does not depend on how they are
        # written.
        named = sorted(zip(self._state_names.name_keys(node.partition), range(len(node.partition)), strict=True))
        self.keys = tuple(self._key(at, node.partition[position]) for at, (_, position) in enumerate(named))
        self.order = tuple(self._order(at, key.expression) for at, key in enumerate(node.order))
        self._by = [*self.order, NUMBER]
        self._descending = [*(key.descending for key in node.order), newest_first]
        self._nulls_last = [*(not key.nulls_first for key in node.order), False]
        self.inputs = tuple(self._inputs)
        """What the engine computes."""
        texts = number_repeats(list(self._names.values()))
        self.page_names = dict(zip(self._names, texts, strict=True))
        self.types = {each.name: each.type.polars for each in self._inputs}

    def normalize(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Normalize the keys, so that equal ones have the same bits."""
        return rows.with_columns_seq(*normalize_keys(self._inputs, self.keys))

    def order_rows(self, rows: pl.DataFrame) -> tuple[Positions, Positions]:
        """Return the indexes of rows by partition and order, equal ones by arrival or newest first,
        and the number of the partition of each, ascending.

        rows: with `number`.
        """
        by, descending, nulls_last = self._by, self._descending, self._nulls_last
        if not descending[-1] and rows[NUMBER].is_sorted():
            # Sorting is stable, and takes less time by fewer columns.
            by, descending, nulls_last = by[:-1], descending[:-1], nulls_last[:-1]
        order = np.arange(rows.height)
        if by:
            sort = pl.arg_sort_by(by, descending=descending, nulls_last=nulls_last, maintain_order=True)
            order = rows.select_seq(sort).to_series().to_numpy().astype(np.int64)
        at, part = partition_order(take_rows(rows[["hash", *self.keys]], order), self.keys)
        return order[at], part

    def sort_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Sort rows by partition and order, equal ones by arrival, and add the number of the
        partition as `part`.

        rows: with `number`.
        """
        at, part = self.order_rows(rows)
        return take_rows(rows, at).with_columns_seq(pl.Series(PART, part))

    def to_page(self, rows: pl.DataFrame, fixed: Sequence[str | pl.Expr], names: Sequence[str]) -> pl.DataFrame:
        """Rename columns of rows to their names in pages, after the columns `fixed`, which keep
        their names.
        """
        return rows.select_seq(*fixed, *(pl.col(name).alias(self.page_names[name]) for name in names))

    def from_page(self, page: pl.DataFrame, fixed: Sequence[str]) -> pl.DataFrame:
        """Return the rows of a page; a column that it lacks is NULL."""
        return page.select_seq(*fixed, *page_columns(page, self.page_names, self.types))

    def _key(self, at: int, key: Expr) -> str:
        if isinstance(key, InputRef) and not isinstance(key.type, FloatingType):
            name = self.columns[key.position]
            self._names[name] = self._names[name].replace("column ", "key ", 1)
            return name
        return self._add_input(f"k{at}", key, self._state_names.name_keys([key])[0])

    def _order(self, at: int, expression: Expr) -> str:
        if time_attribute(expression, self._node.input.schema) == "proctime":
            return NUMBER
        if isinstance(expression, InputRef):
            return self.columns[expression.position]
        return self._add_input(f"o{at}", expression, self._state_names.name_order(expression))

    def _add_input(self, name: str, expression: Expr, page_name: str) -> str:
        self._inputs.append(InputColumn.of(name, expression))
        self._names[name] = page_name
        return name
