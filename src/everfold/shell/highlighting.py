"""Colors of SQL while it is typed, from the registries of keywords, types and functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, String, Text, _TokenType

from everfold.completion.words import Kind, Word, split_words

_TYPES = {
    Kind.SPACE: Text.Whitespace,
    Kind.COMMENT: Comment,
    Kind.STRING: String.Single,
    Kind.QUOTED: Name,
    Kind.NUMBER: Number,
    Kind.SYMBOL: Operator,
}


@cache
def _names() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the keywords, the names of types, and those of functions."""
    from everfold.aggregates import registry as aggregates
    from everfold.sql.dialects.keywords import KEYWORDS
    from everfold.sql.dialects.types import TYPE_NAMES
    from everfold.sql.functions import registry as functions

    called = (*aggregates.names(), *aggregates.names("lenses"), *aggregates.window_function_names(), *functions.names())
    return KEYWORDS, frozenset(TYPE_NAMES), frozenset(called)


class EverfoldLexer(Lexer):  # type: ignore[misc] # Pygments has no types
    """A Pygments lexer for everfold's SQL, and for the commands of its shell."""

    name: ClassVar[str] = "everfold SQL"
    aliases: ClassVar[list[str]] = ["everfold"]
    filenames: ClassVar[list[str]] = []

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"ensurenl": False, "stripnl": False, **options})

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, _TokenType, str]]:
        """Yield position, type and text of each word."""
        if text.lstrip().startswith("\\"):
            name, space, rest = text.partition(" ")
            yield 0, Keyword.Pseudo, name
            if space:
                yield len(name), Text, space + rest
            return
        words = split_words(text)
        for at, word in enumerate(words):
            yield word.start, _type_of(word, words[at + 1] if at + 1 < len(words) else None), word.text


def _type_of(word: Word, following: Word | None) -> _TokenType:
    if word.kind is not Kind.WORD:
        return Error if word.text in ('"', "@", "?") else _TYPES[word.kind]
    keywords, types, functions = _names()
    if following is not None and following.key == "(" and word.key in functions:
        return Name.Function
    if word.key in types:
        return Keyword.Type
    return Keyword if word.key in keywords else Name
