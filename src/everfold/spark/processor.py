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
    belongs to which. An operator that has started with a copy of the state of another one keeps the
    name of that one.
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
        self._metas: dict[int, Meta | None] = {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._store = MapStateStore(handle.getMapState(f"pages_{self._name}", PAGE_KEY, "blob BINARY"))
        for name in self._strangers:
            handle.deleteIfExists(f"pages_{name}")
        self._metas = {}  # those of a Spark task, which steps its buckets in the order of their ids

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        from everfold.error_transport import transport_errors
        from everfold.operators.protocol import Meta
        from everfold.operators.reemit import bootstrap
        from everfold.spark.exchange import (
            BACKFILL,
            REEMIT_REQUEST,
            REEMITTED,
            decode_in_order,
            from_ipc,
            read_leader,
            to_ipc,
        )
        from everfold.spark.task_input import CALL, META, READ, ROWS, STATS
        from everfold.state.pages import take_written_sizes

        if self._mark is not None:
            self._compare_mark(self._mark)
        if self._operator is None:
            self._operator = pickle.loads(self._pickled)
            self._delivered = None if self._delivery is None else pickle.loads(self._delivery).begin()
        bucket: int = key[0]
        blobs, metas, leader = [], [], None
        past, given, repeat = [], [], False
        for row in rows:
            blob = bytes(row.payload)
            kind = blob[:1]
            if kind == ROWS:
                blobs.append(blob)
            elif kind == META:
                metas.append(Meta.decode(blob[1:]))
            elif kind == CALL:
                leader = read_leader(blob)
            elif kind == BACKFILL:
                past.append(from_ipc(blob))
            elif kind == REEMITTED:
                given.append(from_ipc(blob))
            elif kind == REEMIT_REQUEST:
                repeat = True
            else:
                assert kind in (STATS, READ)
                yield Row(payload=blob)
        if metas or leader == bucket:
            self._metas[bucket] = Meta.merge(metas) if metas else None
        assert leader in self._metas, f"bucket {bucket} has no meta rows: {leader} was not stepped before it"
        meta = self._metas[leader]
        if meta is None:  # no task had rows
            assert not any((blobs, past, given, repeat)), f"bucket {bucket} has rows, but there are no meta rows"
            return
        if self._epoch:
            self._store.begin(self._epoch)
        prepared = decode_in_order(blobs, meta.files)
        take_written_sizes()
        with transport_errors():
            first = bootstrap(self._operator, self._store, self._epoch, repeat=repeat, past=past, given=given)
            step = self._operator.step(self._store, [*first.rows, *prepared], [meta])
        changed = (*first.changes, step.rows)
        if self._delivered is None:
            yield from (Row(payload=to_ipc(frame, ROWS).to_pybytes()) for frame in changed if frame.height)
        else:
            yield from (Row(payload=blob) for blob in self._delivered.deliver(bucket, changed))
        yield Row(payload=STATS + self._complete_stats(step.stats, changed, meta, bucket).encode())
        if bucket == self._first_bucket:
            yield Row(payload=META + step.meta.encode())

    def _complete_stats(self, stats: Stats, rows: Sequence[pl.DataFrame], meta: Meta, bucket: int) -> Stats:
        """Add what happened in the batch: rows, pages, and the watermarks of splits."""
        from everfold.plan.changelog import KIND, RETRACTIONS
        from everfold.state.pages import take_written_sizes

        pages = take_written_sizes()
        kinds = [frame[KIND].to_numpy() for frame in rows if frame.height and KIND in frame.columns]
        return replace(
            stats,
            rows_out=sum(frame.height for frame in rows),
            retractions=sum(int((each == kind).sum()) for each in kinds for kind in RETRACTIONS),
            page_rows=pages.rows,
            page_bytes=pages.bytes,
            column_bytes=pages.columns,
            splits=meta.watermarks if bucket == self._first_bucket else {},
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
