"""The observed metrics of batch queries. A stream reports them itself; of a batch they come from a listener in the JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everfold.connectors.skipped_rows import add_left_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PATIENCE_MS = 120_000
"""How long the listener may take to hear of queries that are done; Spark's own ten seconds are not enough for a machine that is busy."""


class _Listener:
    """A QueryExecutionListener of Spark's."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def onSuccess(self, function: str, execution: Any, duration: int) -> None:  # noqa: N802
        metrics = execution.observedMetrics()
        names = metrics.keysIterator()
        while names.hasNext():
            name = names.next()
            add_left_out({name: [metrics.apply(name).get(0)]}, self._counts)

    def onFailure(self, function: str, execution: Any, error: Any) -> None:  # noqa: N802
        """A query that failed has left out nothing."""

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@contextmanager
def left_out(spark: SparkSession) -> Iterator[dict[str, int]]:
    """How many rows the session's queries leave out meanwhile, by why; filled when the block ends."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    counts: dict[str, int] = {}
    manager = spark._jsparkSession.listenerManager()
    listener = _Listener(counts)
    manager.register(listener)
    try:
        yield counts
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_PATIENCE_MS)
    finally:
        manager.unregister(listener)
