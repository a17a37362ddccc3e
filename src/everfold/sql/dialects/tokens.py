"""Scanner of Flink SQL: words, quoted names, strings, numbers and symbols with exact positions.

Comments are dropped, hints are kept. Unlike sqlglot's scanner, this one has no keywords: a word is
a keyword only where the grammar expects one, so `user` or `value` may name a column. It also
reports where an unterminated quote or comment starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from everfold.errors import EverfoldError, Span, SqlError
from everfold.limits import MAX_CHARACTERS, MAX_TOKENS, too_complex_error

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
"""A number directly followed by letters: `10m`."""

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
    "'": "unterminated string literal",
    "`": "unterminated name: the closing backtick is missing",
    "/*": "unterminated comment: the closing `*/` is missing",
}

MAX_NUMBER = 1000
"""Maximum characters of a number: more than any type holds, and below Python's own limit."""

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class FlinkTokenizer(Tokenizer):
    """Flink's scanner for sqlglot's own tools."""

    def tokenize(self, sql: str) -> list[Token]:
        """Return the tokens of `sql`; errors name the source `<sql>`."""
        return scan(sql, "<sql>")


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
                "wrong-literal", f"a number has at most {MAX_NUMBER} characters", Span(at, end, source, text)
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
                raise unpaired_surrogate_error(Span(at, end, source, text)) from None
            if len(tokens) == MAX_TOKENS:
                what = "it has more words, symbols and values"
                raise too_complex_error(what, MAX_TOKENS, Span(at, end, source, text), "split it into several scripts")
            tokens.append(Token(token_type, content, line, at - line_start + 1, at, end - 1))
        if newlines := raw.count("\n"):
            line += newlines
            line_start = at + raw.rfind("\n") + 1
        at = end
    if hint_at >= 0:
        raise SqlError.of(
            "syntax", "unterminated hint: the closing `*/` is missing", Span(hint_at, hint_at + 3, source, text)
        )
    return tokens


def _content(kind: str, raw: str) -> str:
    match kind:
        case "text":
            return raw[1:-1].replace("''", "'")
        case "quoted":
            return raw[1:-1].replace("``", "`")
        case "escaped":
            return combine_surrogates(_ESCAPE.sub(_unescape, raw[2:-1].replace("''", "'")))
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
