"""Errors of user functions that fail or return a value of the wrong type.

They show the call and the location in the user's Python files.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from reprlib import Repr
from typing import Any

from everfold.errors import Diagnostic, FunctionError, Span
from everfold.udf.function import PythonFunction

MAX_MESSAGE = 500
"""Longest part of an exception's message that is shown, in characters."""
_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_repr = Repr()
_repr.maxstring = _repr.maxother = 60
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 4


def function_failed_error(of: PythonFunction, call: str, error: BaseException, span: Span | None) -> FunctionError:
    """Return FunctionError `function-failed`: the function raised an error in a call."""
    reason = " ".join(str(error).split())
    reason = reason if len(reason) <= MAX_MESSAGE else f"{reason[: MAX_MESSAGE - 1]}…"
    what = type(error).__name__ + (f": {reason}" if reason else "")
    message = f"the Python function `{of.name}` raised {what}"
    return FunctionError(
        Diagnostic("function-failed", message, span, notes=(f"it was called as {call}", *user_traceback(error)))
    )


def wrong_result_error(of: PythonFunction, call: str, value: Any, why: str, span: Span | None) -> FunctionError:
    """Return FunctionError `wrong-result`: the function returned a value of the wrong type.

    why: completes the sentence "… returned <value>, which …".
    """
    shown = " ".join(_repr.repr(value).split())
    message = f"the Python function `{of.name}` returned {shown}, which {why}"
    return FunctionError(Diagnostic("wrong-result", message, span, notes=(f"it was called as {call}",)))


def wrong_accumulator_error(of: PythonFunction, accumulator: Any, why: str, span: Span | None) -> FunctionError:
    """Return FunctionError `wrong-accumulator`: an accumulator is not of its declared type."""
    shown = " ".join(_repr.repr(accumulator).split())
    message = f"the accumulator of the Python function `{of.name}` became {shown}, which {why}"
    return FunctionError.of("wrong-accumulator", message, span)


def call_text(of: PythonFunction, args: Sequence[Any], method: str = "") -> str:
    """Return a call with shortened arguments: `f(1, 'abc')`, or `f.accumulate(Row(0, 0), 1)`."""
    name = f"{of.name}.{method}" if method else of.name
    return f"{name}({', '.join(map(_repr.repr, args))})"


def columns_text(of: PythonFunction, first: Sequence[Any], rows: int, method: str = "") -> str:
    """Return a call with whole columns, of which only the first row is shown."""
    return (
        f"{call_text(of, first, method)} for the first of {rows} rows" if rows else f"{call_text(of, ())} for no rows"
    )


def user_traceback(error: BaseException) -> tuple[str, ...]:
    """Return the traceback of an error in the user's own files, outermost first."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        return (f"{error.filename}:{error.lineno}",)
    foreign = [each for each in frames if not each[0].co_filename.startswith((_OURS, "<frozen"))]
    own = [each for each in foreign if not each[0].co_filename.startswith(_INSTALLED)]
    return tuple(
        f"{code.co_filename}:{line} in {code.co_name}: {linecache.getline(code.co_filename, line).strip()}".rstrip(": ")
        for code, line in own or foreign
    )
