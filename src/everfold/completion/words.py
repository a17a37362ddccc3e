"""Words of SQL that is still being typed: it may end in the middle of a string or a comment.

The parser's tokens (`sql.dialects.tokens`) are those of complete scripts; here, nothing is an
error.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from everfold.sql.dialects.tokens import Part


class Kind(Enum):
    """The kind of a word."""

    WORD = "word"
    STRING = "string"
    QUOTED = "quoted"
    """A name in backticks."""
    NUMBER = "number"
    SYMBOL = "symbol"
    COMMENT = "comment"
    SPACE = "space"


class Word(NamedTuple):
    """A word as it is written, with quotes.

    key: a word in capitals, a symbol as it is, else `""`. is_open: its end is missing.
    """

    kind: Kind
    text: str
    key: str
    start: int
    is_open: bool

    @property
    def content(self) -> str:
        """The word without its quotes."""
        if self.kind not in (Kind.STRING, Kind.QUOTED):
            return self.text
        quote = self.text[0]
        inner = self.text[1:] if self.is_open else self.text[1:-1]
        return inner.replace(quote * 2, quote)


_WORD = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>(?:--|//)[^\n]*|/\*(?!\+).*?(?:\*/|\Z))
  | (?P<string>'(?:[^']|'')*(?:'|\Z))
  | (?P<quoted>`(?:[^`]|``)*(?:`|\Z))
  | (?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)
  | (?P<word>[^\W0-9][\w$]*)
  | (?P<symbol>/\*\+|\*/|=>|<>|<=|>=|!=|\|\||.)
    """,
    re.VERBOSE | re.DOTALL,
)


def split_words(text: str) -> list[Word]:
    """Split a text into words, with comments and space. Their texts are the whole text."""
    found = []
    for match in _WORD.finditer(text):
        kind, part = Kind(match.lastgroup), match.group()
        key = part.upper() if kind is Kind.WORD else part if kind is Kind.SYMBOL else ""
        found.append(Word(kind, part, key, match.start(), _is_open(kind, part)))
    return found


def split_sql(text: str) -> list[Word]:
    """Split a text into words, without comments and space."""
    return [each for each in split_words(text) if each.kind not in (Kind.COMMENT, Kind.SPACE)]


def _is_open(kind: Kind, text: str) -> bool:
    match kind:
        case Kind.STRING | Kind.QUOTED:
            return text.count(text[0]) % 2 == 1
        case Kind.COMMENT:
            return text.startswith("/*") and (len(text) < 4 or not text.endswith("*/"))
        case _:
            return False


def is_complete(text: str) -> bool:
    """Return whether a text is complete SQL: it ends with `;`, and all that it opens is closed.

    A statement set contains `;`, and ends with `END;`.
    """
    words = split_sql(text)
    if not words or words[-1].key != ";" or any(each.is_open for each in split_words(text)):
        return False
    keys = [each.key for each in words]
    opened = 0
    for at, key in enumerate(keys):
        # CASE … END is inside of a statement set, too.
        if key in ("CASE", "BEGIN"):
            opened += 1
        elif key == "END" and (at == 0 or keys[at - 1] != "."):
            opened -= 1
    return opened <= 0


def split_statements(text: str) -> list[Part]:
    """Return the range of each statement, with its `;`. A statement set is one statement."""
    found: list[Part] = []
    words = split_sql(text)
    start, is_set = 0, False
    for at, word in enumerate(words):
        before = [each.key for each in words[max(0, at - 2) : at + 1]]
        is_set = is_set or before == ["STATEMENT", "SET", "BEGIN"] or before == ["BEGIN", "STATEMENT", "SET"]
        if word.key == ";" and not (is_set and words[at - 1].key != "END"):
            found.append(Part(start, word.start + 1))
            start, is_set = word.start + 1, False
    if text[start:].strip():
        found.append(Part(start, len(text)))
    return found


def last_statement(words: list[Word]) -> list[Word]:
    """Return the words of the last statement of a text, which may be incomplete."""
    ends = [at for at, each in enumerate(words) if each.key == ";"]
    return words[ends[-1] + 1 :] if ends else words
