"""Translate Java's date patterns (`yyyy-MM-dd HH:mm:ss`) to DuckDB.

Spark reads them itself, except for a few letters.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
SPARK_UNSUPPORTED_LETTERS = frozenset("wWYuecABNpqLzZVOXx")
"""Letters that Spark's formatter does not support, and those of a zone, which a TIMESTAMP lacks."""

_FORMAT = {
    "yyyy": "%Y", "y": "%Y", "uuuu": "%Y", "u": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B",
    "dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M",
    "ss": "%S", "s": "%-S", "SSS": "%g", "SSSSSS": "%f", "a": "%p", "E": "%a", "EE": "%a", "EEE": "%a", "EEEE": "%A",
}  # fmt: skip
_COMPUTED = {
    "S": "left(strftime({w}, '%g'), 1)",
    "SS": "left(strftime({w}, '%g'), 2)",
    "Q": "CAST(quarter({w}) AS VARCHAR)",
    "k": "CAST((hour({w}) + 23) % 24 + 1 AS VARCHAR)",
    "K": "CAST(hour({w}) % 12 AS VARCHAR)",
    "e": "CAST(dayofweek({w}) + 1 AS VARCHAR)",
}


def split_pattern(pattern: str) -> list[str]:
    """Split a pattern into runs of a letter, quoted strings and everything else.

    Raises ValueError for an unterminated quote.
    """
    parts, at = [], 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise ValueError(pattern)
        parts.append(match.group())
        at = match.end()
    return parts


def _plain(token: str) -> str | None:
    """Return the literal characters of a token; None for a pattern letter."""
    if token.startswith("'"):
        return token[1:-1].replace("''", "'") or "'"
    return None if token[0].isalpha() else token


def strftime_sql(pattern: str, wall: str) -> str | None:
    """Return DuckDB SQL that formats a TIMESTAMP; None if a pattern letter is unsupported."""
    pieces: list[str] = []
    words = ""

    def flush() -> None:
        nonlocal words
        if words:
            pieces.append(f"strftime({wall}, '{words}')")
            words = ""

    for token in split_pattern(pattern):
        plain = _plain(token)
        if plain is not None:
            words += plain.replace("%", "%%").replace("'", "''")
        elif token in _FORMAT:
            words += _FORMAT[token]
        elif token in _COMPUTED:
            flush()
            pieces.append(_COMPUTED[token].format(w=wall))
        else:
            return None
    flush()
    return "(" + " || ".join(pieces or [f"strftime({wall}, '')"]) + ")"


def strptime_format(pattern: str) -> str | None:
    """Return the pattern for DuckDB's `strptime`; None if a pattern letter is unsupported."""
    words = ""
    for token in split_pattern(pattern):
        plain = _plain(token)
        if plain is not None:
            words += plain.replace("%", "%%")
        elif token in _FORMAT:
            words += _FORMAT[token]
        else:
            return None
    return words


def find_spark_unsupported(pattern: str) -> str | None:
    """Return the first letter of a pattern that Spark does not support, or None."""
    return next(
        (token[0] for token in split_pattern(pattern) if token[0] in SPARK_UNSUPPORTED_LETTERS and token[0].isalpha()),
        None,
    )
