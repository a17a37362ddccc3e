"""Stop a job from another process: a request in its job directory, which the owner looks for.

`stop.json` names the process that is to stop. So a request that comes too late does not stop the
next run of the job, and none has to be removed in time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from everfold.errors import StateError
from everfold.jobs.ownership import describe_process
from everfold.jobs.status import find_owner
from everfold.storage import Location

REQUEST = "stop.json"
_LOCAL_POLL_S, _STORE_POLL_S = 0.2, 2.0


@dataclass(slots=True)
class StopSignal:
    """Whether a job is to stop: its caller wants it, or another process has requested it.

    folder: the job directory. owner: this process, as the owner of the folder. asked: the caller's
    function. note: called with a sentence about a request.
    """

    folder: Location
    owner: str
    asked: Callable[[], bool]
    note: Callable[[str], None] = field(repr=False)
    is_requested: bool = False
    _looked_at: float = 0.0

    def __call__(self) -> bool:
        """Return whether the job is to stop."""
        return self.asked() or self._find_request()

    def _find_request(self) -> bool:
        if self.is_requested or time.monotonic() - self._looked_at < _poll_s(self.folder):
            return self.is_requested
        self._looked_at = time.monotonic()
        request = self.folder / REQUEST
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(request.read_bytes())
            if found["owner"] == self.owner:
                self.is_requested = True
                self.note(f"stopping after the running batch, on request of {found['requested_by']}")
                request.delete()
        return self.is_requested


def request_stop(folder: Location, timeout_s: float) -> str | None:
    """Ask the process that runs a job to stop it, and wait until it has.

    Returns that process, or None if no process runs the job. Raises StateError `stop-timeout` if
    it runs it still after the time, UsageError `no-job`, OSError.
    """
    owner = find_owner(folder)
    if owner is None:
        return None
    (folder / REQUEST).write(json.dumps({"owner": owner, "requested_by": describe_process()}))
    deadline = time.monotonic() + timeout_s
    while find_owner(folder) == owner:
        if time.monotonic() > deadline:
            raise StateError.of(
                "stop-timeout",
                f"the job in `{folder}` is still being run by {owner}, {timeout_s:g} s after the request to stop",
                help="it stops after the running batch; wait with a longer --timeout, or end that process:"
                " the next start replays the batch",
            )
        time.sleep(_poll_s(folder))
    return owner


def _poll_s(folder: Location) -> float:
    return _LOCAL_POLL_S if folder.store.is_local else _STORE_POLL_S
