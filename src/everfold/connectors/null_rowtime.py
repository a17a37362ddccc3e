"""Report rows whose time attribute is NULL: raise inside a stream and turn into a ConnectorError.

The stream raises `everfold[null-rowtime]: ` followed by JSON with the table, the column and the
location, which is the source's column `__place`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from everfold.connectors.connector_errors import connector_error
from everfold.errors import ConnectorError
from everfold.sql.settings import NULL_ROWTIME_HELP

LOCATION = "__place"
"""Column of a source's frame: the location of a row (a file, or a record of a topic), STRING.

A source may leave it out.
"""
NULL_ROWTIME_PREFIX = "everfold[null-rowtime]: "
"""Prefix of the error message in the stream."""


@dataclass(frozen=True, slots=True)
class NullRowtime:
    """A row whose time attribute is NULL.

    location: where the source found the row, None if the source does not report it.
    """

    table: str
    column: str
    location: str | None

    def error(self, place: str | None = None) -> ConnectorError:
        """Return the ConnectorError `null-rowtime`. location: a more precise location, if known."""
        where = place or self.location
        message = f"the time attribute `{self.column}` is NULL"
        return connector_error(
            "null-rowtime",
            f"{where}: {message}" if where else f"table `{self.table}`: {message}",
            help=NULL_ROWTIME_HELP,
        )


def raise_null_rowtime(table: str, column: str) -> str:
    """Return Spark SQL that fails the job at a row without a time. Reads the column `__place`."""
    report = json.dumps({"table": table, "column": column}, ensure_ascii=False)[:-1] + ', "place": '
    text = report.replace("\\", "\\\\").replace("'", "\\'")
    place = f"coalesce(to_json(named_struct('at', {LOCATION})), '{{}}')"
    return f"raise_error(concat('{NULL_ROWTIME_PREFIX}{text}', {place}, '}}'))"


def find_null_rowtime(error_text: str) -> NullRowtime | None:
    """Find the row that `raise_null_rowtime` reported in the text of Spark's error."""
    at = 0
    while (at := error_text.find(NULL_ROWTIME_PREFIX, at)) >= 0:
        at += len(NULL_ROWTIME_PREFIX)
        with suppress(ValueError):  # a plan in the text contains the prefix too
            report, _ = json.JSONDecoder(strict=False).raw_decode(error_text, at)
            return NullRowtime(report["table"], report["column"], report["place"].get("at"))
    return None
