"""Functions while they are at work: opened before, closed behind, and whatever they raise told as a FunctionError."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everfold.errors import FunctionError, Span
from everfold.udf import failure
from everfold.udf.function import PythonFunction
from everfold.udf.interface import FunctionContext

MISHAPS = (Exception, SystemExit)
"""What a function may raise without more than its own job coming to an end."""


@contextmanager
def opened(of: PythonFunction, span: Span | None) -> Iterator[None]:
    """A function within its `open` and `close`."""
    function = of.function
    with telling(of, span, lambda: failure.call_text(of, (), "open")):
        function.open(FunctionContext())
    yield
    with telling(of, span, lambda: failure.call_text(of, (), "close")):
        function.close()


@contextmanager
def telling(of: PythonFunction, span: Span | None, call: Callable[[], str]) -> Iterator[None]:
    """Makes whatever the block raises a FunctionError; `call` says which call it was."""
    try:
        yield
    except FunctionError:
        raise
    except MISHAPS as error:
        raise failure.raised(of, call(), error, span) from error
