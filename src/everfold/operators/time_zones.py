"""Windows over TIMESTAMP_LTZ: they align on the wall clock of a time zone, while the watermark is
an instant.

Units: milliseconds since 1970, of the wall clock ("local") or of UTC. A zone of None means that
both are the same (TIMESTAMP). Source: flink 2.3 through the oracle. A wall clock time that occurs
twice is over when it has occurred the second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from everfold.far_times import CYCLE_MS, count_cycles
from everfold.operators.protocol import END_OF_TIME, NO_WATERMARK

_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?")
_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


@lru_cache(maxsize=16)
def zone_of(name: str) -> tzinfo:
    """Return the time zone with a name: `Europe/Berlin`, `UTC`, or an offset in Flink's notation
    (`GMT+08:00`, `+02:00`).
    """
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    sign, hours, minutes = offset.groups()
    length = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-length if sign == "-" else length)


def closed_until(watermark: int, zone: str | None) -> int:
    """Return the greatest local end of a window such that every window up to it is complete: no
    instant after the watermark is in one.
    """
    if watermark == NO_WATERMARK or watermark >= END_OF_TIME:
        return watermark
    if zone is None:
        return watermark + 1
    shift_ms = count_cycles(watermark + 1) * CYCLE_MS
    near_ms, rules = watermark + 1 - shift_ms, zone_of(zone)
    wall = _wall(near_ms, rules)
    second = wall.replace(fold=1)
    if wall.fold == 0 and second.utcoffset() != wall.utcoffset():
        # The hour occurs for the first time and will be repeated: windows that end in it are still
        # open.
        low, high = near_ms, _instant(second)
        while high - low > 1:
            middle = (low + high) // 2
            if _wall(middle, rules).utcoffset() == wall.utcoffset():
                low = middle
            else:
                high = middle
        wall = _wall(high, rules)
    return (wall.replace(tzinfo=None) - _EPOCH) // _MS + shift_ms


def to_utc(local_ms: Iterable[int], zone: str | None) -> dict[int, int]:
    """Return the instant of each wall clock time.

    Of two instants the earlier one is returned. A time that a clock change skips is moved forward
    by the length of the change.
    """
    if zone is None:
        return {at: at for at in local_ms}
    rules = zone_of(zone)
    instants = {}
    for wall_ms in local_ms:
        shift_ms = count_cycles(wall_ms) * CYCLE_MS
        instants[wall_ms] = _instant((_EPOCH + (wall_ms - shift_ms) * _MS).replace(tzinfo=rules)) + shift_ms
    return instants


def _wall(utc_ms: int, rules: tzinfo) -> datetime:
    return (_EPOCH + utc_ms * _MS).replace(tzinfo=UTC).astimezone(rules)


def _instant(wall: datetime) -> int:
    return (wall.astimezone(UTC).replace(tzinfo=None) - _EPOCH) // _MS
