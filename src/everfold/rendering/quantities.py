"""Counts, sizes, times and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def format_count(number: int, what: str = "row") -> str:
    """Return a count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_instant(ms: int) -> str:
    """Return a time in UTC."""
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return "at the end"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def format_span(ms: int) -> str:
    """Return a duration in a readable unit."""
    for unit, size, digits in (("d", 86_400_000, 0), ("h", 3_600_000, 1), ("min", 60_000, 1)):
        if abs(ms) >= 2 * size:
            return f"{ms / size:,.{digits}f} {unit}"
    return f"{ms / 1000:.1f} s"


def format_bytes(size: float) -> str:
    """Return a size in a readable unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
