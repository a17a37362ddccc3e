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

_DAY_US = 86_400_000_000
_CYCLE_YEARS, _CYCLE_US = 400, 146_097 * _DAY_US
_EPOCH = datetime(1970, 1, 1)
_YEARS_BEFORE, _YEARS_AFTER = datetime(401, 1, 1), datetime(9600, 1, 1)
"""The first days of the 400 near years for times before the year 1, and after 9999."""


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
    of = scalar.type
    if pa.types.is_struct(of):
        return {name: _to_value(value) for name, value in scalar.items()}
    if pa.types.is_map(of):
        return [(_to_value(pair["key"]), _to_value(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return [_to_value(value) for value in scalar.values]
    if not pa.types.is_timestamp(of) and not pa.types.is_date32(of):
        return scalar.as_py()
    micros = scalar.value * _DAY_US if pa.types.is_date32(of) else scalar.value
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        near, years = _find_near(micros)
    if pa.types.is_date32(of):
        return FarDate.of(near.date(), years)
    return FarTimestamp.of(near if of.tz is None else near.replace(tzinfo=UTC), years)


def _find_near(since_us: int) -> tuple[datetime, int]:
    """Return the near time, and the years to add, of a time in microseconds since 1970."""
    first = _YEARS_AFTER if since_us > 0 else _YEARS_BEFORE
    cycles, rest = divmod(since_us - (first - _EPOCH) // timedelta(microseconds=1), _CYCLE_US)
    return first + timedelta(microseconds=rest), cycles * _CYCLE_YEARS
