"""The order of the files of a batch: the oldest first, files of the same age by their paths.

Spark reads the largest files first, in several tasks. So each row says which file it is from, and
an operator that depends on the order of rows sorts them by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.engine_literals import spark_string

if TYPE_CHECKING:
    import polars as pl

FILE = "__file"
"""Column of the frame of a source of files: digits of the modification time of a row's file in ms,
and its path, STRING. The file that is read first has the smallest string.
"""
_TIME_DIGITS = 20


def file_order_sql(changed: str, path: str) -> str:
    """Return Spark SQL of the column `FILE`. changed: the modification time."""
    return f"concat(lpad(greatest(unix_millis({changed}), 0), {_TIME_DIGITS}, '0'), {path})"


def file_path_sql(copies: Path | None = None) -> str:
    """Return Spark SQL of the path of a row's file, from its URI.

    copies: a folder with copies of files, each at the path of its file below it.
    """
    path = "regexp_replace(url_decode(replace(_metadata.file_path, '+', '%2B')), '^file:/+', '/')"
    if copies is None:
        return path
    start = spark_string(f"{copies}/")
    return f"CASE WHEN startswith({path}, {start}) THEN substring({path}, length({start})) ELSE {path} END"


def path_of(file: str) -> str:
    """Return the path in a value of the column `FILE`."""
    return file[_TIME_DIGITS:]


def modified_ms_of(file: str) -> int:
    """Return the modification time in a value of the column `FILE`, in ms."""
    return int(file[:_TIME_DIGITS])


def number_by_file(files: Sequence[tuple[str, int]], shift: int) -> Callable[[pl.Series], pl.Series] | None:
    """Return a function that replaces arrival numbers by those in the order of files; None if they
    are in this order.

    files: values of the column `FILE`, each with the arrival number of the first row from there on.
    shift: the bits that the numbers of the rows of a file need.
    """
    import numpy as np
    import polars as pl

    firsts = [first for _, first in sorted((file, first) for file, first in files)]
    if firsts == sorted(firsts):
        return None
    shifts = {first: (rank << shift) - first for rank, first in enumerate(firsts)}
    starts = np.array(sorted(shifts))
    moves = np.array([shifts[first] for first in starts])

    def number(arrived: pl.Series) -> pl.Series:
        numbers = arrived.to_numpy()
        return pl.Series(arrived.name, numbers + moves[np.searchsorted(starts, numbers, "right") - 1])

    return number
