"""Turn any exception into an error or a line for the user; the log has the traceback."""

from __future__ import annotations

import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from everfold.errors import EverfoldError
from everfold.files import cache_folder


def explain_exception(error: Exception) -> EverfoldError | str:
    """Return what to show for an exception: an error, or one line for a bug in everfold."""
    if isinstance(error, EverfoldError):
        return error
    # A ConnectionError is from the JVM's socket: other connections raise errors of their library.
    if isinstance(error, ConnectionError) or type(error).__module__.startswith(("pyspark.", "py4j.")):
        from everfold.jobs.failure import explain_failure

        return explain_failure(error, (), Path(_log_traceback(error)))
    if isinstance(error, OSError):
        from everfold.connectors.connector_errors import file_system_error

        what = f"`{error.filename}`" if error.filename else "a file"
        help_ = f"details are in {_log_traceback(error)}"
        return file_system_error(error, f"{what} cannot be read or written", help_)
    return f"internal error: {type(error).__name__}: {_first_line(error)} (details: {_log_traceback(error)})"


def _first_line(error: Exception) -> str:
    from everfold.secrets import redact_log

    return redact_log(next(iter(str(error).splitlines()), "no message"))[:200]


def _log_traceback(error: Exception) -> str:
    """Append the traceback to a log file; return the path of the file."""
    from everfold.files import make_private_file, make_private_folder
    from everfold.secrets import redact_command_line, redact_log

    folder = cache_folder()
    try:
        make_private_folder(folder)
        make_private_file(folder / "errors.log")
        with open(folder / "errors.log", "a", encoding="utf-8") as log:
            log.write(f"--- {datetime.now(UTC):%Y-%m-%d %H:%M:%S} {redact_command_line(sys.argv)}\n")
            log.writelines(map(redact_log, traceback.format_exception(error)))
    except OSError:
        return "a log file that could not be written"
    return str(folder / "errors.log")
