"""Transport of errors through the message of an engine's failure.

Code in Python raises an EverfoldError: in a worker of Spark it crosses the JVM as JSON
(`transport_errors`), never as a pickle, because it may contain user data. It is written to the
job's log, so it has only the piece of the script that an error refers to: the rest may contain
secrets.

SQL raises a message `everfold[<code>]: …`, in which the code is followed by the message for the
user, or by a report, a JSON object from which the driver makes the error. A task that has no error
for the user yet raises a report too.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from everfold import errors
from everfold.engine_literals import duckdb_string, spark_string
from everfold.errors import Diagnostic, EverfoldError, Span
from everfold.secrets import redact_part

_MARK = re.compile(r"everfold-error:([A-Za-z0-9+/=]+)")
MESSAGE_START = r"everfold\[(?P<code>[a-z0-9-]+)\]: "
"""A regular expression for the start of a message that SQL raised."""
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


# --- messages and reports -------------------------------------------------------------------------


def write_message(code: str, text: str) -> str:
    """Return a message for SQL to raise."""
    return f"everfold[{code}]: {text}"


def raise_in_spark(code: str, message: str) -> str:
    """Return Spark SQL that fails the job with a message."""
    return f"raise_error({spark_string(write_message(code, message))})"


def raise_in_duckdb(code: str, message: str) -> str:
    """Return DuckDB SQL that fails the query with a message."""
    return f"error({duckdb_string(write_message(code, message))})"


def raise_report_in_spark(code: str, values: Mapping[str, str]) -> str:
    """Return Spark SQL that fails the job with a report. values: Spark SQL by name."""
    pairs = ", ".join(f"{spark_string(name)}, {value}" for name, value in values.items())
    return f"raise_error(concat({spark_string(write_message(code, ''))}, to_json(named_struct({pairs}))))"


def write_report(code: str, values: Mapping[str, object]) -> str:
    """Return a report as the message of an exception in a task."""
    return write_message(code, json.dumps(values))


def find_reports(error_text: str, code: str) -> Iterator[dict[str, Any]]:
    """Yield the reports with a code in the text of a failure.

    The text may contain a query plan, and that the start of a message without a report.
    """
    start = write_message(code, "")
    at = 0
    while (at := error_text.find(start, at)) >= 0:
        at += len(start)
        with suppress(ValueError):
            report, _ = json.JSONDecoder(strict=False).raw_decode(error_text, at)
            if isinstance(report, dict):
                yield report
