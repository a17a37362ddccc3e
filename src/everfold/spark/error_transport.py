"""Errors on their way through Spark: raised in a Python worker, told in a text of the JVM's, and made again in the driver.

The text carries them as data, never as a pickle: what a record says may stand in it. It ends up in the job's log, so of the script it has no more than
the piece that an error speaks of: elsewhere there may be secrets.
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
from everfold.secrets import shown_part

_MARK = re.compile(r"everfold-error:([A-Za-z0-9+/=]+)")
_FAMILIES = {
    each.__name__: each for each in (errors.ConnectorError, errors.FunctionError, errors.StateError, errors.SqlError)
}


class CrossingError(Exception):
    """An EverfoldError in a worker: its text has the error as data, and below it what the error says, for people who read the log."""


@contextmanager
def crossing() -> Iterator[None]:
    """Makes an EverfoldError of the block one whose text `crossed` understands."""
    try:
        yield
    except EverfoldError as error:
        found = [replace(each, span=_alone(each.span)) for each in error.diagnostics]
        said = json.dumps({"family": type(error).__name__, "found": [asdict(each) for each in found]})
        text = "\n".join(each.render() for each in found)
        raise CrossingError(f"everfold-error:{base64.b64encode(said.encode()).decode()}\n{text}") from None


def _alone(span: Span | None) -> Span | None:
    """The same place in a text that is blank but for what stands there."""
    if span is None:
        return None
    before = "\n" * (span.line - 1) + " " * (span.column - 1)
    there = shown_part(span.text, span.start, span.end)
    return Span(len(before), len(before) + len(there), span.source, before + there)


def crossed(text: str) -> EverfoldError | None:
    """The error that a worker raised, found in the text of Spark's."""
    found = _MARK.search(text)
    if found is None:
        return None
    try:
        said = json.loads(base64.b64decode(found.group(1)))
        return _FAMILIES.get(said["family"], EverfoldError)(*map(_diagnostic, said["found"]))
    except (ValueError, KeyError, TypeError):
        return None


def _diagnostic(said: dict[str, Any]) -> Diagnostic:
    span = None if said["span"] is None else Span(**said["span"])
    return Diagnostic(said["code"], said["message"], span, said["help"], tuple(said["notes"]))
