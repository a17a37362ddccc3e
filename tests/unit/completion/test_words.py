"""Where an input ends, and which words it has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everfold.sql.dialects
from everfold.completion.words import Kind, is_complete, split_words
from everfold.sql.dialects.keywords import KEYWORDS
from everfold.sql.dialects.types import TYPE_NAMES


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1;",
        "SELECT 1; -- done",
        "SELECT 'a;';",
        "SELECT `;` FROM t;  \n",
        "/* ; */ SELECT 1;",
        "SELECT CASE WHEN a THEN 1 END FROM t;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE a WHEN 1 THEN 2 END; END;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END;",
        "SELECT 'it''s';",
    ],
)
def test_complete_inputs(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1",
        "SELECT ';",
        "SELECT 'it'';",
        "SELECT `a;",
        "SELECT 1 -- ;",
        "SELECT 1; /* ;",
        "SELECT 1; SELECT",
        "BEGIN STATEMENT SET;",
        "BEGIN STATEMENT SET; INSERT INTO a SELECT CASE a WHEN 1 THEN 2 END;",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
    ],
)
def test_incomplete_inputs(text: str) -> None:
    assert not is_complete(text)


@given(st.text(alphabet="aB1 '`/*-\n;.=%\\\"é"))
def test_words_are_the_whole_text(text: str) -> None:
    words = split_words(text)
    assert "".join(each.text for each in words) == text
    assert [each.start for each in words] == [sum(len(other.text) for other in words[:at]) for at in range(len(words))]


def test_a_string_has_its_content() -> None:
    assert [each.content for each in split_words("'it''s'`a``b`'op") if each.kind is not Kind.SPACE] == [
        "it's",
        "a`b",
        "op",
    ]


def test_every_word_of_the_grammar_is_a_keyword() -> None:
    """Compares the registry of keywords with the words that the parser expects."""
    folder = Path(everfold.sql.dialects.__file__).parent
    found: set[str] = set()
    for name in ("grammar", "ddl", "queries", "relations", "expressions", "calls"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("accept", "expect", "one_of")
            ):
                found |= {
                    each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
                }
    words = {each for each in found if re.fullmatch(r"[A-Z_]{2,}", each)}
    assert len(words) > 100
    assert words - KEYWORDS - set(TYPE_NAMES) == {"MATERIALIZED"}, "refused words are not completed"
