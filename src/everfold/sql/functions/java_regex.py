"""Calls of functions that apply a Java pattern to data on Spark, bounded in time and memory.

Java's engine recurses for each repetition of a group, which overflows the stack of a task and ends
the JVM, and backtracks, which can take exponential time. Patterns that repeat something are
therefore given to everfold's own functions (`spark/RegexFunctions.java`). They use the same engine,
count its steps, and fail with `regex-too-costly`.
"""

from __future__ import annotations

import re

from everfold.sql.functions.writer import Writer

PREFIX = "everfold_"
"""Start of the names of the functions."""
_REPEATS = re.compile(r"[*+{]|\\[1-9k]")
"""What a pattern has that repeats something, or refers to a group."""
_MAX_FIXED_CHARS = 200
"""A longer pattern could recurse deeply by itself."""


def find_sql(writer: Writer, text: str, regex: str, pattern: str | None) -> str:
    """Return SQL that tests whether a pattern matches anywhere in a string.

    pattern: the value of `regex` if it is a constant.
    """
    if is_fixed(pattern):
        return f"({text} RLIKE {regex})"
    return _call(writer, "regexp_find", text, regex)


def position_sql(writer: Writer, text: str, regex: str, pattern: str | None) -> str:
    """Return SQL of the position of the first match, from 1, or 0."""
    if is_fixed(pattern):
        return f"regexp_instr({text}, {regex})"
    return _call(writer, "regexp_position", text, regex)


def extract_sql(writer: Writer, text: str, regex: str, group: str, pattern: str | None) -> str:
    """Return SQL of a group of the first match, or ''."""
    if is_fixed(pattern):
        return f"regexp_extract({text}, {regex}, {group})"
    return _call(writer, "regexp_extract", text, regex, group)


def extract_all_sql(writer: Writer, text: str, regex: str, group: str, pattern: str | None) -> str:
    """Return SQL of the array of a group of every match."""
    if is_fixed(pattern):
        return f"regexp_extract_all({text}, {regex}, {group})"
    return _call(writer, "regexp_extract_all", text, regex, group)


def replace_sql(writer: Writer, text: str, regex: str, by: str) -> str:
    """Return SQL that replaces every match by a literal string."""
    return _call(writer, "regexp_replace", text, regex, by)


def split_sql(writer: Writer, text: str, regex: str, limit: int, pattern: str | None) -> str:
    """Return SQL of the parts of a string between matches. limit: their number, -1 for all."""
    builtin = f"split({text}, {regex}, {limit})"
    if is_fixed(pattern):
        return builtin
    # For Spark, an empty pattern separates characters.
    return f"CASE WHEN {regex} = '' THEN {builtin} ELSE {_call(writer, 'regexp_split', text, regex, str(limit))} END"


def is_valid_sql(regex: str) -> str:
    """Return SQL that tests whether a string is a pattern of Java."""
    return f"{PREFIX}regexp_is_valid({regex})"


def like_sql(writer: Writer, text: str, pattern: str, escape: str | None) -> str:
    """Return SQL of LIKE in linear time, where `_` is not the end of a line."""
    return _call(writer, "like", text, pattern, writer.text(escape or ""))


def is_fixed(pattern: str | None) -> bool:
    """Return whether a pattern takes a fixed number of steps at each position of a string."""
    return pattern is not None and len(pattern) <= _MAX_FIXED_CHARS and _REPEATS.search(pattern) is None


def _call(writer: Writer, name: str, *arguments: str) -> str:
    return f"{PREFIX}{name}({', '.join(arguments)}, {writer.text(writer.describe_position())})"
