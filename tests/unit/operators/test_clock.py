"""The clock of an operator: watermarks, idle splits, processing time, end of input."""

from __future__ import annotations

import json

import pytest

from everfold.operators.clock import Clock
from everfold.operators.protocol import NO_WATERMARK, TABLES, ClockSpec, Meta


def advance(clock: Clock, *batches: tuple[int, dict[str, int]]) -> list[int]:
    found = []
    for now_ms, watermarks in batches:
        clock.advance([Meta(now_ms, watermarks)])
        found.append(clock.watermark)
    return found


def test_the_watermark_is_the_minimum_over_splits_and_never_decreases() -> None:
    clock = Clock(ClockSpec(splits=("a", "b")))
    steps = advance(clock, (0, {"a": 10}), (1, {"b": 5}), (2, {"b": 30}), (3, {"a": 4}), (4, {"a": 40}))
    assert steps == [NO_WATERMARK, 5, 10, 10, 30]


def test_an_unexpected_split_counts_too() -> None:
    assert advance(Clock(ClockSpec(splits=("a",))), (0, {"a": 10}), (1, {"new": 3, "a": 20})) == [10, 10]


def test_several_meta_rows_of_a_batch_are_merged() -> None:
    clock = Clock(ClockSpec(splits=("a",)))
    clock.advance([Meta(5, {"a": 1}), Meta(7, {"a": 9}), Meta(6)])
    assert (clock.watermark, clock.now_ms) == (9, 7)


def test_idle_splits_are_ignored_until_they_advance() -> None:
    clock = Clock(ClockSpec(splits=("a", "b"), idle_timeout_ms=100))
    assert advance(clock, (0, {"a": 10}), (99, {"a": 20}), (100, {"a": 30})) == [NO_WATERMARK, NO_WATERMARK, 30]
    assert advance(clock, (110, {"a": 40, "b": 35}), (120, {"a": 50})) == [35, 35]


@pytest.mark.parametrize(("last", "watermarks"), [("a", [5, 5, 10]), ("b", [5, 6, 6])])
def test_when_all_splits_are_idle_the_greatest_watermark_counts(last: str, watermarks: list[int]) -> None:
    """As in Flink 2.3, whichever split was active last."""
    clock = Clock(ClockSpec(splits=("a", "b"), idle_timeout_ms=100))
    assert advance(clock, (0, {"a": 10, "b": 5}), (50, {last: 6}), (120, {})) == watermarks
    clock.advance([Meta(200)])
    assert clock.watermark == 10
    assert clock.advance([Meta(300)]) is False
    assert clock.forward_meta("w1", False, [Meta(300)]).watermarks == {}
    assert clock.forward_meta("w1", True, [Meta(300)]) == Meta(300, {"w1": 10})


def test_all_splits_become_idle_at_once() -> None:
    clock = Clock(ClockSpec(splits=("a", "b"), idle_timeout_ms=100))
    assert advance(clock, (0, {"a": 10, "b": 5}), (200, {})) == [5, 10]


def test_splits_without_rows_have_no_watermark_when_they_are_idle() -> None:
    clock = Clock(ClockSpec(splits=("a", "b"), idle_timeout_ms=100))
    assert advance(clock, (0, {}), (200, {}), (210, {"a": 7})) == [NO_WATERMARK, NO_WATERMARK, 7]


def test_no_watermark_is_forwarded_before_the_first_one() -> None:
    clock = Clock(ClockSpec(splits=("a",)))
    assert clock.forward_meta("w1", clock.advance([Meta(3)]), [Meta(3)]) == Meta(3)


def test_processing_time_never_decreases() -> None:
    assert advance(Clock(ClockSpec(splits=(), processing_time=True)), (100, {}), (90, {}), (101, {})) == [99, 99, 100]


def test_an_operator_flushes_when_the_last_of_its_inputs_has_ended() -> None:
    spec = ClockSpec(splits=(), inputs=(TABLES, "w1", "w2"))
    clock = Clock(spec)
    flushed = []
    for meta in (Meta(0, ended=["w2", "w9"]), Meta(1, flush=True), Meta(2, flush=True), Meta(3, ended=["w1"]), Meta(4)):
        clock = Clock.decode(spec, json.loads(json.dumps(clock.encode())))
        clock.advance([Meta(meta.now_ms), meta])
        flushed.append(clock.flush)
        assert clock.forward_meta("w3", True, [meta]).ended == ("w3",) * clock.flush
    assert flushed == [False, False, False, True, False]


def test_an_operator_above_another_does_not_flush_on_its_own() -> None:
    # Both see that the tables have ended, the upper one perhaps a batch earlier than the one below
    # it.
    clock = Clock(ClockSpec(splits=("w1",), inputs=("w1",)))
    clock.advance([Meta(0, flush=True)])
    assert not clock.flush


def test_an_encoded_clock_is_decoded_unchanged() -> None:
    spec = ClockSpec(splits=("a", "b"), idle_timeout_ms=100)
    clock = Clock(spec)
    advance(clock, (0, {"a": 10}), (50, {"b": 7}))
    clock.close(60)
    clock.close(40)
    again = Clock.decode(spec, json.loads(json.dumps(clock.encode())))
    assert again == clock
    assert again.closed == 60
    assert Clock.decode(spec, None) == Clock(spec)
