"""Errors of the outside world, as one call makes them."""

from __future__ import annotations

from everfold.errors import ConnectorError, Diagnostic, Span


def trouble(code: str, message: str, span: Span | None = None, help: str | None = None) -> ConnectorError:
    """A ConnectorError with one diagnostic."""
    return ConnectorError(Diagnostic(code, message, span, help))
