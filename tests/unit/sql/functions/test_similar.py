"""Patterns of SIMILAR TO that Flink 2.3 refuses, and the form of the others in the state of jobs."""

from __future__ import annotations

import pytest

from everfold.sql.functions.similar import translate_like, translate_similar


@pytest.mark.parametrize("pattern", ["a[b", "a]b", "[]ab]", "[a%]+", "[a_]b", "[a(]", "["])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"in the pattern"):
        translate_similar(pattern)


@pytest.mark.parametrize(
    ("pattern", "escape"), [("a_b", "_"), ("a#b", "#"), ("a%%x%", "%"), ("a#", "#"), ("a", "ab"), ("ab", "")]
)
def test_an_invalid_escape_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match=r"escape character"):
        translate_similar(pattern, escape)


@pytest.mark.parametrize(
    ("pattern", "stored"),
    [
        ("Hello%", "^(?:Hello(?s:.*))$"),
        ("(a|b)_", "^(?:(a|b)(?s:.))$"),
        ("[a-c]{3}", "^(?:[a-c]{3})$"),
        ("a.+", "^(?:a.+)$"),
    ],
)
def test_the_form_in_the_state_of_jobs_stays(pattern: str, stored: str) -> None:
    """A query of an earlier version has it in its condition."""
    assert translate_similar(pattern) == stored


def test_like_needs_a_regular_expression_only_for_one_character() -> None:
    assert translate_like("a%$", None) is None
    assert translate_like("a#_", "#") is None
    assert translate_like("a_.", None) == r"^(?:a(?s:.)\.)$"
