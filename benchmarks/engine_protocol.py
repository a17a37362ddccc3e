"""How `run.py` and an engine's script talk: a JSON line per request on standard input, a JSON line
per reply on standard output.

The script runs in the engine's own environment, so this module imports nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

CHECK, RUN, STREAM = "check", "run", "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Run a query over an input.

    action: `check` returns the summary of the result, `run` the time into a sink that drops all
    rows. `stream` writes the result to a sink until the process is ended.
    connector, sink: the options of the source table, and of the sink of `stream`.
    """

    action: str
    query: str
    connector: dict[str, str] = field(default_factory=dict)
    sink: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def serve(answer: Callable[[Request], dict[str, Any]]) -> None:
    """Answer requests until the input ends."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(Request(**json.loads(line)))), flush=True)
