"""Hints for values that a format cannot read, where an option of the format is often missing."""

from __future__ import annotations

import re

_BAD_VALUE = re.compile(r"field `[^`]+` is not an? (?P<type>[A-Z]\w*)[^`]*: `(?P<value>[^`]*)`")
"""The reason of a bad record: a value that does not have the type of its column."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?P<separator>[T ])\d\d:\d\d(:\d\d(\.\d+)?)?(?P<zone>Z|[+-]\d\d:?\d\d)?")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{2,}={0,2}")
_IGNORE = "ignore-parse-errors"


def find_hints(reason: str, ignore_option: str | None) -> list[str]:
    """Return what may help against a bad value, besides fixing or ignoring the record.

    ignore_option: the option that ignores bad records, with the prefix of the format's options.
    """
    found = _BAD_VALUE.match(reason)
    if found is None or ignore_option is None or not ignore_option.endswith(_IGNORE):
        return []
    prefix, value = ignore_option.removesuffix(_IGNORE), found["value"]
    name = prefix.rstrip(".").rpartition(".")[2]
    if name == "csv":
        return [f"set '{prefix}null-literal' = '' to read empty fields as NULL"] if not value else []
    if found["type"] in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _hint_at_times(_TIME.fullmatch(value), found["type"], f"{prefix}timestamp-format.standard")
    is_encoded = found["type"] == "DECIMAL" and name == "debezium-json" and _BASE64.fullmatch(value)
    return ["set 'decimal.handling.mode' = 'string' in Debezium, which has encoded the number"] if is_encoded else []


def _hint_at_times(time: re.Match[str] | None, of: str, option: str) -> list[str]:
    if time is None:
        return []
    standard = "ISO-8601" if time["separator"] == "T" else "SQL"
    if (time["zone"] is not None) == (of == "TIMESTAMP_LTZ"):
        return [f"set '{option}' = '{standard}' if times are written like this"]
    if time["zone"] == "Z":
        return [f"declare TIMESTAMP_LTZ, and set '{option}' = '{standard}' if times are written like this"]
    return []
