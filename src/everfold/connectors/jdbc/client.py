"""Connect to PostgreSQL, retry transient failures, and translate errors for users."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg import sql

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
_TRANSIENT = (
    "08", "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03", "25006",
)  # fmt: skip
"""SQL states, or their classes, of transient failures.

Lost connections, a server that starts or stops, a standby that is not yet the primary, locks.
"""
_REJECTED = re.compile(
    r"FATAL:\s+(?!\s|the database system is|sorry, too many|remaining connection slots|terminating connection)(.*)"
)
"""Matches the message of a server that rejects a connection for good: a retry would not help."""
_STAGED_COLUMN = re.compile(r"column c(\d+)\b")
_pause = time.sleep


def connect(address: Address, *, patience_ms: int) -> Connection:
    """Open a connection in which every statement is its own transaction. Raises psycopg.Error.

    patience_ms: the connection counts as lost if sent data stays unacknowledged this long.
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
    """A connection that is opened when it is needed, and opened again after it was lost.

    retries: how often a step that fails for a transient reason is tried again, after 1, 2, 4, …
    seconds. patience_ms: the maximum of these waits, and of the time that sent data may stay
    unacknowledged.
    """

    def __init__(self, address: Address, *, retries: int, patience_ms: int) -> None:
        self.address, self.retries, self.patience_ms = address, retries, patience_ms
        self._connection: Connection | None = None

    def run(self, step: Callable[[Connection], T]) -> T:
        """Run a step, with retries; return its result. Raises psycopg.Error."""
        for tried in range(self.retries + 1):
            try:
                return step(self._open())
            except psycopg.Error as error:
                if self._connection is not None and self._connection.closed:
                    self._connection = None
                if tried == self.retries or not is_transient(error):
                    raise
                wait_s = min(2**tried, self.patience_ms / 1000)
                log.warning("PostgreSQL: %s; retrying in %.0f s", type(error).__name__, wait_s)
                _pause(wait_s)
        raise AssertionError("the loop returns or raises")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.address, patience_ms=self.patience_ms)
        return self._connection


def is_transient(error: BaseException) -> bool:
    """Return whether an error is transient: the same step may succeed a moment later."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.InternalError):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(_TRANSIENT)
    return not isinstance(error, psycopg.InternalError) and _REJECTED.search(str(error)) is None


def explain_error(
    error: psycopg.Error, table: str, address: Address, span: Span | None = None, names: Sequence[str] | None = None
) -> ConnectorError:
    """Return the error to show to the user.

    names: when rows are written, the names of the columns that PostgreSQL knows as c0, c1, ….
    A message of the server that repeats the password is masked.
    """
    found = _to_error(error, table, address, span, names)
    first, secret = found.diagnostics[0], address.settings.get("password")
    if not secret or secret not in first.message:
        return found
    return ConnectorError.of(first.code, first.message.replace(secret, "******"), first.span, first.help)


def _to_error(
    error: psycopg.Error, table: str, address: Address, span: Span | None, names: Sequence[str] | None
) -> ConnectorError:
    where = f"table `{table}`"
    database = address.settings.get("dbname", "")
    if error.sqlstate is None:
        rejected = _REJECTED.search(str(error))
        if rejected is not None:
            return ConnectorError.of(
                "jdbc-refused", f"{where}: PostgreSQL at {address.servers} says: {rejected.group(1).strip()}", span
            )
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return _unreachable(where, address, span)
    message = error.diag.message_primary or str(error).split("\n")[0]
    match error.sqlstate or "":
        case state if state.startswith(_TRANSIENT) and not state.startswith(("40", "55")):
            return _unreachable(where, address, span)
        case "42501":
            return ConnectorError.of(
                "jdbc-permission",
                f"{where}: PostgreSQL says: {message}",
                span,
                f"grant it to the user in database `{database}`",
            )
        case state if state.startswith(("22", "23")) and names is not None:
            return ConnectorError.of(
                "refused-row",
                f"{where}: PostgreSQL refuses a row: {_describe_bad_row(error, message, names)}",
                span,
                "nothing of the batch was written: fix the data or the table and run the same command again",
            )
        case _:
            return ConnectorError.of("jdbc-failed", f"{where}: PostgreSQL says: {message}", span)


def _describe_bad_row(error: psycopg.Error, message: str, names: Sequence[str]) -> str:
    """Describe what is wrong with a row; name the column as the user does, if it is known."""
    if names:
        found = _STAGED_COLUMN.search(f"{error.diag.context or ''} column {error.diag.column_name or ''},")
        column = names[int(found.group(1))] if found is not None else None
        if column is not None and error.sqlstate == "23502":
            return f"`{column}` is NULL, and it is part of the PRIMARY KEY"
        return message if column is None else f"`{column}`: {message}"
    detail = error.diag.message_detail
    return f"{message} ({detail.rstrip('.')})" if detail else message


def _unreachable(where: str, address: Address, span: Span | None) -> ConnectorError:
    return ConnectorError.of(
        "jdbc-unreachable",
        f"{where}: PostgreSQL does not answer at {address.servers}",
        span,
        "check that the server is running at this address, and run the same command again: "
        "no row is lost or written twice",
    )


def quote_name(name: sql.Identifier) -> sql.SQL:
    """Return a name for a statement with parameters: `%` is doubled."""
    return sql.SQL(name.as_string().replace("%", "%%"))


def hash_names(*names: str) -> int:
    """Return a 64-bit hash of names."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8])


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock: 64 bits, signed."""
    return hash_names(*names) - (1 << 63)
