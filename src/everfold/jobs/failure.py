"""Turn failures of Spark into errors for users.

everfold's own errors are recovered as they were raised. Any other failure becomes one line and the
path of the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from everfold.checkpoint.damage import damaged_checkpoint_error, find_damaged_file
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.null_rowtime import find_null_rowtime
from everfold.error_transport import MESSAGE_START, extract_error
from everfold.errors import ConnectorError, Diagnostic, EverfoldError, SqlError, StateError
from everfold.storage import Location

_RAISED = re.compile(rf"USER_RAISED_EXCEPTION\] {MESSAGE_START}(?P<message>[^\n]*)")
_PYTHON = re.compile(r"everfold\.errors\.(?P<family>\w+): error\[(?P<code>[a-z0-9-]+)\]: (?P<message>[^\n]*)")
_FAMILIES: dict[str, type[EverfoldError]] = {each.__name__: each for each in (ConnectorError, StateError, SqlError)}
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.I)
_NO_PERMISSION = re.compile(
    r"(?P<path>/[^\s:'\",()]+)?[^\n/]*(?:Permission denied|AccessDenied|Read-only file system)", re.I
)
_WRAPPING = re.compile(
    r"^(?:Caused by: |\[STREAM_FAILED\].*? terminated with exception: "
    r"|Job aborted due to stage failure: .*? executor [^)]*\): |(?:[\w$]+\.)+[\w$]+(?:Exception|Error): )+"
)
_STATE = re.compile(r"(?:\s*SQLSTATE: \w+)+\s*$")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*((?:[\w.]+\.)?\w+: [^\n]+)")
_MISSING = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|PATH_NOT_FOUND|does not exist")
_NO_WORKER = re.compile(r"Python worker failed to connect back|Timed out while waiting for the Python worker")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_NO_PYARROW = re.compile(r"PACKAGE_NOT_INSTALLED\] (?P<name>\w+)")
_NO_MEMORY = re.compile(r"OutOfMemoryError|GC overhead limit exceeded")
_NO_JVM = re.compile(r"Answer from Java side is empty|Error while (?:sending|receiving)")
_WORKER_DIED = re.compile(
    r"Python worker exited unexpectedly|Python worker process terminated|The Python worker has crashed"
    r"|driver worker exited unexpectedly"
)
_WORKER_HUNG_UP = re.compile(r"java\.io\.EOFException|java\.net\.SocketException: (?:Connection reset|Broken pipe)")
_CHECKSUM = re.compile(r"^\.(.+)\.crc$")
_MORE_MEMORY = "--conf spark.driver.memory=4g"
_QUERY = "=== Streaming Query ==="
"""Start of Spark's description of the query.

Its plan contains the messages of errors that have not happened.
"""
_DAMAGED = re.compile(
    r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|CANNOT_READ_STREAMING_STATE_FILE|CANNOT_LOAD_STATE_STORE"
    r"|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|MISSING_STATE_DIRECTORY|Stream '[^']*' is corrupted|premature EOF"
    r"|No usable value for|Incomplete log file|log file was malformed|batch \d+ doesn't exist|Invalid UUID string",
    re.I,
)


class ReadsFailures(Protocol):
    """A source that recognizes its own errors in a failure of Spark."""

    def failure(self, error_text: str) -> ConnectorError | None:
        """Return the source's error, None if the failure has another cause."""


