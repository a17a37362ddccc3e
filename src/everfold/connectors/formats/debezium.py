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

from everfold.connectors.formats.envelope import COMMON, Envelope, Rows, change_sql, declared_metadata, is_retraction
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.json import JsonFormat
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
    def _under(self) -> str:
        return "payload." if self.schema_include else ""

    def member_metadata(self, key: str) -> str:
        """Return Spark SQL for a metadata key."""
        match key:
            case "schema":
                return "`schema`" if self.schema_include else "CAST(NULL AS STRING)"
            case "ingestion-timestamp":
                return f"timestamp_millis(try_cast({self._under}ts_ms AS BIGINT))"
            case "source.timestamp":
                return f"timestamp_millis(try_cast({self._under}source['ts_ms'] AS BIGINT))"
            case "source.properties":
                return f"{self._under}source"
            case _:
                name = {"source.database": "db", "source.schema": "schema", "source.table": "table"}[key]
                return f"{self._under}source['{name}']"

    def rows_sql(self, columns: Sequence[RecordColumn]) -> str:
        """Return the rows by `op`."""
        op, before, after = (f"{self._under}{name}" for name in ("op", "before", "after"))
        was, now = self.struct(before, columns), self.struct(after, columns)
        return (
            f"CASE WHEN {op} IN ('c', 'r') AND {after} IS NOT NULL THEN array({change_sql(RowKind.INSERT, now)})"
            f" WHEN {op} = 'u' AND {before} IS NOT NULL AND {after} IS NOT NULL"
            f" THEN array({change_sql(RowKind.UPDATE_BEFORE, was)}, {change_sql(RowKind.UPDATE_AFTER, now)})"
            f" WHEN {op} = 'd' AND {before} IS NOT NULL THEN array({change_sql(RowKind.DELETE, was)}) END"
        )

    def rows_of(self, members: Mapping[str, Any]) -> Rows:
        """Return the rows by `op`."""
        change = members
        if self.schema_include:
            if members["payload"] is None:
                raise BadValue("it has no `payload`, which 'schema-include' = 'true' requires")
            change = members["payload"]
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
