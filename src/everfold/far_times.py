"""Dates and times beyond the years 1 to 9999, which Python's datetime cannot hold.

They are shown as Java shows them: `+10000-01-01`, `-0004-12-31`. The calendar repeats every 400
years, so such a time is a datetime in a near year and a number of years to add.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import tzinfo

    import pyarrow as pa

CYCLE_MS = 146_097 * 86_400_000
"""400 years, after which the calendar repeats."""
_CYCLE_YEARS = 400
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_FIRST_MS, _LAST_MS = -62_135_510_400_000, 253_402_214_400_000
"""The range of `datetime`, less a day at both ends: a zone may move a time by as much."""


def count_cycles(since_ms: int) -> int:
    """Return by how many cycles of 400 years a time is beyond the range, negative before it.

    since_ms: milliseconds since 1970. Less so many cycles, the time is in the range.
    """
    if since_ms >= _LAST_MS:
        return (since_ms - _LAST_MS) // CYCLE_MS + 1
    return 0 if since_ms > _FIRST_MS else -((_FIRST_MS - since_ms) // CYCLE_MS + 1)


def to_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the Python values of a column to be shown: as `to_pylist`, with `FarDate` and
    `FarTimestamp` where that is impossible.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_to_value(scalar) for scalar in column]
    return values


def to_zone(instant: datetime, zone: tzinfo) -> datetime:
    """Return the local time of an instant in a zone."""
    try:
        return instant.astimezone(zone)
    except OverflowError:
        beyond = _CYCLE_YEARS if instant.year > _CYCLE_YEARS else -_CYCLE_YEARS
        return FarTimestamp.of(instant.replace(year=instant.year - beyond).astimezone(zone), beyond)


class FarDate(date):
    """A date beyond the years of Python: it can only be shown."""

    years: int

    @classmethod
    def of(cls, near: date, years: int) -> FarDate:
        """Return a date that is so many years after a near one."""
        made = cls(near.year, near.month, near.day)
        made.years = years
        return made

    def isoformat(self) -> str:
        """Return the date as Java shows it."""
        return _add_years(super().isoformat(), self.years)

    __str__ = isoformat


class FarTimestamp(datetime):
    """A time beyond the years of Python: it can only be shown."""

    years: int

    @classmethod
    def of(cls, near: datetime, years: int) -> FarTimestamp:
        """Return a time that is so many years after a near one."""
        parts = (near.year, near.month, near.day, near.hour, near.minute, near.second, near.microsecond)
        made = cls(*parts, tzinfo=near.tzinfo, fold=near.fold)
        made.years = years
        return made

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """Return the time as Java shows it."""
        return _add_years(super().isoformat(sep, timespec), self.years)

    def date(self) -> FarDate:
        """Return its date."""
        return FarDate.of(super().date(), self.years)

    def astimezone(self, tz: tzinfo | None = None) -> FarTimestamp:
        """Return the local time in a zone, by the rules of the near year."""
        return FarTimestamp.of(self._near.astimezone(tz), self.years)

    def replace(self, *args: Any, **parts: Any) -> FarTimestamp:
        """Return the time with other parts."""
        return FarTimestamp.of(self._near.replace(*args, **parts), self.years)

    @property
    def _near(self) -> datetime:
        return datetime.combine(super().date(), self.timetz())


def _add_years(text: str, years: int) -> str:
    """Return the text of a near time with the year of the far one."""
    year = int(text[:4]) + years
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}{text[4:]}"


def _to_value(scalar: pa.Scalar) -> Any:
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    data_type = scalar.type
    if pa.types.is_struct(data_type):
        return {name: _to_value(value) for name, value in scalar.items()}
    if pa.types.is_map(data_type):
        return [(_to_value(pair["key"]), _to_value(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [_to_value(value) for value in scalar.values]
    is_date = pa.types.is_date32(data_type)
    if not pa.types.is_timestamp(data_type) and not is_date:
        return scalar.as_py()
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        near, years = _find_near(scalar.value * _DAY_US if is_date else scalar.value)
    if is_date:
        return FarDate.of(near.date(), years)
    return FarTimestamp.of(near if data_type.tz is None else near.replace(tzinfo=UTC), years)


def _find_near(since_us: int) -> tuple[datetime, int]:
    """Return the near time, and the years to add, of a time in microseconds since 1970."""
    cycles = count_cycles(since_us // 1000)
    return _EPOCH + timedelta(microseconds=since_us - cycles * CYCLE_MS * 1000), cycles * _CYCLE_YEARS
