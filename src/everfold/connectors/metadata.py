"""Convert metadata, such as the time of a record, to the type of a column.

The rules are those of a cast in Spark SQL.
"""

from __future__ import annotations

from typing import Any

from everfold.types import DataType, TimestampType


def convert_metadata(values: Any, data_type: DataType, zone: str) -> Any:
    """Return an Arrow array of metadata in the type of a column.

    values: of any type that Spark SQL casts to that of the column. zone: of the session. An instant
    becomes the local time of the zone in a TIMESTAMP without a zone, as a cast does.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_instant = pa.types.is_timestamp(values.type) and values.type.tz is not None
    if is_instant and isinstance(data_type, TimestampType) and not data_type.local_zone:
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    if pa.types.is_timestamp(values.type) and pa.types.is_timestamp(data_type.arrow):
        return values.cast(data_type.arrow, safe=False)
    return values.cast(data_type.arrow)
