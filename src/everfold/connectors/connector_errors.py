"""Constructors of connector errors, and their transport from tasks of Spark to the driver."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from everfold.error_transport import find_reports, write_report
from everfold.errors import ConnectorError, Span

_REASONS = {
    errno.ENOSPC: ("disk-full", "the disk is full"),
    errno.EDQUOT: ("disk-full", "the disk quota is used up"),
    errno.EACCES: ("no-permission", "no permission"),
    errno.EPERM: ("no-permission", "no permission"),
    errno.EROFS: ("no-permission", "the file system is read-only"),
    errno.ENOTDIR: ("not-a-folder", "it is not a folder"),
    errno.EEXIST: ("not-a-folder", "it is not a folder"),
}


def file_system_error(wrong: OSError, what: str, help: str | None = None) -> ConnectorError:
    """Return the ConnectorError of a failed file system operation.

    what: what could not be done. Codes: `disk-full`, `no-permission`, `not-a-folder`, otherwise
    `file-system-error`.
    """
    code, reason = _REASONS.get(wrong.errno or 0, ("file-system-error", wrong.strerror or str(wrong)))
    return ConnectorError.of(code, f"{what}: {reason}", help=help)


@contextmanager
def report_errors() -> Iterator[None]:
    """Convert a ConnectorError of a task to one that `find_reported_error` recognizes."""
    try:
        yield
    except ConnectorError as error:
        found = error.diagnostics[0]
        report = {"code": found.code, "message": found.message, "help": found.help}
        raise RuntimeError(write_report("task-failed", report)) from None


def find_reported_error(error_text: str, span: Span | None) -> ConnectorError | None:
    """Return a task's error from the text of Spark's error, located at `span`; None if none."""
    found = next(find_reports(error_text, "task-failed"), None)
    return None if found is None else ConnectorError.of(found["code"], found["message"], span, found["help"])
