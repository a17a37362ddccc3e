"""Talks to PostgreSQL: a connection, what its errors mean to a user, and trying again while it may come back."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from everfold.connectors.connector_errors import trouble
from everfold.connectors.jdbc.address import Address
from everfold.errors import ConnectorError

if TYPE_CHECKING:
    from everfold.errors import Span

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
logging.getLogger("psycopg").addHandler(logging.NullHandler())

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_S = "10"
_SESSION = "SET TIME ZONE 'UTC'; SET datestyle = 'ISO, MDY'; SET bytea_output = 'hex'; SET extra_float_digits = 1"
_PASSING = (
    "08", "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03", "25006",
)  # fmt: skip
"""SQL states (or their classes) of what may be well a moment later: lost connections, a server that starts or stops, a standby that is not
the primary yet, locks."""
_REFUSED = re.compile(
    r"FATAL:\s+(?!\s|the database system is|sorry, too many|remaining connection slots|terminating connection)(.*)"
)
"""What a server says that does not let somebody in, and will not either in a second."""
_STAGED = re.compile(r"column c(\d+)\b")
_pause = time.sleep


def connect(address: Address, *, patience_ms: int) -> Connection:
    """A connection in which every statement is its own transaction. Raises psycopg.Error.

    `patience_ms`: how long a server may leave bytes unanswered before the connection counts as lost.
    """
    settings: dict[str, Any] = {
        "connect_timeout": _CONNECT_S,
        "application_name": "everfold",
        "tcp_user_timeout": str(patience_ms),
        "keepalives_idle": "30",
        **address.settings,
    }
    connection = psycopg.connect(**settings, autocommit=True, client_encoding="UTF8", prepare_threshold=None)
    try:
        connection.execute(_SESSION)
        if address.search_path is not None:
            connection.execute("SELECT set_config('search_path', %s, false)", (address.search_path,))
    except BaseException:
        connection.close()
        raise
    return connection


class Link:
    """A connection that is made when it is needed, and anew when it was lost.

    retries: how often a step is tried again, after 1, 2, 4, … seconds, as long as what fails may pass; no wait is longer than
    `patience_ms`, nor how long a server may leave bytes unanswered.
    """

    def __init__(self, address: Address, *, retries: int, patience_ms: int) -> None:
        self.address, self.retries, self.patience_ms = address, retries, patience_ms
        self._connection: Connection | None = None

    def run(self, step: Callable[[Connection], T]) -> T:
        """What the step gives. Raises psycopg.Error."""
        for tried in range(self.retries + 1):
            try:
                return step(self._open())
            except psycopg.Error as error:
                if self._connection is not None and self._connection.closed:
                    self._connection = None
                if tried == self.retries or not is_passing(error):
                    raise
                wait_s = min(2**tried, self.patience_ms / 1000)
                log.warning("PostgreSQL: %s; once more in %.0f s", type(error).__name__, wait_s)
                _pause(wait_s)
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        """Lets go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.address, patience_ms=self.patience_ms)
        return self._connection


def is_passing(error: BaseException) -> bool:
    """Whether the same step may succeed a moment later."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_PASSING)
    return not isinstance(error, psycopg.InternalError) and _REFUSED.search(str(error)) is None


def explained(
    error: psycopg.Error, table: str, address: Address, span: Span | None = None, names: Sequence[str] | None = None
) -> ConnectorError:
    """The error that a user is shown. `names`: when rows are written, the names of the columns that PostgreSQL knows as c0, c1, ….

    Secrets are in no error, but a server could say one back: then it is blotted out.
    """
    found = _explained(error, table, address, span, names)
    said, secret = found.diagnostics[0], address.settings.get("password")
    if not secret or secret not in said.message:
        return found
    return trouble(said.code, said.message.replace(secret, "******"), said.span, said.help)


def _explained(
    error: psycopg.Error, table: str, address: Address, span: Span | None, names: Sequence[str] | None
) -> ConnectorError:
    where = f"table `{table}`"
    database = address.settings.get("dbname", "")
    if error.sqlstate is None:
        refused = _REFUSED.search(str(error))
        if refused is not None:
            return trouble(
                "jdbc-refused", f"{where}: PostgreSQL at {address.place} says: {refused.group(1).strip()}", span
            )
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _gone(where, address, span)
    message = error.diag.message_primary or str(error).split("\n")[0]
    match error.sqlstate or "":
        case state if state.startswith(_PASSING) and not state.startswith(("40", "55")):
            return _gone(where, address, span)
        case "42501":
            return trouble(
                "jdbc-permission",
                f"{where}: PostgreSQL says: {message}",
                span,
                f"grant it to the user in database `{database}`",
            )
        case state if state.startswith(("22", "23")) and names is not None:
            return trouble(
                "refused-row",
                f"{where}: PostgreSQL refuses a row: {_of_row(error, message, names)}",
                span,
                "nothing of the batch is written: mend the data or the table and start again",
            )
        case _:
            return trouble("jdbc-failed", f"{where}: PostgreSQL says: {message}", span)


def _of_row(error: psycopg.Error, message: str, names: Sequence[str]) -> str:
    """What is wrong with a row, its column by the user's name where PostgreSQL knows ours."""
    if names:
        found = _STAGED.search(f"{error.diag.context or ''} column {error.diag.column_name or ''},")
        column = names[int(found.group(1))] if found is not None else None
        if column is not None and error.sqlstate == "23502":
            return f"`{column}` is NULL, and it is part of the PRIMARY KEY"
        return message if column is None else f"`{column}`: {message}"
    detail = error.diag.message_detail
    return f"{message} ({detail.rstrip('.')})" if detail else message


def _gone(where: str, address: Address, span: Span | None) -> ConnectorError:
    return trouble(
        "jdbc-unreachable",
        f"{where}: PostgreSQL does not answer at {address.place}",
        span,
        "is the server running, and is this its address? Start again when it is: nothing is lost, and nothing will be there twice",
    )
