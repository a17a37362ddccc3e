"""Open and close functions, and convert their errors to FunctionError."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everfold.errors import FunctionError, Span
from everfold.udf import failure
from everfold.udf.function import PythonFunction
from everfold.udf.interface import FunctionContext

FUNCTION_ERRORS = (Exception, SystemExit)
"""Exceptions of a user function that fail only its own job."""


@contextmanager
def open_function(of: PythonFunction, span: Span | None) -> Iterator[None]:
    """Call `open` before the block and `close` after it."""
    function = of.function
    with wrap_errors(of, span, lambda: failure.call_text(of, (), "open")):
        function.open(FunctionContext())
    yield
    with wrap_errors(of, span, lambda: failure.call_text(of, (), "close")):
        function.close()


@contextmanager
def wrap_errors(of: PythonFunction, span: Span | None, call: Callable[[], str]) -> Iterator[None]:
    """Convert any error of the block to FunctionError. `call` returns the text of the call."""
    try:
        yield
    except FunctionError:
        raise
    except FUNCTION_ERRORS as error:
        raise failure.function_failed_error(of, call(), error, span) from error
