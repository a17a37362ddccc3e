"""The text of a diagnostic: the excerpt of its line, and the caret below it."""

from __future__ import annotations

import pytest

from everfold.errors import LONGEST_LINE, Diagnostic, Span


def excerpt(script: str, word: str) -> tuple[str, str]:
    """Return the line of a message about a word, and the line with the caret."""
    at = script.index(word)
    *_, line, caret = Diagnostic("syntax", "wrong", Span(at, at + len(word), "q.sql", script)).render().splitlines()
    assert line.startswith("1 | ")
    assert caret.startswith("  | ")
    return line[4:], caret[4:]


@pytest.mark.parametrize("before", [0, 30, 500])
@pytest.mark.parametrize("after", [0, 30, 500])
def test_a_long_line_is_clipped_around_the_caret(before: int, after: int) -> None:
    line, caret = excerpt("x" * before + "HERE" + "y" * after, "HERE")
    assert line[caret.index("^") :].startswith("HERE")
    assert caret.count("^") == 4
    assert len(line) <= LONGEST_LINE + 2
    assert ("…" in line) == (before + after + 4 > LONGEST_LINE)


def test_a_long_mistake_fills_the_excerpt() -> None:
    line, caret = excerpt("a" * 300, "a" * 300)
    assert (line, caret) == ("a" * LONGEST_LINE + "…", "^" * LONGEST_LINE)


def test_the_caret_is_below_wide_characters_and_tabs() -> None:
    line, caret = excerpt("SELECT\t'日本', é, 日本 FROM t", "日本 FROM")
    assert line == "SELECT\t'日本', é, 日本 FROM t"
    assert caret == "      \t" + " " * len("'....', é, ") + "^" * len(".... FROM")
