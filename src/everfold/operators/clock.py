"""The clock of the operators: each bucket computes the watermark of a batch from the meta rows,
which all buckets receive, so that they agree.

It keeps the greatest watermark per split; the watermark is their minimum over the live splits and
never decreases. A split that is expected and has not delivered yet holds the watermark back. A
split without data for the idle timeout, in processing time, does not count; when none is live, the
watermark advances to the greatest one of all splits. Source: flink 2.3.

An operator flushes in the batch in which the last of its inputs has ended. A chain of operators may
learn in different batches that the tables have ended, so each waits for those below it, whose last
rows must arrive before its own flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everfold.operators.protocol import NO_WATERMARK, TABLES, ClockSpec, Meta


@dataclass(slots=True)
class Clock:
    """The clock of a bucket.

    watermark: no row below it is expected any more (UTC milliseconds; for TIMESTAMP columns of the
    wall clock). splits: the greatest watermark and the last processing time with data, by split;
    NO_WATERMARK for one that is expected but has not delivered yet. closed: end of the last window
    that a flush has emitted (in the windows' own milliseconds): everything up to there is late.
    now_ms: processing time. ended: the inputs that have ended since the last flush. flush: whether
    this batch emits all open windows.
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
        """Read a clock from the head page; a new clock if there is none."""
        if state is None:
            return cls(spec)
        splits = {name: (at, seen) for name, (at, seen) in state["splits"].items()}
        return cls(spec, state["watermark"], splits, state["closed"], state["now"], set(state.get("ended", ())))

    def encode(self) -> dict[str, Any]:
        """Return the state for the head page."""
        splits = {name: list(pair) for name, pair in sorted(self.splits.items())}
        found = {"watermark": self.watermark, "splits": splits, "closed": self.closed, "now": self.now_ms}
        return found | ({"ended": sorted(self.ended)} if self.ended else {})

    def advance(self, metas: Sequence[Meta]) -> bool:
        """Process a batch's meta rows.

        Return whether time is live: false while every split is idle or has not delivered yet, and
        the watermark does not advance.
        """
        meta = Meta.merge(metas)
        self.now_ms = max(self.now_ms, meta.now_ms)
        self._update_ended(meta)
        if self.spec.processing_time:
            self.watermark = max(self.watermark, self.now_ms - 1)
            return True
        for name in self.spec.splits:
            self.splits.setdefault(name, (NO_WATERMARK, self.now_ms))
        for name, at in meta.watermarks.items():
            before, _ = self.splits.get(name, (NO_WATERMARK, 0))
            self.splits[name] = (max(before, at), self.now_ms)
        before_all = self.watermark
        live = [watermark for watermark, seen in self.splits.values() if not self._idle(seen)]
        greatest = max((watermark for watermark, _ in self.splits.values()), default=NO_WATERMARK)
        self.watermark = max(self.watermark, min(live, default=greatest))
        return bool(live) or self.watermark > before_all

    def _update_ended(self, meta: Meta) -> None:
        reported = {*meta.ended, *([TABLES] if meta.flush else [])}
        self.ended = (self.ended | reported).intersection(self.spec.inputs)
        self.flush = self.ended == set(self.spec.inputs)
        if self.flush:
            self.ended = set()

    def close(self, end: int) -> None:
        """Record that a flush has emitted windows up to `end`."""
        self.closed = max(self.closed, end)

    def forward_meta(self, name: str, live: bool, metas: Sequence[Meta]) -> Meta:
        """Return the meta row for the operators after this one.

        An operator whose splits are all idle is idle too, and forwards no watermark.
        """
        meta = Meta.merge(metas)
        name = self.spec.name or name
        has_watermark = live and self.watermark != NO_WATERMARK
        return Meta(meta.now_ms, {name: self.watermark} if has_watermark else {}, ended=(name,) if self.flush else ())

    def _idle(self, seen: int) -> bool:
        timeout = self.spec.idle_timeout_ms
        return timeout is not None and timeout > 0 and self.now_ms - seen >= timeout
