"""Rows whose time attribute is NULL: how a stream says that it met one, and how the error is made of it.

The stream raises `everfold[null-rowtime]: ` and JSON with the table, the column and the place, which is the source's column `__place`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from everfold.connectors.connector_errors import trouble
from everfold.errors import ConnectorError
from everfold.sql.settings import NULL_ROWTIME_HELP

PLACE = "__place"
"""Column of a source's frame: where a row lies (a file, or a record of a topic), STRING; a source may leave it out."""
NO_TIME = "everfold[null-rowtime]: "
"""What the text of the error begins with."""


@dataclass(frozen=True, slots=True)
class Timeless:
    """A row without a time: its table, the time attribute, and where the source found it (None: it did not say)."""

    table: str
    column: str
    place: str | None

    def error(self, place: str | None = None) -> ConnectorError:
        """ConnectorError `null-rowtime`; `place` is the source's better word for where the row lies."""
        where = place or self.place
        message = f"the time attribute `{self.column}` is NULL"
        return trouble(
            "null-rowtime",
            f"{where}: {message}" if where else f"table `{self.table}`: {message}",
            help=NULL_ROWTIME_HELP,
        )


def raise_timeless(table: str, column: str) -> str:
    """Spark SQL that stops the job at a row without a time; reads the column `__place`."""
    said = json.dumps({"table": table, "column": column}, ensure_ascii=False)[:-1] + ', "place": '
    text = said.replace("\\", "\\\\").replace("'", "\\'")
    return f"raise_error(concat('{NO_TIME}{text}', coalesce(to_json(named_struct('at', {PLACE})), '{{}}'), '}}'))"


def find_timeless(error_text: str) -> Timeless | None:
    """The row that `raise_timeless` spoke of, found in the text of Spark's error."""
    at = 0
    while (at := error_text.find(NO_TIME, at)) >= 0:
        at += len(NO_TIME)
        with suppress(ValueError):  # a plan in the text holds the words too
            said, _ = json.JSONDecoder(strict=False).raw_decode(error_text, at)
            return Timeless(said["table"], said["column"], said["place"].get("at"))
    return None
