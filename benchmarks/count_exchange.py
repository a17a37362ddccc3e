"""Counters of what the exchange of an operator sends through the shuffle.

This module is the workers' daemon for `buckets.py`: it loads everfold's daemon, wraps the exchange,
and writes a line for each of its tasks to a file of the process.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FOLDER = "EVERFOLD_EXCHANGE_FOLDER"


def count_payloads(pack: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return an exchange that counts its rows and bytes by the kind of the payload."""
    from pyspark import TaskContext

    from everfold.spark.exchange import Pack

    @functools.wraps(pack)
    def counted(self: Pack, batches: Iterator[Any]) -> Iterator[Any]:
        found: dict[str, list[int]] = {}
        for wire in pack(self, batches):
            for payload in wire.column(1):
                blob = payload.as_buffer()
                of = found.setdefault(blob[:1].to_pybytes().decode(), [0, 0])
                of[0] += 1
                of[1] += blob.size
            yield wire
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        line = json.dumps({"batch": batch, "operator": self.operator.name, "found": found})
        with Path(os.environ[FOLDER], f"{os.getpid()}.jsonl").open("a") as file:
            file.write(line + "\n")

    return counted


if __name__ == "__main__":
    import count_exchange
    from pyspark.daemon import manager

    import everfold.spark.daemon
    from everfold.spark import exchange

    everfold.spark.daemon.load_modules()
    exchange.Pack.__call__ = count_exchange.count_payloads(exchange.Pack.__call__)  # type: ignore[method-assign]
    manager()
