"""Open and close functions, and convert their errors to FunctionError."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everfold.errors import FunctionError, Span
from everfold.udf import failure
from everfold.udf.function import PythonFunction
from everfold.udf.interface import FunctionContext

MISHAPS = (Exception, SystemExit)
"""Exceptions of a user function that fail only its own job."""


@contextmanager
def opened(of: PythonFunction, span: Span | None) -> Iterator[None]:
    """Call `open` before the block and `close` after it."""
    function = of.function
    with telling(of, span, lambda: failure.call_text(of, (), "open")):
        function.open(FunctionContext())
    yield
    with telling(of, span, lambda: failure.call_text(of, (), "close")):
        function.close()


@contextmanager
def telling(of: PythonFunction, span: Span | None, call: Callable[[], str]) -> Iterator[None]:
    """Convert any error of the block to FunctionError. `call` returns the text of the call."""
    try:
        yield
    except FunctionError:
        raise
    except MISHAPS as error:
        raise failure.raised(of, call(), error, span) from error
