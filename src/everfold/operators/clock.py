"""The operators' own clock: the watermark of a batch from the meta rows that every bucket gets, so that all buckets agree.

Per split the greatest watermark seen; the minimum over the live splits; never backwards. A split that is expected and has not
delivered yet holds time back. A split without data for the idle timeout of processing time does not count; when none is live, time
goes on to what the last ones said, and stands still there. Source: Flink's watermark strategies.

An operator flushes in the batch in which the last of its inputs has ended: the operators behind one another may hear in different
batches that the tables have, so each waits for those below it, whose last rows are to come before its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everfold.operators.protocol import NO_WATERMARK, TABLES, ClockSpec, Meta


@dataclass(slots=True)
class Clock:
    """The clock of a bucket.

    watermark: no row below it is expected any more (UTC milliseconds; for TIMESTAMP columns of the wall clock). splits: greatest
    watermark and last processing time with data, by split; NO_WATERMARK for one that is expected but never delivered. closed: end of
    the last window that a flush has emitted (in the windows' own milliseconds): up to there everything is late. now_ms: processing time.
    ended: the inputs that have ended since the last flush. flush: whether in this batch what is open is emitted.
    """

    spec: ClockSpec
    watermark: int = NO_WATERMARK
    splits: dict[str, tuple[int, int]] = field(default_factory=dict)
    closed: int = NO_WATERMARK
    now_ms: int = NO_WATERMARK
    ended: set[str] = field(default_factory=set)
    flush: bool = False

    @classmethod
    def decode(cls, spec: ClockSpec, state: dict[str, Any] | None) -> Clock:
        """From the head page; a new clock if there is none."""
        if state is None:
            return cls(spec)
        splits = {name: (at, seen) for name, (at, seen) in state["splits"].items()}
        return cls(spec, state["watermark"], splits, state["closed"], state["now"], set(state.get("ended", ())))

    def encode(self) -> dict[str, Any]:
        """For the head page."""
        splits = {name: list(pair) for name, pair in sorted(self.splits.items())}
        found = {"watermark": self.watermark, "splits": splits, "closed": self.closed, "now": self.now_ms}
        return found | ({"ended": sorted(self.ended)} if self.ended else {})

    def advance(self, metas: Sequence[Meta]) -> bool:
        """Takes a batch's meta rows. Answers whether time is live: false while every split is idle or has yet to come, and has no more to say."""
        meta = Meta.joined(metas)
        self.now_ms = max(self.now_ms, meta.now_ms)
        self._hear_of_the_end(meta)
        if self.spec.processing_time:
            self.watermark = max(self.watermark, self.now_ms - 1)
            return True
        for name in self.spec.splits:
            self.splits.setdefault(name, (NO_WATERMARK, self.now_ms))
        for name, at in meta.watermarks.items():
            before, _ = self.splits.get(name, (NO_WATERMARK, 0))
            self.splits[name] = (max(before, at), self.now_ms)
        before_all = self.watermark
        live = [at for at, seen in self.splits.values() if not self._idle(seen)]
        heard = live or self._last_heard()
        if heard:
            self.watermark = max(self.watermark, min(heard))
        return bool(live) or self.watermark > before_all

    def _hear_of_the_end(self, meta: Meta) -> None:
        told = {*meta.ended, *([TABLES] if meta.flush else [])}
        self.ended = (self.ended | told).intersection(self.spec.inputs)
        self.flush = self.ended == set(self.spec.inputs)
        if self.flush:
            self.ended = set()

    def _last_heard(self) -> list[int]:
        """The watermarks of the splits that spoke last: when all are idle, they were the last to become so, and alone until then."""
        spoken = [(at, seen) for at, seen in self.splits.values() if at != NO_WATERMARK]
        latest = max((seen for _, seen in spoken), default=0)
        return [at for at, seen in spoken if seen == latest]

    def close(self, end: int) -> None:
        """Remembers that a flush has emitted windows up to `end`."""
        self.closed = max(self.closed, end)

    def forwarded(self, name: str, live: bool, metas: Sequence[Meta]) -> Meta:
        """What the operators behind this one hear; an operator whose splits are all idle is idle too and says nothing of the time."""
        meta = Meta.joined(metas)
        told = live and self.watermark != NO_WATERMARK
        return Meta(meta.now_ms, {name: self.watermark} if told else {}, ended=(name,) if self.flush else ())

    def _idle(self, seen: int) -> bool:
        timeout = self.spec.idle_timeout_ms
        return timeout is not None and timeout > 0 and self.now_ms - seen >= timeout