def error_chain(error: BaseException) -> Iterable[BaseException]:
    """Yield an error and its causes, outermost first."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def explain_failure(
    error: BaseException, sources: Sequence[ReadsFailures], log_file: Path, job: Location | None = None
) -> EverfoldError:
    """Return the error that a user sees for a failed query.

    job: the job directory, None for a query without one.
    """
    for each in error_chain(error):
        if isinstance(each, EverfoldError):
            return each
    text = "\n".join(str(each).partition(_QUERY)[0] for each in error_chain(error))
    own = extract_error(text)
    if own is not None:
        return own
    for source in sources:
        found = source.failure(text)
        if found is not None:
            return found
    timeless = find_null_rowtime(text)
    if timeless is not None:
        return timeless.error()
    raised = _PYTHON.search(text)
    if raised:
        family = _FAMILIES.get(raised["family"], ConnectorError)
        return family(Diagnostic(raised["code"], raised["message"].strip()))
    raised = _RAISED.search(text)
    if raised:
        return ConnectorError(Diagnostic(raised["code"], _STATE.sub("", raised["message"])))
    if _NO_SPACE.search(text):
        from everfold.spark.executors import find_full_disk

        full = find_full_disk(text)
        if full is not None:
            return full
        return ConnectorError.of(
            "disk-full",
            f"the disk is full; the job directory is `{job or log_file.parent}`",
            help="free some space and run the same command again to resume after the last finished batch",
        )
    denied = _NO_PERMISSION.search(text)
    if denied:
        what = f"`{denied['path']}`" if denied["path"] else "a file or folder"
        return ConnectorError.of("no-permission", f"no permission to read or write {what}", help=f"see {log_file}")
    missing = _NO_MODULE.search(text) or _NO_PYARROW.search(text)
    if missing:
        return missing_package_error(missing["name"])
    file = None if job is None else _file_of(job, text)
    if job is not None and (_DAMAGED.search(text) or (file is not None and _MISSING.search(text))):
        return damaged_checkpoint_error(file or find_damaged_file(job) or job / "checkpoints")
    if _NO_MEMORY.search(text):
        return EverfoldError.of("out-of-memory", "Spark is out of memory", help=f"give it more: {_MORE_MEMORY}")
    if spark_died(error):
        return EverfoldError.of(
            "spark-died",
            f"the Spark JVM exited unexpectedly; see {log_file}",
            help=f"run the same command again to resume. If it ran out of memory: {_MORE_MEMORY}",
        )
    if _WORKER_DIED.search(text):
        return worker_died_error(log_file)
    if _NO_WORKER.search(text):
        return EverfoldError.of(
            "no-worker",
            "a Python worker of Spark did not start within Spark's limit of ten seconds",
            help="the machine is overloaded: run the same command again to resume",
        )
    for each in error_chain(error):
        if isinstance(each, OSError):
            what = f"`{each.filename}`" if each.filename else "a file"
            return file_system_error(each, f"{what} cannot be read or written", f"see {log_file}")
    broken = None if job is None else find_damaged_file(job)
    if broken is not None:
        return damaged_checkpoint_error(broken)
    if _WORKER_HUNG_UP.search(text):
        return worker_died_error(log_file)
    return EverfoldError.of("job-failed", f"the job failed: {_first_line(text)}", help=f"for details see {log_file}")


def spark_died(error: BaseException) -> bool:
    """Whether an error says that the JVM no longer answers."""
    found = list(error_chain(error))
    return any(isinstance(each, ConnectionError) for each in found) or any(_NO_JVM.search(str(each)) for each in found)


@contextmanager
def spark_may_be_gone() -> Iterator[None]:
    """Ignore in the block that the JVM has exited: the caller reports that."""
    try:
        yield
    except Exception as error:
        if not spark_died(error):
            raise


def missing_package_error(name: str) -> EverfoldError:
    """Return the error for a package that the Python of Spark's workers lacks."""
    return EverfoldError.of(
        "missing-worker-package",
        f"the Python of Spark's workers has no package `{name.partition('.')[0].lower()}`",
        help="install it there, on every machine of the cluster, or let PYSPARK_PYTHON name a Python that has it",
    )


def worker_died_error(log_file: Path) -> EverfoldError:
    """Return the error for a Python worker that was killed or has crashed."""
    return EverfoldError.of(
        "spark-died",
        f"a Python worker of Spark exited unexpectedly; see {log_file}",
        help="run the same command again to resume."
        " If the machine is short of memory, the system may have killed the worker",
    )


def _file_of(folder: Location, text: str) -> Location | None:
    """Return the file in the folder that a message is about: the first one that is missing.

    If all of them exist, the first one. The checksum of a file stands for the file.
    """
    named: list[Location] = []
    as_uri = quote(str(folder))
    found = re.finditer(rf"({re.escape(str(folder))}|{re.escape(as_uri)})(/[^\s'\",()]+)", text)
    for each in found:
        inside = each[2].rstrip(".:;]")
        path = folder / (inside if each[1] == str(folder) else unquote(inside)).lstrip("/")
        if not path.is_dir():
            named.append(path.with_name(_CHECKSUM.sub(r"\1", path.name)))
    return next((each for each in named if not each.exists()), next(iter(named), None))


def _first_line(text: str) -> str:
    """Return the most telling line of a message, without Spark's wrapping.

    This is the last line of a Python traceback, else the innermost `Caused by:` line, else the
    first line.
    """
    raised = _TRACEBACK.findall(text)
    if raised:
        return _STATE.sub("", raised[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    telling = causes[-1] if causes else next(iter(lines), "no message")
    return _STATE.sub("", _WRAPPING.sub("", telling)) or telling
