"""MIN and MAX over frames.

The extreme of overlapping parts is that of the whole, so the extreme of a frame is that of the two
largest runs of 2^n rows at its start and its end. The extremes of all runs of 2^n rows are computed
from those of half the length. Everything works on integers that are ordered as the values are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

_NO_VALUE = 0
"""The code of NULL and of an empty frame, less than all others."""
_MOST = 1 << 62


def extremes_of_frames(
    values: pl.Series, greatest: bool, first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> pl.Series:
    """Return the greatest or least non-null value of each frame, NULL if it has none.

    NaN is greater than every number.
    """
    physical = values.to_physical()
    if physical.dtype.is_integer() and not values.dtype.is_decimal():
        low, high = physical.min(), physical.max()
        assert low is None or isinstance(low, int)
        assert high is None or isinstance(high, int)
        if low is None or high is None:
            return values.clear(len(first))
        if high - low < _MOST and -_MOST < low <= high < _MOST:
            shifted = physical.cast(pl.Int64)
            codes = (shifted - (low - 1) if greatest else (high + 1) - shifted).fill_null(_NO_VALUE)
            found = greatest_codes(codes.to_numpy(), first, last)
            decoded = pl.Series(values.name, found + (low - 1) if greatest else (high + 1) - found)
            return _clear(decoded.cast(physical.dtype).cast(values.dtype), found)
    ranks = values.rank("dense").cast(pl.Int64)
    codes = (ranks if greatest else 1 + values.n_unique() - ranks).fill_null(_NO_VALUE)
    found = greatest_codes(codes.to_numpy(), first, last)
    rows = np.zeros(int(codes.max() or 0) + 1, dtype=np.int64)  # type: ignore[arg-type]
    rows[codes.to_numpy()] = np.arange(len(values))
    return _clear(values.gather(rows[found]), found)


def greatest_codes(
    codes: npt.NDArray[np.int64], first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the greatest code of each frame, `_NO_VALUE` if it is empty."""
    found = np.full(len(first), _NO_VALUE, dtype=np.int64)
    # The exponent of a run's length; -1 for an empty frame.
    exponents = (np.frexp(np.maximum(last - first + 1, 0))[1] - 1).astype(np.int8)
    order = np.argsort(exponents, kind="stable")
    longest = int(exponents.max(initial=-1))
    edges = np.searchsorted(exponents[order], np.arange(longest + 2))
    runs = codes
    for exponent in range(longest + 1):
        if exponent:
            half = 1 << (exponent - 1)
            runs = np.maximum(runs[:-half], runs[half:])
        who = order[edges[exponent] : edges[exponent + 1]]
        if len(who):
            found[who] = np.maximum(runs[first[who]], runs[last[who] + 1 - (1 << exponent)])
    return found


def _clear(values: pl.Series, codes: npt.NDArray[np.int64]) -> pl.Series:
    """Return the values with NULL where there is none."""
    if codes.all():
        return values
    return values.to_frame().select_seq(pl.when(pl.lit(pl.Series(codes != _NO_VALUE))).then(pl.first())).to_series()
