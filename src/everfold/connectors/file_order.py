"""The order of the files of a batch: the oldest first, files of the same age by their paths.

Spark reads the largest files first, in several tasks. So each row says which file it is from, and
an operator that depends on the order of rows sorts them by that.
"""

from __future__ import annotations

FILE = "__file"
"""Column of the frame of a source of files: digits of the modification time of a row's file in ms,
and its path, STRING. The file that is read first has the smallest string.
"""
_TIME_DIGITS = 20


def file_order_sql(changed: str, path: str) -> str:
    """Return Spark SQL of the column `FILE`. changed: the modification time."""
    return f"concat(lpad(greatest(unix_millis({changed}), 0), {_TIME_DIGITS}, '0'), {path})"


def path_of(file: str) -> str:
    """Return the path in a value of the column `FILE`."""
    return file[_TIME_DIGITS:]
