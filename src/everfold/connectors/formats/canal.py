"""Format `canal-json`: changes of MySQL tables as Canal writes them.

A record has a list of rows, the `type` of the change, and for updates the old values. For each row
of `data`, INSERT is +I, UPDATE is -U and +U, DELETE is -D; CREATE has no rows. `old` contains only
the columns that changed; the others are the same as in `data`. (Flink looks for a column in `old`
of all rows, not of the row itself: if rows of one record changed in different columns, it sets
some of them to NULL.) Added rows are written as INSERT, retracted rows as DELETE.
Source: Flink 2.3 (asked of it, 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from everfold.connectors.formats.envelope import (
    COMMON,
    Envelope,
    Rows,
    declared_metadata,
    is_retraction,
    milliseconds_or_none,
    text_or_none,
)
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat, text_of
from everfold.connectors.formats.text_decode import BadValue, TextRules, converter
from everfold.connectors.options import Option, OptionSet, OptionValues
from everfold.plan.changelog import RowKind
from everfold.plan.nodes import Table
from everfold.types import BIGINT, INT, STRING, TIMESTAMP_LTZ3, ArrayType, DataType, MapType, RowType

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = OptionSet(
    (
        Option("database.include", "regex", meaning="regular expression for the databases whose changes are read"),
        Option("table.include", "regex", meaning="regular expression for the tables whose changes are read"),
        *COMMON.options,
    )
)
METADATA: dict[str, DataType] = {
    "database": STRING,
    "table": STRING,
    "sql-type": MapType(key=STRING, value=INT),
    "pk-names": ArrayType(element=STRING),
    "ingestion-timestamp": TIMESTAMP_LTZ3,
}
_MEMBERS: dict[str, tuple[str, DataType]] = {
    "database": ("database", STRING),
    "table": ("table", STRING),
    "sql-type": ("sqlType", MapType(key=STRING, value=INT)),
    "pk-names": ("pkNames", ArrayType(element=STRING)),
    "ingestion-timestamp": ("ts", BIGINT),
}
_to_int = converter(INT, TextRules())


@dataclass(frozen=True, slots=True)
class CanalFormat(Envelope):
    """Canal's JSON with a table's options.

    databases, tables: regular expressions for what is read, None for all.
    """

    databases: str | None = None
    tables: str | None = None

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        values = JsonFormat.of_values(options, prefix)
        return cls(
            ignore_errors=values.ignore_errors,
            ignore_option=values.ignore_option,
            json=values,
            metadata_keys=declared_metadata(table),
            databases=options.string_or_none(f"{prefix}database.include"),
            tables=options.string_or_none(f"{prefix}table.include"),
        )

    # -- decoding ----------------------------------------------------------------------------------

    def members(self, row: RowType) -> Sequence[tuple[str, DataType]]:
        """Return `data`, `old`, `type`, and the members that filters and metadata need."""
        found: dict[str, DataType] = {"data": ArrayType(element=row), "old": ArrayType(element=row), "type": STRING}
        found |= {name: STRING for name, wanted in (("database", self.databases), ("table", self.tables)) if wanted}
        found |= dict(_MEMBERS[key] for key in self.metadata_keys)
        return list(found.items())

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        """The types of metadata by key."""
        return METADATA

    def metadata_of(self, members: Mapping[str, Any], key: str) -> object:
        """Return the metadata with a key."""
        value = members[_MEMBERS[key][0]]
        match key:
            case "ingestion-timestamp":
                return milliseconds_or_none(value)
            case "sql-type":
                return None if value is None else [(name, _number_or_none(of)) for name, of in value.items()]
            case "pk-names":
                return None if value is None else [text_or_none(name) for name in value]
            case _:
                return text_or_none(value)

    def is_skipped(self, texts: Mapping[str, str | None]) -> bool:
        """Return whether the object is filtered out by database or table, or is a CREATE."""
        for name, pattern in (("database", self.databases), ("table", self.tables)):
            if pattern:
                found = texts[name]
                if found is None:
                    raise BadValue(f"it has no `{name}`")
                if re.fullmatch(pattern, found) is None:
                    return True
        return texts["type"] == "CREATE"

    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """Return the rows by `type`."""
        data, old, kind = members["data"], members["old"], members["type"]
        match kind:
            case "INSERT" | "UPDATE" | "DELETE":
                if data is None or None in data:
                    raise BadValue("`data` is not a list of rows")
                if kind != "UPDATE":
                    return [(RowKind.INSERT if kind == "INSERT" else RowKind.DELETE, "data[].", row) for row in data]
                if old is None or len(old) != len(data) or None in old:
                    raise BadValue("`old` of an update does not have a row for each row of `data`")
                pairs = zip(data, old, strict=True)
                return [
                    each
                    for now, was in pairs
                    for each in ((RowKind.UPDATE_BEFORE, "", {**now, **was}), (RowKind.UPDATE_AFTER, "data[].", now))
                ]
            case None:
                raise BadValue("it has no `type`")
            case _:
                raise BadValue(f"`type` is `{kind}`: it must be INSERT, UPDATE, DELETE or CREATE")

    # -- encoding ----------------------------------------------------------------------------------

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return an object for each change."""
        import polars as pl

        kind = pl.when(is_retraction(rows)).then(pl.lit("DELETE")).otherwise(pl.lit("INSERT"))
        row = self.json.objects(rows, columns)
        found = pl.concat_str(pl.lit('{"data":['), row, pl.lit('],"type":"'), kind, pl.lit('"}'))
        return pl.select(found).to_series().to_arrow()


def _number_or_none(value: object) -> int | None:
    try:
        return _to_int(text_of(value)) if value is not None else None  # type: ignore[return-value]
    except ValueError:
        return None


FORMAT = CanalFormat
