"""Format `debezium-json`: changes as Debezium writes them.

A record has the row `before`, the row `after`, and the operation `op`. `c` and `r` (a row of the
first snapshot) are +I, `u` is -U and +U, `d` is -D. An update or delete without `before` is a bad
record: PostgreSQL leaves it out unless the table's REPLICA IDENTITY is FULL. Added rows are written
as `c`, retracted rows as `d`.
Source: Flink 2.3 (asked of it, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from everfold.connectors.formats.debezium_columns import DebeziumBlocks
from everfold.connectors.formats.envelope import (
    COMMON,
    Envelope,
    Rows,
    declared_metadata,
    is_retraction,
    milliseconds_or_none,
    text_or_none,
)
from everfold.connectors.formats.format import DecodeBlock, RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_columns import JsonBlocks, are_decodable
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import Option, OptionSet, OptionValues
from everfold.plan.changelog import RowKind
from everfold.plan.nodes import Table
from everfold.types import BIGINT, STRING, TIMESTAMP_LTZ3, DataType, MapType, RowField, RowType

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = OptionSet(
    (
        Option("schema-include", "bool", "false", meaning="whether a record contains its schema, and the change in `payload`"),
        *COMMON.options,
    )
)  # fmt: skip
_SOURCE = MapType(key=STRING, value=STRING)
METADATA: dict[str, DataType] = {
    "schema": STRING,
    "ingestion-timestamp": TIMESTAMP_LTZ3,
    "source.timestamp": TIMESTAMP_LTZ3,
    "source.database": STRING,
    "source.schema": STRING,
    "source.table": STRING,
    "source.properties": _SOURCE,
}

_NAMES = {"source.database": "db", "source.schema": "schema", "source.table": "table"}
"""Members of `source` by metadata key."""


@dataclass(frozen=True, slots=True)
class DebeziumFormat(Envelope):
    """Debezium's JSON with a table's options."""

    schema_include: bool = False

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        json = JsonFormat.of_values(options, prefix)
        return cls(
            ignore_errors=json.ignore_errors,
            ignore_option=json.ignore_option,
            json=json,
            metadata_keys=declared_metadata(table),
            schema_include=options.flag(f"{prefix}schema-include"),
        )

    # -- decoding ----------------------------------------------------------------------------------

    def members(self, row: RowType) -> Sequence[tuple[str, DataType]]:
        """Return `before`, `after`, `op`, and the members that metadata needs."""
        change: list[tuple[str, DataType]] = [("before", row), ("after", row), ("op", STRING)]
        if self.metadata_keys:
            change += [("ts_ms", BIGINT), ("source", _SOURCE)]
        if not self.schema_include:
            return change
        payload = RowType(fields=tuple(RowField(name=name, type=of) for name, of in change))
        return [("payload", payload), *([("schema", STRING)] if "schema" in self.metadata_keys else [])]

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        """The types of metadata by key."""
        return METADATA

    def metadata_of(self, members: Mapping[str, Any], key: str) -> object:
        """Return the metadata with a key."""
        change = self._change_of(members)
        source = change.get("source") or {}
        match key:
            case "schema":
                return text_or_none(members["schema"]) if self.schema_include else None
            case "ingestion-timestamp":
                return milliseconds_or_none(change.get("ts_ms"))
            case "source.timestamp":
                return milliseconds_or_none(source.get("ts_ms"))
            case "source.properties":
                properties = change.get("source")
                return None if properties is None else [(name, text_or_none(of)) for name, of in properties.items()]
            case _:
                return text_or_none(source.get(_NAMES[key]))

    def _change_of(self, members: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self.schema_include:
            return members
        if members["payload"] is None:
            raise BadValue("it has no `payload`, which 'schema-include' = 'true' requires")
        payload: Mapping[str, Any] = members["payload"]
        return payload

    def block_decoder(self, columns: Sequence[RecordColumn], needed: Sequence[RecordColumn]) -> DecodeBlock | None:
        """Return a function that decodes many records, None with metadata or a schema."""
        if self.metadata_keys or self.schema_include or not are_decodable(columns):
            return None
        return DebeziumBlocks(JsonBlocks(self.envelope(columns), self.json.rules), self.row_schema(columns))

    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """Return the rows by `op`."""
        change = self._change_of(members)
        before, after, op = (change.get(name) for name in ("before", "after", "op"))
        match op:
            case "c" | "r" if after is not None:
                return [(RowKind.INSERT, "after.", after)]
            case "u" if before is not None and after is not None:
                return [(RowKind.UPDATE_BEFORE, "before.", before), (RowKind.UPDATE_AFTER, "after.", after)]
            case "d" if before is not None:
                return [(RowKind.DELETE, "before.", before)]
            case "u" | "d" if before is None:
                what = "an update" if op == "u" else "a delete"
                raise BadValue(
                    f"`before` of {what} is null: the table's REPLICA IDENTITY must be FULL, if it is PostgreSQL's"
                )
            case "c" | "r" | "u":
                raise BadValue(f"`after` is null, and `op` is `{op}`")
            case None if not self.schema_include:
                raise BadValue("it has no `op`: if it has a `payload`, set 'schema-include' = 'true'")
            case _:
                raise BadValue(f"`op` is `{op}`: it must be c, r, u or d")

    # -- encoding ----------------------------------------------------------------------------------

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return an object for each change."""
        import polars as pl

        row, retracted = self.json.objects(rows, columns), is_retraction(rows)
        before, after = ("", "") if self.json.ignore_nulls else ('"before":null,', '"after":null,')
        return pl.select(
            pl.when(retracted)
            .then(pl.concat_str(pl.lit('{"before":'), row, pl.lit(f',{after}"op":"d"}}')))
            .otherwise(pl.concat_str(pl.lit(f'{{{before}"after":'), row, pl.lit(',"op":"c"}')))
        ).to_series().to_arrow()  # fmt: skip


FORMAT = DebeziumFormat
