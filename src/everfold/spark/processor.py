"""The stateful processor, which keeps an operator's pages in Spark's state store.

This module has few imports, because Spark's driver-side worker unpickles the processor at every
query start.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import polars as pl

    from everfold.operators.protocol import Meta, Stats
    from everfold.spark.delivery import Delivery, TaskDelivery
    from everfold.state.store import PageKey

PAGE_KEY = "epoch INT, tbl STRING, at BIGINT, part INT"
PAYLOAD = "payload BINARY"


class MapStateStore:
    """A bucket's pages in a Spark MapState; Spark sets the bucket before each call."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, key: PageKey) -> bytes | None:
        found = self._state.getValue(tuple(key))
        return None if found is None else bytes(found[0])

    def put(self, key: PageKey, blob: bytes) -> None:
        self._state.updateValue(tuple(key), (bytearray(blob),))

    def delete(self, key: PageKey) -> None:
        self._state.removeKey(tuple(key))

    def begin(self, epoch: int) -> None:
        """Discard the pages of earlier epochs in the first batch of an epoch."""
        from everfold.state.bucket_head import has_head

        if not has_head(self, epoch):
            for key in [key for key in self._state.keys() if key[0] < epoch]:  # noqa: SIM118
                self._state.removeKey(key)


class BucketProcessor(StatefulProcessor):
    """Runs one operator.

    The name of the state variable has the operator's name, so a checkpoint shows which folder
    belongs to which.
    """

    def __init__(
        self,
        operator_name: str,
        operator: bytes,
        first_bucket: int,
        mark: str | None = None,
        epoch: int = 0,
        strangers: tuple[str, ...] = (),
        delivery: Delivery | None = None,
    ) -> None:
        """Create the processor; the operator is unpickled only in the workers that run it.

        first_bucket: the bucket that reports time for all.
        mark: a digest of the query that is stored in the state and compared, for checkpoints of the
        user that have no job directory.
        epoch: the epoch of the operator's state.
        strangers: other operators of the job whose state the checkpoint may contain at the start;
        it is removed.
        delivery: where the rows go; by default they are the output of the operator.
        """
        self._delivery = None if delivery is None else pickle.dumps(delivery)
        self._delivered: TaskDelivery | None = None
        self._mark, self._epoch = mark, epoch
        self._name, self._strangers = operator_name, strangers
        self._pickled = operator
        self._first_bucket = first_bucket
        self._operator: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._store = MapStateStore(handle.getMapState(f"pages_{self._name}", PAGE_KEY, "blob BINARY"))
        for name in self._strangers:
            handle.deleteIfExists(f"pages_{name}")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        from everfold.error_transport import transport_errors
        from everfold.operators.protocol import Meta
        from everfold.operators.reemit import bootstrap
        from everfold.spark.exchange import (
            BACKFILL,
            REEMIT_REQUEST,
            REEMITTED,
            decode_in_task_order,
            from_ipc,
            to_ipc,
        )
        from everfold.spark.task_input import META, READ, ROWS, STATS
        from everfold.state.pages import take_written_sizes

        if self._mark is not None:
            self._compare_mark(self._mark)
        if self._operator is None:
            self._operator = pickle.loads(self._pickled)
            self._delivered = None if self._delivery is None else pickle.loads(self._delivery).begin()
        if self._epoch:
            self._store.begin(self._epoch)
        blobs, metas = [], []
        past, given, repeat = [], [], False
        for row in rows:
            blob = bytes(row.payload)
            kind = blob[:1]
            if kind == ROWS:
                blobs.append(blob)
            elif kind == META:
                metas.append(Meta.decode(blob[1:]))
            elif kind == BACKFILL:
                past.append(from_ipc(blob))
            elif kind == REEMITTED:
                given.append(from_ipc(blob))
            elif kind == REEMIT_REQUEST:
                repeat = True
            else:
                assert kind in (STATS, READ)
                yield Row(payload=blob)
        prepared = decode_in_task_order(blobs)
        take_written_sizes()
        with transport_errors():
            first = bootstrap(self._operator, self._store, self._epoch, repeat=repeat, past=past, given=given)
            step = self._operator.step(self._store, [*first.rows, *prepared], metas)
        changed = (*first.changes, step.rows)
        if self._delivered is None:
            yield from (Row(payload=to_ipc(frame, ROWS).to_pybytes()) for frame in changed if frame.height)
        else:
            yield from (Row(payload=blob) for blob in self._delivered.deliver(key[0], changed))
        yield Row(payload=STATS + self._complete_stats(step.stats, changed, metas, key[0]).encode())
        if key[0] == self._first_bucket:
            yield Row(payload=META + step.meta.encode())

    def _complete_stats(self, stats: Stats, rows: Sequence[pl.DataFrame], metas: Sequence[Meta], bucket: int) -> Stats:
        """Add what happened in the batch: rows, pages, and the watermarks of splits."""
        from everfold.operators.protocol import Meta
        from everfold.plan.changelog import KIND, RETRACTIONS
        from everfold.state.pages import take_written_sizes

        pages = take_written_sizes()
        kinds = [frame[KIND] for frame in rows if KIND in frame.columns]
        return replace(
            stats,
            rows_out=sum(frame.height for frame in rows),
            retractions=sum(int(each.is_in(RETRACTIONS).sum() or 0) for each in kinds),
            page_rows=pages.rows,
            page_bytes=pages.bytes,
            column_bytes=pages.columns,
            splits=Meta.merge(metas).watermarks if bucket == self._first_bucket else {},
        )

    def _compare_mark(self, mark: str) -> None:
        from everfold.errors import StateError
        from everfold.state.store import PageKey

        page = PageKey(0, "query", 0, 0)
        known = self._store.get(page)
        if known is None:
            self._store.put(page, mark.encode())
        elif known != mark.encode():
            raise StateError.of("changed-query", "the state under this checkpoint belongs to another query")

    def close(self) -> None:
        pass
