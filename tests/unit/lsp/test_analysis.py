"""A script that is too long for a run is too long for the editor, too."""

from __future__ import annotations

from pathlib import Path

from everfold.limits import MAX_CHARACTERS, MAX_STATEMENTS, MAX_TOKENS
from everfold.lsp.analysis import analyze


def test_statements_beyond_the_limit_are_not_analyzed() -> None:
    found = analyze("DROP TABLE IF EXISTS t;\n" * 20_000, "job.sql", Path())
    assert len(found.statements) == MAX_STATEMENTS
    (error,) = found.errors
    assert (error.code, error.span and error.span.line) == ("too-complex", MAX_STATEMENTS + 1)


def test_a_script_with_too_many_tokens_or_characters_is_not_analyzed() -> None:
    for text in ("SELECT " + "1 + " * MAX_TOKENS + "1;", f"SELECT '{'a' * MAX_CHARACTERS}';"):
        found = analyze(text, "job.sql", Path())
        assert [error.code for error in found.errors] == ["too-complex"]
        assert not found.statements
