"""Report rows whose time attribute is NULL: SQL raises a report, and the driver an error."""

from __future__ import annotations

from dataclasses import dataclass

from everfold.engine_literals import spark_string
from everfold.error_transport import find_reports, raise_report_in_spark, write_report
from everfold.errors import ConnectorError
from everfold.sql.settings import NULL_ROWTIME_HELP

LOCATION = "__place"
"""Column of a source's frame: the location of a row (a file, or a record of a topic), STRING.

A source may leave it out.
"""


@dataclass(frozen=True, slots=True)
class NullRowtime:
    """A row whose time attribute is NULL.

    location: where the source found the row, None if the source does not report it.
    """

    table: str
    column: str
    location: str | None

    def reported(self) -> RuntimeError:
        """Return an exception of a task, whose message `find_null_rowtime` finds."""
        return RuntimeError(
            write_report("null-rowtime", {"table": self.table, "column": self.column, "place": self.location})
        )

    def error(self, place: str | None = None) -> ConnectorError:
        """Return the ConnectorError `null-rowtime`. location: a more precise location, if known."""
        where = place or self.location
        message = f"the time attribute `{self.column}` is NULL"
        return ConnectorError.of(
            "null-rowtime",
            f"{where}: {message}" if where else f"table `{self.table}`: {message}",
            help=NULL_ROWTIME_HELP,
        )


def raise_null_rowtime(table: str, column: str) -> str:
    """Return Spark SQL that fails the job at a row without a time. Reads the column `__place`."""
    values = {"table": spark_string(table), "column": spark_string(column), "place": LOCATION}
    return raise_report_in_spark("null-rowtime", values)


def find_null_rowtime(error_text: str) -> NullRowtime | None:
    """Find the row that `raise_null_rowtime` reported in the text of Spark's error."""
    report = next(find_reports(error_text, "null-rowtime"), None)
    return None if report is None else NullRowtime(report["table"], report["column"], report.get("place"))
