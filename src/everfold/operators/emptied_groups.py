"""Groups that become empty within a batch.

As in Flink, a group is discarded when its last row is retracted, and begins again with its next
row; a retraction from an empty group is ignored. So the result depends on the number of rows that a
group had before the batch, which the tasks that fold its rows do not know. But whatever that number
is: if the group becomes empty at all, it does so for the last time where the sum of the signs of
its rows is the least. So a task folds the rows up to there and the later ones separately, in two
*phases*. Source: flink 2.3 through `tests/cases/group`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from everfold.operators.frame_pieces import Positions
from everfold.operators.frames import partition_order
from everfold.operators.protocol import TABLE

PHASE = "phase"
"""Column of prepared rows: even for rows up to the last one after which their group may be empty,
odd for later rows. Ascending by arrival.
"""


def add_phases(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the phase of each row in its group, 0 or 1.

    rows: by arrival, with `hash`, the keys of the group and `sign`.
    """
    signs = rows["sign"].to_numpy()
    return rows.hstack([_number_phases(rows, keys, signs, signs < 0)])


def combine_phases(rows: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
    """Return the phases, 0 or 1, of groups that were prepared from several chunks of rows.

    rows: by the phases of the chunks, with `hash`, the keys of the group and the number `n` of
    added less retracted rows.
    """
    return _number_phases(rows, keys, rows["n"].to_numpy(), rows[PHASE].to_numpy() % 2 == 0)


def number_chunks(prepared: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return prepared frames with phases that are different in each chunk.

    prepared: of each chunk one frame, or one for each table, those of a chunk after one another.
    """
    numbered, chunk = [], -1
    for frame in prepared:
        chunk += not frame.height or TABLE not in frame.columns or frame[TABLE][0] == 0
        numbered.append(frame.with_columns_seq(pl.col(PHASE) + 2 * chunk))
    return numbered


def find_emptied(
    group: Positions, changes: Positions, may_be_empty: npt.NDArray[np.bool_], before: Positions
) -> tuple[npt.NDArray[np.bool_], Positions, Positions]:
    """Return which parts of groups come before the last time that their group is empty, the number
    of retractions from each group while it was empty, and the number of its rows afterwards.

    group: the number of each part's group, from 0, ascending; the parts of a group by arrival, at
    least one. changes: the added less the retracted rows of each part. may_be_empty: whether a
    group can be empty after a part. before: the number of rows of each group before the first part.
    """
    begins = np.flatnonzero(np.diff(group, prepend=-1))
    lengths = np.diff(begins, append=len(group))
    total = np.cumsum(changes)
    count = total - (total - changes)[begins].repeat(lengths) + before[group]
    lowest = np.where(may_be_empty & (count <= 0), count, 1)
    least = np.minimum.reduceat(lowest, begins)
    position = np.arange(len(group))
    is_least = (lowest == least.repeat(lengths)) & (lowest < 1)
    last = np.maximum.reduceat(np.where(is_least, position, -1), begins)
    ignored = np.maximum(-least, 0)
    return position <= last.repeat(lengths), ignored, count[begins + lengths - 1] + ignored


def _number_phases(
    rows: pl.DataFrame, keys: Sequence[str], changes: Positions, may_be_empty: npt.NDArray[np.bool_]
) -> pl.Series:
    phases = np.ones(rows.height, dtype=np.int64)
    if may_be_empty.any():
        order, group = partition_order(rows, keys)
        before = np.zeros(int(group[-1]) + 1, dtype=np.int64)
        is_early, _, _ = find_emptied(group, changes[order], may_be_empty[order], before)
        phases[order[is_early]] = 0
    return pl.Series(PHASE, phases)
