"""What is said when a function of the user's fails, or gives what it did not declare: the call, and the user's own lines of Python."""

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
"""Characters of an exception's message that are shown."""
_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})

_shown = Repr()
_shown.maxstring = _shown.maxother = 60
_shown.maxlist = _shown.maxtuple = _shown.maxdict = 4


def raised(of: PythonFunction, call: str, error: BaseException, span: Span | None) -> FunctionError:
    """FunctionError `function-failed`: the function raised an error in a call."""
    said = " ".join(str(error).split())
    said = said if len(said) <= MAX_MESSAGE else f"{said[: MAX_MESSAGE - 1]}…"
    what = type(error).__name__ + (f": {said}" if said else "")
    message = f"the Python function `{of.name}` raised {what}"
    return FunctionError(
        Diagnostic("function-failed", message, span, notes=(f"it was called as {call}", *trace(error)))
    )


def wrong_result(of: PythonFunction, call: str, value: Any, why: str, span: Span | None) -> FunctionError:
    """FunctionError `wrong-result`: what the function gave in a call is not what it declares; `why` stands behind the value."""
    shown = " ".join(_shown.repr(value).split())
    message = f"the Python function `{of.name}` gave {shown}, which {why}"
    return FunctionError(Diagnostic("wrong-result", message, span, notes=(f"it was called as {call}",)))


def wrong_accumulator(of: PythonFunction, accumulator: Any, why: str, span: Span | None) -> FunctionError:
    """FunctionError `wrong-accumulator`: an accumulator is not of the type that it is declared to have."""
    shown = " ".join(_shown.repr(accumulator).split())
    message = f"the accumulator of the Python function `{of.name}` became {shown}, which {why}"
    return FunctionError(Diagnostic("wrong-accumulator", message, span))


def call_text(of: PythonFunction, args: Sequence[Any], method: str = "") -> str:
    """A call with its arguments, long ones shortened: `f(1, 'abc')`; `f.accumulate(Row(0, 0), 1)` for a method."""
    name = f"{of.name}.{method}" if method else of.name
    return f"{name}({', '.join(map(_shown.repr, args))})"


def columns_text(of: PythonFunction, first: Sequence[Any], rows: int, method: str = "") -> str:
    """A call with whole columns, of which the first row is shown."""
    return (
        f"{call_text(of, first, method)} for the first of {rows} rows" if rows else f"{call_text(of, ())} for no rows"
    )


def trace(error: BaseException) -> tuple[str, ...]:
    """Where the error came from, in the user's own files, outermost first."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        return (f"{error.filename}:{error.lineno}",)
    foreign = [each for each in frames if not each[0].co_filename.startswith((_OURS, "<frozen"))]
    own = [each for each in foreign if not each[0].co_filename.startswith(_INSTALLED)]
    return tuple(
        f"{code.co_filename}:{line} in {code.co_name}: {linecache.getline(code.co_filename, line).strip()}".rstrip(": ")
        for code, line in own or foreign
    )
