"""Transport of errors through Spark, from a Python worker through a JVM message to the driver.

The message has them as JSON, never as a pickle, because it may contain user data. It is written to
the job's log, so it has only the piece of the script that an error refers to: the rest may contain
secrets.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from everfold import errors
from everfold.errors import Diagnostic, EverfoldError, Span
from everfold.secrets import redact_part

_MARK = re.compile(r"everfold-error:([A-Za-z0-9+/=]+)")
_FAMILIES = {
    each.__name__: each for each in (errors.ConnectorError, errors.FunctionError, errors.StateError, errors.SqlError)
}


class TransportedError(Exception):
    """An EverfoldError in a worker.

    Its message has the error as data, followed by its text for readers of the log.
    """


@contextmanager
def transport_errors() -> Iterator[None]:
    """Convert an EverfoldError of the block to one whose message `extract_error` can parse."""
    try:
        yield
    except EverfoldError as error:
        found = [replace(each, span=_isolate(each.span)) for each in error.diagnostics]
        data = json.dumps({"family": type(error).__name__, "found": [asdict(each) for each in found]})
        text = "\n".join(each.render() for each in found)
        raise TransportedError(f"everfold-error:{base64.b64encode(data.encode()).decode()}\n{text}") from None


def _isolate(span: Span | None) -> Span | None:
    """Return the span at the same position of a text that is blank everywhere else."""
    if span is None:
        return None
    before = "\n" * (span.line - 1) + " " * (span.column - 1)
    content = redact_part(span.text, span.start, span.end)
    return Span(len(before), len(before) + len(content), span.source, before + content)


def extract_error(text: str) -> EverfoldError | None:
    """Return the error that a worker raised from a message of Spark, None if it has none."""
    found = _MARK.search(text)
    if found is None:
        return None
    try:
        data = json.loads(base64.b64decode(found.group(1)))
        return _FAMILIES.get(data["family"], EverfoldError)(*map(_diagnostic, data["found"]))
    except (ValueError, KeyError, TypeError):
        return None


def _diagnostic(data: dict[str, Any]) -> Diagnostic:
    span = None if data["span"] is None else Span(**data["span"])
    return Diagnostic(data["code"], data["message"], span, data["help"], tuple(data["notes"]))
