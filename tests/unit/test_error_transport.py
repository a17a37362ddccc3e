"""Errors on their way through Spark: encoded in a string, and decoded from any text around it."""

from __future__ import annotations

import pickle

import pytest

from everfold.error_transport import TransportedError, extract_error, transport_errors
from everfold.errors import ConnectorError, Diagnostic, EverfoldError, FunctionError, Span, StateError

SCRIPT = "CREATE TABLE t (a INT) WITH ('password' = 'geheim'); SELECT 1;\nSELECT a, f(a) FROM t"
FOUND = Diagnostic("function-failed", "`f` raised", Span(73, 77, "q.sql", SCRIPT), "mend it", ("called as f(1)", "ü"))


def transport(error: EverfoldError) -> str:
    with pytest.raises(TransportedError) as caught, transport_errors():
        raise error
    return f"Traceback (most recent call last):\n  File …\neverfold.spark.crossing.CrossingError: {caught.value}\n\tat org.apache.spark…"


@pytest.mark.parametrize("family", [FunctionError, ConnectorError, StateError])
def test_an_error_is_decoded_unchanged(family: type[EverfoldError]) -> None:
    found = extract_error(transport(family(FOUND, Diagnostic("other", "more"))))
    assert type(found) is family
    first, second = found.diagnostics
    assert (first.code, first.message, first.help, first.notes) == (FOUND.code, FOUND.message, FOUND.help, FOUND.notes)
    assert first.span is not None
    assert (first.span.source, first.span.line, first.span.column) == ("q.sql", 2, 11)
    assert first.span.text[first.span.start : first.span.end] == "f(a)"
    assert second == Diagnostic("other", "more")


def test_the_log_has_a_readable_message_without_secrets() -> None:
    text = transport(FunctionError(FOUND))
    assert "error[function-failed]: `f` raised" in text
    assert "called as f(1)" in text
    assert "geheim" not in text + str(extract_error(text))


def test_other_errors_are_not_changed() -> None:
    with pytest.raises(ValueError, match="x"), transport_errors():
        raise ValueError("x")


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "everfold-error:",
        "everfold-error:AAAA",
        "everfold-error:" + pickle.dumps([1]).hex(),
        "everfold-error:e30=",
    ],
)
def test_a_record_that_looks_like_an_error_is_not_decoded(text: str) -> None:
    assert extract_error(text) is None
