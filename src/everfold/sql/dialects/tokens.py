"""Flink's tokens: words, quoted names, texts, numbers and signs, each with its exact place; comments vanish, hints do not.

Unlike sqlglot's own scanner it knows no keywords (a word becomes one only where the grammar wants it), so `user` or `value` may name
a column, and it says where a quote or a comment that never ends was opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from everfold.errors import EverfoldError, Span, SqlError
from everfold.limits import MAX_CHARACTERS, MAX_TOKENS, too_complex

_PATTERN = re.compile(
    r"""
    (?P<space>[\s\ufeff]+)
  | (?P<comment>(?:--|//)[^\n]*)
  | (?P<hint>/\*\+)
  | (?P<block>/\*.*?\*/)
  | (?P<unicode>[uU]&'(?:[^']|'')*')
  | (?P<hex>[xX]'[^']*')
  | (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
  | (?P<text>'(?:[^']|'')*')
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<word>(?![uU]&'|[xXeE]')(?:[^\W0-9]|\$(?!\{))[\w$]*)
  | (?P<sign>=>|<>|<=|>=|!=|\|\||/(?!\*)|[-()\[\],.;:+*%<>=])
    """,
    re.VERBOSE | re.DOTALL,
)

_MEASURE = re.compile(r"[0-9]+(?![eE][0-9+-])[^\W0-9][\w$]*")
"""A number and letters without a space between them: `10m`."""

_BEGINS_A_NAME = re.compile(r"[^\W0-9]")

_TYPES = {
    "hint": TokenType.HINT,
    "unicode": TokenType.UNICODE_STRING,
    "hex": TokenType.HEX_STRING,
    "escaped": TokenType.STRING,
    "text": TokenType.STRING,
    "quoted": TokenType.IDENTIFIER,
    "number": TokenType.NUMBER,
    "word": TokenType.VAR,
    "measure": TokenType.INTERVAL,
}

_SIGNS = {
    "=>": TokenType.FARROW,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "||": TokenType.DPIPE,
    "*/": TokenType.HINT,
    "(": TokenType.L_PAREN,
    ")": TokenType.R_PAREN,
    "[": TokenType.L_BRACKET,
    "]": TokenType.R_BRACKET,
    ",": TokenType.COMMA,
    ".": TokenType.DOT,
    ";": TokenType.SEMICOLON,
    ":": TokenType.COLON,
    "+": TokenType.PLUS,
    "-": TokenType.DASH,
    "*": TokenType.STAR,
    "/": TokenType.SLASH,
    "%": TokenType.MOD,
    "<": TokenType.LT,
    ">": TokenType.GT,
    "=": TokenType.EQ,
}

_OPENERS = {
    "'": "this text has no closing quote",
    "`": "this name has no closing backtick",
    "/*": "this comment has no closing `*/`",
}

MAX_NUMBER = 1000
"""Characters of a number: far more than any type holds, and few enough for Python's own limit."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class FlinkTokenizer(Tokenizer):
    """Scans Flink's SQL."""

    def tokenize(self, sql: str) -> list[Token]:
        """The tokens of a text; an error speaks of the text as `<sql>`."""
        return scan(sql, "<sql>")


@dataclass(frozen=True, slots=True)
class Part:
    """From where to where a text is read, in characters; the end is exclusive."""

    start: int
    end: int

    @classmethod
    def whole(cls, text: str) -> Part:
        """All of a text."""
        return cls(0, len(text))


def scan(text: str, source: str, part: Part | None = None, *, measures: bool = False) -> list[Token]:
    """The tokens of a script, or of a part of it. Quotes are off and escapes undone, except in `U&'…'`, whose escape character may follow it.

    measures: a number may have letters behind it (`10m`), or a dot and a name; else that is a name that begins with a digit, and an error.
    """
    part = part or Part.whole(text)
    if len(text) > MAX_CHARACTERS:
        raise too_complex(f"it has {len(text):,} characters", MAX_CHARACTERS, None, "make several scripts of it")
    half = _HALF.search(text, part.start, part.end)
    if half is not None:
        raise half_a_character(Span(half.start(), half.end(), source, text))
    tokens: list[Token] = []
    at, hint_at = part.start, -1
    line, line_start = text.count("\n", 0, at) + 1, text.rfind("\n", 0, at) + 1
    while at < part.end:
        if hint_at >= 0 and text.startswith("*/", at):
            kind, raw, hint_at = "sign", "*/", -1
        else:
            match = _PATTERN.match(text, at)
            if match is None:
                raise _unreadable(text, at, source)
            kind, raw = str(match.lastgroup), match.group()
            if kind == "hint":
                hint_at = at
            if measures and (measure := _MEASURE.match(text, at)) is not None:
                kind, raw = "measure", measure.group()
            elif measures and kind == "number" and raw[-1] == "." and _BEGINS_A_NAME.match(text, at + len(raw)):
                raw = raw[:-1]
        end = at + len(raw)
        if kind == "number" and len(raw) > MAX_NUMBER:
            raise SqlError.of(
                "wrong-literal", f"a number has {MAX_NUMBER} characters at most", Span(at, end, source, text)
            )
        if kind not in ("space", "comment", "block"):
            if kind == "number" and end < len(text) and (text[end].isalnum() or text[end] == "_"):
                raise SqlError.of(
                    "syntax",
                    "a name does not start with a digit",
                    Span(at, end + 1, source, text),
                    "put it into backticks",
                )
            token_type = _SIGNS[raw] if kind == "sign" else _TYPES[kind]
            try:
                content = _content(kind, raw)
            except UnicodeDecodeError:
                raise half_a_character(Span(at, end, source, text)) from None
            if len(tokens) == MAX_TOKENS:
                what = "it has more words, signs and values"
                raise too_complex(what, MAX_TOKENS, Span(at, end, source, text), "make several scripts of it")
            tokens.append(Token(token_type, content, line, at - line_start + 1, at, end - 1))
        if newlines := raw.count("\n"):
            line += newlines
            line_start = at + raw.rfind("\n") + 1
        at = end
    if hint_at >= 0:
        raise SqlError.of("syntax", "this hint has no closing `*/`", Span(hint_at, hint_at + 3, source, text))
    return tokens


def _content(kind: str, raw: str) -> str:
    match kind:
        case "text":
            return raw[1:-1].replace("''", "'")
        case "quoted":
            return raw[1:-1].replace("``", "`")
        case "escaped":
            return whole_characters(_ESCAPE.sub(_unescape, raw[2:-1].replace("''", "'")))
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


def whole_characters(text: str) -> str:
    """The text with pairs of escaped UTF-16 units (`\\ud83d\\ude00`) as the characters they mean; UnicodeDecodeError for one alone."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def half_a_character(span: Span) -> EverfoldError:
    """The error of an escape that is one unit of a pair, without the other."""
    message = "a UTF-16 unit between \\d800 and \\dfff is half a character"
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
            'found `"`, which quotes nothing here',
            span,
            "texts are in single quotes ('a'), names in backticks (`a`)",
        )
    if text.startswith("${", at):
        return SqlError.of(
            "syntax",
            "a variable stands outside a text",
            span,
            "`${name}` works inside the texts of WITH (…), of OPTIONS (…) and of SET",
        )
    return SqlError.of("syntax", f"found {found!r}, which means nothing in SQL", span)
