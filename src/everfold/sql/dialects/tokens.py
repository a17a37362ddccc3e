"""Tokens of SQL: words, quoted names, strings, numbers and symbols with exact positions.

Comments are dropped, hints are kept. There are no keywords: a word is a keyword only where the
grammar expects one, so `user` or `value` may name a column. An unterminated quote or comment is
reported where it starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from everfold.errors import EverfoldError, Span, SqlError
from everfold.limits import MAX_CHARACTERS, MAX_TOKENS, too_complex_error


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    QUOTED = "quoted"
    """A name in backticks."""
    STRING = "string"
    UNICODE = "unicode"
    """A string `U&'…'`."""
    HEX = "hex"
    NUMBER = "number"
    MEASURE = "measure"
    """A number directly followed by letters: `10m`."""
    SYMBOL = "symbol"


class Token(NamedTuple):
    """A token: `text` is its content, without quotes; `end` is exclusive.

    `key` is what the grammar compares: a word in capitals, a symbol as it is, `""` for quoted
    names, strings and numbers.
    """

    kind: TokenKind
    text: str
    key: str
    start: int
    end: int


_TOKEN = r"""
    (?:[\s\ufeff]+|(?:--|//)[^\n]*+|/\*(?!\+).*?\*/)*+
    (?: (?P<word>(?![uU]&'|[xXeE]')(?:[^\W0-9]|\$(?!\{{))[\w$]*+)
      | (?P<symbol>=>|<>|<=|>=|!=|\|\||/\*\+|\*/|/(?!\*)|[-()\[\],;:+*%<>=]|\.(?![0-9]))
      | {number}
      | (?P<string>'[^']*+(?:''[^']*+)*+')
      | (?P<quoted>`[^`]*+(?:``[^`]*+)*+`)
      | (?P<unicode>[uU]&'[^']*+(?:''[^']*+)*+')
      | (?P<hex>[xX]'[^']*+')
      | (?P<escaped>[eE]'(?:[^'\\]++|''|\\.)*+')
    )?
"""
_NUMBER = r"(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_NUMBER_OR_MEASURE = r"""(?P<measure>[0-9]++(?![eE][0-9+-])[^\W0-9][\w$]*+)
      | (?P<number>(?:[0-9]+(?:\.[0-9]+|\.(?=[eE][+-]?[0-9])|\.(?![^\W0-9]))?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"""
_FLINK, _LENSES = (
    re.compile(_TOKEN.format(number=number), re.VERBOSE | re.DOTALL) for number in (_NUMBER, _NUMBER_OR_MEASURE)
)
_KINDS = {kind.value: kind for kind in TokenKind} | {"escaped": TokenKind.STRING}
"""The kind of token of each group of the regular expressions."""

_OPENERS = {
    "'": "unterminated string literal",
    "`": "unterminated name: the closing backtick is missing",
    "/*": "unterminated comment: the closing `*/` is missing",
}

MAX_NUMBER = 1000
"""Maximum characters of a number: more than any type holds, and below Python's own limit."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Part:
    """The range of a text to scan, in characters; the end is exclusive."""

    start: int
    end: int

    @classmethod
    def whole(cls, text: str) -> Part:
        """Return the range of a whole text."""
        return cls(0, len(text))


def scan(text: str, source: str, part: Part | None = None, *, measures: bool = False) -> list[Token]:
    """Return the tokens of a script or of a part of it.

    Quotes are removed and escapes resolved, except in `U&'…'`, because its escape character may
    follow it.

    measures: a number may be followed by letters (`10m`), or by a dot and a name. Otherwise that is
    an error: a name that starts with a digit.
    """
    part = part or Part.whole(text)
    if len(text) > MAX_CHARACTERS:
        raise too_complex_error(
            f"it has {len(text):,} characters", MAX_CHARACTERS, None, "split it into several scripts"
        )
    surrogate = _SURROGATE.search(text, part.start, part.end)
    if surrogate is not None:
        raise unpaired_surrogate_error(Span(surrogate.start(), surrogate.end(), source, text))
    match_token = (_LENSES if measures else _FLINK).match
    tokens: list[Token] = []
    end, hint = part.start, None
    while (match := match_token(text, end, part.end)) is not None and (group := match.lastgroup) is not None:
        kind, raw = _KINDS[group], match[group]
        start, end = match.span(group)
        if kind is TokenKind.WORD:
            content, key = raw, raw.upper()
        elif kind is TokenKind.SYMBOL:
            if raw == "/*+":
                hint = Span(start, end, source, text)
            elif raw == "*/":
                if hint is None:  # `SELECT */* all columns */`
                    raw, end = "*", start + 1
                hint = None
            content = key = raw
        else:
            if kind is TokenKind.NUMBER:
                _check_number(text, start, end, source)
            content, key = _decode(group, raw, Span(start, end, source, text)), ""
        if len(tokens) == MAX_TOKENS:
            what = "it has more words, symbols and values"
            raise too_complex_error(what, MAX_TOKENS, Span(start, end, source, text), "split it into several scripts")
        tokens.append(Token(kind, content, key, start, end))
    assert match is not None
    if match.end() < part.end:
        raise _unreadable(text, match.end(), source)
    if hint is not None:
        raise SqlError.of("syntax", "unterminated hint: the closing `*/` is missing", hint)
    return tokens


def _check_number(text: str, start: int, end: int, source: str) -> None:
    if end - start > MAX_NUMBER:
        message = f"a number has at most {MAX_NUMBER} characters"
        raise SqlError.of("wrong-literal", message, Span(start, end, source, text))
    if end < len(text) and (text[end].isalnum() or text[end] == "_"):
        span = Span(start, end + 1, source, text)
        raise SqlError.of("syntax", "a name does not start with a digit", span, "put it into backticks")


def _decode(group: str, raw: str, span: Span) -> str:
    """Return the content of a string, a number or a name in backticks."""
    match group:
        case "string":
            return raw[1:-1].replace("''", "'")
        case "quoted":
            return raw[1:-1].replace("``", "`")
        case "escaped":
            try:
                return combine_surrogates(_ESCAPE.sub(_unescape, raw[2:-1].replace("''", "'")))
            except UnicodeDecodeError:
                raise unpaired_surrogate_error(span) from None
        case "unicode":
            return raw[3:-1].replace("''", "'")
        case "hex":
            return raw[2:-1]
        case _:
            return raw


def _unescape(match: re.Match[str]) -> str:
    wide, hexadecimal, octal, plain = match.groups()
    if plain is not None:
        return _ESCAPED.get(plain, plain)
    return chr(int(octal, 8) if octal else int(wide or hexadecimal, 16))


def combine_surrogates(text: str) -> str:
    """Combine escaped surrogate pairs (`\\ud83d\\ude00`) into the characters they encode.

    Raises UnicodeDecodeError for an unpaired surrogate.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def unpaired_surrogate_error(span: Span) -> EverfoldError:
    """Return the error for an escape that is an unpaired UTF-16 surrogate."""
    message = "an unpaired UTF-16 surrogate (\\d800 to \\dfff) is not a character"
    return SqlError.of("wrong-literal", message, span, "write the pair: U&'\\d83d\\de00'")


def _unreadable(text: str, at: int, source: str) -> EverfoldError:
    for opener, message in _OPENERS.items():
        for prefix in ("", "U&", "X", "E"):
            if text[at : at + len(prefix) + len(opener)].upper() == prefix + opener:
                return SqlError.of("syntax", message, Span(at, at + len(prefix) + len(opener), source, text))
    found = text[at]
    span = Span(at, at + 1, source, text)
    if found == '"':
        return SqlError.of(
            "syntax",
            "double quotes are not supported",
            span,
            "put strings in single quotes ('a') and names in backticks (`a`)",
        )
    if text.startswith("${", at):
        return SqlError.of(
            "syntax",
            "a variable can only be used inside a string literal",
            span,
            "`${name}` is replaced in the strings of WITH (…), OPTIONS (…) and SET",
        )
    shown = f"`{found}`" if found.isprintable() else repr(found)
    return SqlError.of("syntax", f"unexpected character {shown}", span)
