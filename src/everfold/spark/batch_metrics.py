"""The observed metrics of batch queries, collected by a listener in the JVM.

Streams report their metrics themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everfold.connectors.skipped_rows import add_skipped_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LISTENER_TIMEOUT_MS = 120_000
"""Timeout for the listener to hear of finished queries.

Spark's default of ten seconds is too short on an overloaded machine.
"""


class _Listener:
    """A Spark QueryExecutionListener."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def onSuccess(self, function: str, execution: Any, duration: int) -> None:  # noqa: N802
        metrics = execution.observedMetrics()
        names = metrics.keysIterator()
        while names.hasNext():
            name = names.next()
            add_skipped_rows({name: [metrics.apply(name).get(0)]}, self._counts)

    def onFailure(self, function: str, execution: Any, error: Any) -> None:  # noqa: N802
        """Count nothing: a failed query has not skipped any rows."""

    class Java:
        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@contextmanager
def count_skipped_rows(spark: SparkSession) -> Iterator[dict[str, int]]:
    """Count the rows that the session's queries skip within the block, by reason.

    The dict is complete when the block ends.
    """
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
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LISTENER_TIMEOUT_MS)
    finally:
        manager.unregister(listener)
