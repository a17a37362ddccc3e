"""Choose the keys that a batch touches: the loads under which state is measured.

`uniform`: any of the keys, none twice. `recent`: drawn from the newest keys, four times as many as
are drawn; every batch adds a fifth as many new keys as it draws. `zipf`: drawn with exponent 1.1.
`grow`: new keys only. The same seed makes the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Keys: TypeAlias = npt.NDArray[np.int64]
LOADS = ("uniform", "recent", "zipf", "grow")
_WINDOW, _NEW, _EXPONENT = 4, 0.2, 1.1


def batches(load: str, keys: int, draws: int, seed: int = 1) -> Iterator[Keys]:
    """Yield the draws of one batch after another, over existing keys 0 to `keys` - 1."""
    random = np.random.default_rng((seed, LOADS.index(load)))
    total = np.empty(0)
    if load == "zipf":
        total = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -_EXPONENT)
        total /= total[-1]
    while True:
        if load == "uniform":
            yield random.choice(keys, draws, replace=False) if draws < keys else random.permutation(keys)
        elif load == "recent":
            keys += int(draws * _NEW)
            yield random.integers(keys - _WINDOW * draws, keys, draws)
        elif load == "zipf":
            yield total.searchsorted(random.random(draws)).astype(np.int64)
        else:
            yield np.arange(keys, keys + draws)
            keys += draws
