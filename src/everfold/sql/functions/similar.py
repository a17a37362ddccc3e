"""Patterns of SIMILAR TO and LIKE as regular expressions.

`_` and `.` are any character except the end of a line, `%` is any text. `$` and a backslash stand
for themselves. Source: flink 2.3 through `tests/cases/expressions`.

A pattern has one form in plans and in the state of jobs, `^(?:…)$`, from which that of an engine is
made.
"""

from __future__ import annotations

import re

from everfold.sql.functions.cast_from_text import matches
from everfold.sql.functions.writer import Writer

_SPECIAL = frozenset("[]()|^-+*_%?{}")
"""Characters with a meaning in SQL patterns, which ESCAPE takes away."""
_ESCAPED_IN_REGEX = frozenset("[]()|^-+*?{}")
_CLASSES = {
    "ALPHA": "a-zA-Z",
    "UPPER": "A-Z",
    "LOWER": "a-z",
    "DIGIT": "0-9",
    "SPACE": " ",
    "WHITESPACE": r" \t\n\x0B\f\r",
    "ALNUM": "a-zA-Z0-9",
}
_CLASS = re.compile(r"\[:(\w+):\]")
_ANY, _ANY_TEXT = "(?s:.)", "(?s:.*)"
LINE_END = r"[\n\r\x{85}\x{2028}\x{2029}]"
NO_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
"""What `.` is in Java."""


def translate_similar(pattern: str, escape: str | None = None) -> str:
    """Return the regular expression of a pattern of SIMILAR TO.

    Raises ValueError for an invalid pattern or escape character.
    """
    if escape is not None and len(escape) != 1:
        raise ValueError(f"the escape character '{escape}' is not a single character")
    parts, position, is_enumeration = [], 0, False
    while position < len(pattern):
        char = pattern[position]
        if char == escape:
            position += 1
            parts.append(_escape(pattern, position, escape))
        elif is_enumeration:
            text, position = _translate_enumerated(pattern, position)
            parts.append(text)
            is_enumeration = char != "]"
        elif char == "]":
            raise ValueError(f"`]` without `[` in the pattern '{pattern}'")
        else:
            is_enumeration = char == "["
            parts.append({"%": _ANY_TEXT, "_": _ANY, "$": r"\$", "\\": r"\\"}.get(char, char))
        position += 1
    if is_enumeration:
        raise ValueError(f"`[` without `]` in the pattern '{pattern}'")
    return f"^(?:{''.join(parts)})$"


def translate_like(pattern: str, escape: str | None, *, always: bool = False) -> str | None:
    """Return the regular expression of a pattern of LIKE if it has `_`, or always.

    None also for a pattern whose escape character does not precede one that it can escape.
    """
    parts, position, is_needed = [], 0, always
    while position < len(pattern):
        char = pattern[position]
        if char == escape:
            position += 1
            if pattern[position : position + 1] not in ("%", "_", escape):
                return None
            parts.append(re.escape(pattern[position]))
        else:
            is_needed |= char == "_"
            parts.append({"%": _ANY_TEXT, "_": _ANY}.get(char) or re.escape(char))
        position += 1
    return f"^(?:{''.join(parts)})$" if is_needed else None


def _escape(pattern: str, position: int, escape: str) -> str:
    char = pattern[position : position + 1]
    if not char or (char not in _SPECIAL and char != escape):
        raise ValueError(f"the escape character does not precede a special character in the pattern '{pattern}'")
    return f"\\{char}" if char in _ESCAPED_IN_REGEX else char


def _translate_enumerated(pattern: str, position: int) -> tuple[str, int]:
    """Return the regular expression of a character in `[…]`, and the position of its end."""
    char = pattern[position]
    named = _CLASS.match(pattern, position)
    if named is not None and named[1].upper() in _CLASSES and named[1] in (named[1].upper(), named[1].lower()):
        return _CLASSES[named[1].upper()], named.end() - 1
    if char == "]" and pattern[position - 1] != "[":
        return char, position
    if char in _SPECIAL - set("^-"):
        raise ValueError(f"`{char}` in `[…]` in the pattern '{pattern}'")
    return (f"\\{char}" if char == "\\" else char), position


def matches_whole(writer: Writer, text: str, pattern: str) -> str:
    """Return SQL that tests whether a whole string matches a translated pattern."""
    return matches(writer, text, to_java(pattern) if writer.spark else to_re2(pattern))


def to_java(pattern: str) -> str:
    """Return a translated pattern as one of Java that matches whole strings."""
    return rf"^(?:{_body(pattern).replace(_ANY, '.')})\z"


def to_re2(pattern: str) -> str:
    """Return a translated pattern as one of RE2 that matches whole strings."""
    body = _body(pattern).replace(_ANY, ".")
    tokens = re.findall(r"\(\?s:\.\*\)|\\.|\[(?:\\.|[^\]\\])*\]|.", body, re.S)
    return rf"^(?:{''.join(NO_LINE_END if token == '.' else token for token in tokens)})\z"


def _body(pattern: str) -> str:
    return pattern.removeprefix("^(?:").removesuffix(")$")
