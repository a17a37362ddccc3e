"""Values of interval, date and time literals."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from everfold.sql.syntax import IntervalLiteral

_MS = {"WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_BELOW = {"HOUR": 24, "MINUTE": 60, "SECOND": 60, "MONTH": 12}
_DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")
_MOST_MS = 2**63 - 1
_MOST_MONTHS = 2**31 - 1

_DATE = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d+))?", re.ASCII)


class WrongLiteral(ValueError):
    """A literal that does not have the required form; the message states the form."""


def interval_units(first: str, last: str | None) -> tuple[str, ...]:
    """Return the units from `first` to `last`; empty if there is no such interval."""
    if last is None:
        return (first,)
    for order in (_DAY_TIME, ("YEAR", "MONTH")):
        if first in order and last in order and order.index(first) < order.index(last):
            return order[order.index(first) : order.index(last) + 1]
    return ()


def interval_value(node: IntervalLiteral) -> tuple[int, bool]:
    """Return the exact value of an interval: milliseconds and False, or months and True.

    Raises WrongLiteral.
    """
    units = interval_units(node.unit, node.last)
    text = node.text.strip()
    negative = text.startswith("-")
    match = re.fullmatch(_interval_form(units), text.lstrip("+-").strip() if text[:1] in ("+", "-") else text, re.ASCII)
    if match is None:
        raise WrongLiteral(
            f"an interval of {' TO '.join(dict.fromkeys((units[0], units[-1])))} is written {_interval_example(units)}"
        )
    months = units[0] in _MONTHS
    worth = _MONTHS if months else _MS
    total = Decimal(0)
    for position, (unit, amount) in enumerate(zip(units, match.groups(), strict=True)):
        value = Decimal(amount)
        if position and value >= _BELOW[unit]:
            raise WrongLiteral(f"{unit} is at most {_BELOW[unit] - 1} after another unit, found {amount}")
        total += value * worth[unit]
    if total != int(total):
        raise WrongLiteral("an interval has at most millisecond precision")
    if total > (_MOST_MONTHS if months else _MOST_MS):
        raise WrongLiteral("the interval is too long")
    return (-int(total) if negative else int(total)), months


def _interval_form(units: tuple[str, ...]) -> str:
    between = {"MONTH": "-", "HOUR": r"\s+", "MINUTE": r"\s*:\s*", "SECOND": r"\s*:\s*"}
    form = ""
    for position, unit in enumerate(units):
        digits = r"(\d{1,18}(?:\.\d{0,9})?)" if unit == "SECOND" else r"(\d{1,18})"
        form += (between[unit] if position else "") + digits
    return form


def _interval_example(units: tuple[str, ...]) -> str:
    shown = {
        "YEAR": "1",
        "QUARTER": "1",
        "MONTH": "6",
        "WEEK": "1",
        "DAY": "1",
        "HOUR": "10",
        "MINUTE": "30",
        "SECOND": "05.5",
    }
    between = {"MONTH": "-", "HOUR": " ", "MINUTE": ":", "SECOND": ":"}
    return "'" + "".join((between[unit] if at else "") + shown[unit] for at, unit in enumerate(units)) + "'"


def normalize_temporal(kind: str, text: str) -> tuple[str, int]:
    """Return a DATE, TIME or TIMESTAMP literal in canonical form, and the digits of its fraction.

    Raises WrongLiteral.
    """
    forms = {"DATE": "yyyy-MM-dd", "TIME": "HH:mm:ss[.fraction]", "TIMESTAMP": "yyyy-MM-dd HH:mm:ss[.fraction]"}
    wrong = WrongLiteral(f"'{text}' is not a valid {kind}: expected the form {forms[kind]}")
    date, _, time = (text, "", "") if kind == "DATE" else ("", "", text) if kind == "TIME" else text.partition(" ")
    precision, parts = 0, []
    try:
        if kind != "TIME":
            if not (found := _DATE.fullmatch(date)):
                raise wrong
            parts.append(datetime.date(*(int(part) for part in found.groups())).isoformat())
        if kind == "TIMESTAMP" and not time and not text.endswith(" "):
            time = "00:00:00"
        if kind != "DATE":
            if not (found := _TIME.fullmatch(time)):
                raise wrong
            hour, minute, second, fraction = found.groups()
            parts.append(
                datetime.time(int(hour), int(minute), int(second)).isoformat() + (f".{fraction}" if fraction else "")
            )
            precision = len(fraction or "")
    except WrongLiteral:
        raise
    except ValueError as out_of_range:
        raise WrongLiteral(f"'{text}' is not a valid {kind}: {out_of_range}") from None
    return " ".join(parts), precision
