"""What went wrong, out of what Spark says: our own errors come back as they were, the rest becomes one line and the log's name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from everfold.connectors.timeless import find_timeless
from everfold.errors import ConnectorError, Diagnostic, EverfoldError, SqlError, StateError

_RAISED = re.compile(r"everfold\[(?P<code>[a-z0-9-]+)\]: (?P<message>[^\n]*)")
_PYTHON = re.compile(r"everfold\.errors\.(?P<family>\w+): error\[(?P<code>[a-z0-9-]+)\]: (?P<message>[^\n]*)")
_FAMILIES: dict[str, type[EverfoldError]] = {each.__name__: each for each in (ConnectorError, StateError, SqlError)}
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.I)
_NO_PERMISSION = re.compile(r"Permission denied|AccessDeniedException|Read-only file system", re.I)
_DAMAGED = re.compile(
    r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|CANNOT_READ_STREAMING_STATE_FILE|CANNOT_LOAD_STATE_STORE"
    r"|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|Stream '[^']*' is corrupted|premature EOF",
    re.I,
)


class ReadsFailures(Protocol):
    """A source that knows its own words in a failure of Spark's."""

    def failure(self, error_text: str) -> ConnectorError | None:
        """The error in the source's terms, None when it is not the source's."""


def chain(error: BaseException) -> Iterable[BaseException]:
    """The error and what caused it, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def explained(error: BaseException, sources: Sequence[ReadsFailures], log_file: Path) -> EverfoldError:
    """The error that a user is shown for a failed query."""
    for each in chain(error):
        if isinstance(each, EverfoldError):
            return each
    text = "\n".join(str(each) for each in chain(error))
    for source in sources:
        found = source.failure(text)
        if found is not None:
            return found
    timeless = find_timeless(text)
    if timeless is not None:
        return timeless.error()
    raised = _PYTHON.search(text)
    if raised:
        family = _FAMILIES.get(raised["family"], ConnectorError)
        return family(Diagnostic(raised["code"], raised["message"].strip()))
    raised = _RAISED.search(text)
    if raised:
        message = re.sub(r"( SQLSTATE: \w+)?\s*$", "", raised["message"])
        return ConnectorError(Diagnostic(raised["code"], message))
    if _NO_SPACE.search(text):
        return ConnectorError.of(
            "disk-full",
            "the disk is full",
            help="make room and run the same command again: it goes on from the last finished batch",
        )
    if _NO_PERMISSION.search(text):
        return ConnectorError.of("no-permission", "a file or folder may not be written or read", help=f"see {log_file}")
    if _DAMAGED.search(text):
        return StateError.of(
            "damaged-checkpoint", "a file of the checkpoint is damaged or missing", help=f"see {log_file}"
        )
    return EverfoldError.of(
        "job-failed", f"the job failed: {_first_line(text)}", help=f"the whole story is in {log_file}"
    )


def _first_line(text: str) -> str:
    """The first line that says something, without Spark's wrapping."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Caused by:" in line] or lines or ["no message"]
    return re.sub(
        r"^(Caused by: )?([\w.$]+(Exception|Error): )?", "", telling[-1] if "Caused by" in telling[0] else telling[0]
    )
