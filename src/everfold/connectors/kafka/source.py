"""Read topics with Spark.

The offsets to start and end at are determined here, once, when the job is first started.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.checkpoint.logs import Position, read_first_position, rewrite_positions
from everfold.connectors.contract import KIND, SPLIT, History, OptionValues, ReadSize, Role, Source, SourceContext
from everfold.connectors.formats.format import BAD, Format, RecordColumn, RecordLocation, find_bad_record
from everfold.connectors.formats.json import SESSION as JSON_SESSION
from everfold.connectors.formats.json import JsonFormat
from everfold.connectors.formats.json_columns import reason_not_in_columns
from everfold.connectors.formats.text_decode import BadValue, excerpt
from everfold.connectors.kafka.client import Client, Offsets, java_settings, unreachable_error
from everfold.connectors.kafka.jars import KAFKA
from everfold.connectors.kafka.table_options import (
    key_columns,
    key_format,
    parse_offsets,
    topics,
    value_columns,
    value_format,
    value_format_name,
)
from everfold.connectors.kafka.worker_records import IN_WORKERS, HandleLayout, RecordReader
from everfold.connectors.null_rowtime import LOCATION, find_null_rowtime
from everfold.connectors.worker_reader import HANDLE, WorkerInput
from everfold.engine_literals import spark_identifier, spark_string
from everfold.errors import ConnectorError, StateError
from everfold.plan.changelog import ChangelogMode, RowKind
from everfold.plan.nodes import Table, TableColumn
from everfold.storage import Location
from everfold.types import physical_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_RECORDS = 5_000_000
"""The limit of a batch of small records: OVER keeps all rows of a batch in memory."""
_UNKNOWN_RECORDS = 500_000
"""The limit of a batch if the topics are still empty when a job is started."""
_RAW_BYTES = 20_000
"""How much of a bad record an error carries, to find out what is wrong with it."""
_METADATA = {
    "topic": "__topic",
    "partition": "__partition",
    "offset": "__offset",
    "timestamp": "__timestamp",
    "headers": "coalesce(map_from_entries(__headers), CAST(map() AS MAP<STRING, BINARY>))",
    "timestamp-type": "CASE __timestamp_type WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' ELSE 'NoTimestampType' END",
}


class KafkaSource(Source):
    """A source that reads the topics of a table.

    upsert: a record is the current row of its key; a tombstone deletes it. If the table is read as
        events (its changelog is insert-only), a tombstone is none.
    """

    def __init__(self, table: Table, options: OptionValues, *, upsert: bool = False) -> None:
        self.table = table
        self.options = options
        self.upsert = upsert
        self.client = Client(table, options)
        self._ends: Offsets | None = None

    def is_bounded(self) -> bool:
        """Return whether `scan.bounded.mode` is set to a bound."""
        return self.options.string("scan.bounded.mode") != "unbounded"

    def location(self, base_folder: Path) -> str:
        """Return the id of the cluster, as reported by the brokers, and the topics."""
        pattern = self.options.string_or_none("topic-pattern")
        cluster = self.client.cluster_id()
        self.client.close()
        return f"{cluster}/{','.join(sorted(topics(self.options))) if pattern is None else pattern}"

    def move(self, checkpoint: Location, name: str, old: str, new: str) -> None:
        """Rewrite the topic in the positions, if there is one topic and it has been renamed."""
        names = topics(self.options)
        rewrite_positions(checkpoint, name, lambda position: self._rename_topic(position, names))

    def _rename_topic(self, position: str, names: tuple[str, ...]) -> str:
        """Return a position with the topic renamed.

        Raises StateError `changed-source` for several topics.
        """
        positions = json.loads(position)
        if set(positions) == set(names):
            return position
        if len(positions) != 1 or len(names) != 1:
            known = ", ".join(f"`{each}`" for each in positions)
            what = (
                f"table `{self.table.name}`: positions in {known} do not apply to other topics: "
                "only a single topic that was renamed can be resumed"
            )
            raise StateError.of(
                "changed-source", what, help=f"--source {self.table.name}=new reads the new topics from their start"
            )
        return json.dumps({names[0]: next(iter(positions.values()))}, separators=(",", ":"))

    # -- Spark -------------------------------------------------------------------------------------

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the records as a stream, up to the end if it is bounded."""
        frame = self._frame(self._load(self._stream_reader(context), context, streaming=True), context)
        self.client.close()
        return frame

    def reason_not_in_worker(self, columns: Sequence[int]) -> str | None:
        """Return why tasks cannot decode records, None if they can: JSON without a key."""
        form = value_format(self.table, self.options)
        if not isinstance(form, JsonFormat):
            return f"format `{value_format_name(self.table)}`"
        for at in columns:
            column = self.table.columns[at]
            if column.metadata_key not in (None, *IN_WORKERS):
                return f"metadata `{column.metadata_key}`"
        for each in key_columns(self.table, self.options, Role.SOURCE):
            if each.position in columns:
                return f"column `{each.name}` of the key"
        return reason_not_in_columns(form, self._value_columns(columns))

    def _value_columns(self, positions: Sequence[int]) -> list[RecordColumn]:
        found = value_columns(self.table, self.options, Role.SOURCE)
        return [column for column in found if column.position in positions]

    def stream_in_worker(self, context: SourceContext, columns: Sequence[int]) -> WorkerInput:
        """Return a stream of the bytes of records."""
        form = value_format(self.table, self.options)
        assert isinstance(form, JsonFormat)
        tables = ((at, self.table.columns[at]) for at in columns)
        metadata = {at: (of.metadata_key, of.type) for at, of in tables if of.metadata_key is not None}
        names = topics(self.options)
        has_time = any(key == "timestamp" for key, _ in metadata.values())
        layout = HandleLayout(names[0] if len(names) == 1 else "", has_time)
        frame = self._load(self._stream_reader(context), context, streaming=True)
        frame = frame.selectExpr(f"{layout.to_sql()} AS {HANDLE}")
        self.client.close()
        reader = RecordReader(form, self._value_columns(columns), metadata, self.table.name, layout)
        return WorkerInput(frame, reader)

    def _stream_reader(self, context: SourceContext) -> Any:
        partitions = self.client.partitions()
        starts = self._rebuild_starts(context, partitions) or self._starts(partitions)
        self._ends = self._fixed_ends(context, partitions)
        KAFKA.add_to(context.spark)
        reader = context.spark.readStream.name(context.name).format("kafka")
        reader = reader.option("maxOffsetsPerTrigger", str(self.batch_records(context, partitions)))
        return reader.option("startingOffsets", "earliest" if starts is None else _json(starts))

    def batch_records(self, context: SourceContext, partitions: dict[str, list[int]]) -> int:
        """Return how many records a batch may read.

        A batch reads what has arrived since the one before, so only a backlog reaches this limit.
        The larger its batches are, the less of its time is spent on their fixed costs.
        """
        explicit = self.options.number_or_none("scan.max-records-per-batch")
        if explicit is not None:
            return explicit
        if context.settings is not None and context.settings.batch_rows is not None:
            return context.settings.batch_rows
        size = self.client.mean_record_bytes(partitions)
        if size is None:
            return _UNKNOWN_RECORDS
        return min(max(self.options.number("scan.max-bytes-per-batch") // max(size, 1), 1), _MOST_RECORDS)

    def batch(self, context: SourceContext) -> DataFrame:
        """Return the current records as a batch frame."""
        partitions = self.client.partitions()
        starts = self._starts(partitions) or self.client.ends(partitions, first=True)
        ends = self._end_offsets(partitions) or self.client.ends(partitions)
        for topic, of in starts.items():
            for at, offset in of.items():
                ends[topic][at] = max(offset, ends[topic][at])
        return self._read_between(context, starts, ends)

    def history(self, context: SourceContext, position: Position | None) -> History:
        """Return the records from the job's first to its last position, if they still exist."""
        first = {} if position is None else _first_offsets(position.log) or {}
        last = {} if position is None else _offsets(json.loads(position.line))
        oldest = self.client.ends(self.client.partitions(), first=True)
        starts = {
            topic: {at: max(first.get(topic, {}).get(at, 0), least) for at, least in of.items()}
            for topic, of in oldest.items()
        }
        ends = {
            topic: {at: max(start, last.get(topic, {}).get(at, 0)) for at, start in of.items()}
            for topic, of in starts.items()
        }
        return History(self._read_between(context, starts, ends))

    def measure_read(self, base_folder: Path, position: Position) -> ReadSize:
        """Return the number of records between the job's first and last position."""
        first, last = _first_offsets(position.log), _offsets(json.loads(position.line))
        if first is None:
            return ReadSize()
        ends = [(topic, at, end) for topic, of in last.items() for at, end in of.items()]
        return ReadSize(rows=sum(end - first.get(topic, {}).get(at, 0) for topic, at, end in ends))

    def _read_between(self, context: SourceContext, starts: Offsets, ends: Offsets) -> DataFrame:
        KAFKA.add_to(context.spark)
        reader = context.spark.read.format("kafka")
        reader = reader.option("startingOffsets", _json(starts)).option("endingOffsets", _json(ends))
        frame = self._frame(self._load(reader, context, streaming=False), context)
        self.client.close()
        return frame

    def _load(self, reader: Any, context: SourceContext, *, streaming: bool) -> DataFrame:
        """Return the records as Spark reads them."""
        for key, value in JSON_SESSION.items():
            context.spark.conf.set(key, value)
        for key, value in java_settings(self.options).items():
            reader = reader.option(f"kafka.{key}", value)
        pattern = self.options.string_or_none("topic-pattern")
        reader = (
            reader.option("subscribePattern", pattern)
            if pattern
            else reader.option("subscribe", ",".join(topics(self.options)))
        )
        frame: DataFrame = reader.option("includeHeaders", "true" if self._wants_headers else "false").load()
        return frame.where(_is_before_end(self._ends)) if streaming and self._ends is not None else frame

    @property
    def _wants_headers(self) -> bool:
        return any(column.metadata_key == "headers" for column in self.table.columns)

    def _frame(self, frame: DataFrame, context: SourceContext) -> DataFrame:
        """Return the rows of records."""
        frame = frame.selectExpr(
            "key AS __key", "value AS __value", "topic AS __topic", "partition AS __partition", "offset AS __offset",
            "timestamp AS __timestamp", "timestampType AS __timestamp_type", *(["headers AS __headers"] if self._wants_headers else []),
        )  # fmt: skip
        values: dict[int, str] = {}
        keys, form = key_columns(self.table, self.options, Role.SOURCE), key_format(self.table, self.options)
        if form is not None:
            frame = self._parse(frame, form, keys, "__key", values, context.name)
        of_keys = dict(values)
        columns = value_columns(self.table, self.options, Role.SOURCE)
        form = value_format(self.table, self.options)
        if self.upsert:
            frame = frame.where(f"__value IS NULL OR NOT ({form.is_empty(columns, '__value')})")
        if self.upsert and self.table.changelog is ChangelogMode.INSERT_ONLY:
            frame = frame.where("__value IS NOT NULL")
        if columns or form.is_changelog:
            frame = self._parse(frame, form, columns, "__value", values, context.name)
        if self.upsert:
            values |= {at: f"IF(__value IS NULL, {sql}, {values[at]})" for at, sql in of_keys.items()}
            kinds = (RowKind.DELETE.value, RowKind.UPDATE_AFTER.value)
            frame = frame.selectExpr("*", f"CAST(IF(__value IS NULL, {kinds[0]}, {kinds[1]}) AS TINYINT) AS {KIND}")
        out = [
            f"{self._column(at, column, values)} AS {physical_name(at)}" for at, column in enumerate(self.table.columns)
        ]
        place = "concat('topic `', __topic, '` partition ', __partition, ' offset ', __offset)"
        kind = [KIND] if KIND in frame.columns else []
        return frame.selectExpr(*out, f"{self._split()} AS {SPLIT}", f"{place} AS {LOCATION}", *kind)

    def _split(self) -> str:
        name = spark_string(self.table.identity + "/")
        if len(topics(self.options)) == 1:
            return f"concat({name}, __partition)"
        return f"concat({name}, __topic, '/', __partition)"

    def _column(self, at: int, column: TableColumn, values: dict[int, str]) -> str:
        if at in values:
            return values[at]
        assert column.metadata_key is not None, column
        sql = value_format(self.table, self.options).metadata(column.metadata_key)
        return f"CAST({sql or _METADATA[column.metadata_key]} AS {column.type.spark})"

    def _parse(
        self,
        frame: DataFrame,
        form: Format,
        columns: tuple[RecordColumn, ...],
        raw: str,
        values: dict[int, str],
        name: str,
    ) -> DataFrame:
        """Parse keys or values into the columns `<raw>_0…` of the frame.

        values: receives Spark SQL for each column of the table.
        """
        place = RecordLocation(self.table.name, _record_parts(raw))
        others = [*frame.columns, *form.added_columns]
        frame = form.from_text(frame, columns, raw, keep_empty=raw == "__key" or self.upsert)
        fields = {column.position: f"{raw}_{at}" for at, column in enumerate(columns)}
        frame = frame.selectExpr(
            *(spark_identifier(each) for each in others),
            *(f"{spark_identifier(column.name)} AS {fields[column.position]}" for column in columns),
            # An upsert without a key is a bad record: rows are identified by their keys.
            f"IF({raw} IS NULL, '', {BAD}) AS {BAD}" if self.upsert and raw == "__key" else BAD,
        )
        frame = form.keep_readable(frame, columns, fields, place, f"{name}{raw}")
        for column in columns:
            values[column.position] = form.value(column, fields[column.position], place)
        return frame.drop(BAD)

    # -- where it starts and ends ------------------------------------------------------------------

    def _rebuild_starts(self, context: SourceContext, partitions: dict[str, list[int]]) -> Offsets | None:
        """Return the offsets that a rebuilt job had started from; None if it was not rebuilt.

        For records that are no longer available, the first available offsets.
        """
        offsets = None if context.previous_log is None else _first_offsets(context.previous_log)
        if offsets is None:
            return None
        first = self.client.ends(partitions, first=True)
        return {
            topic: {at: max(offsets.get(topic, {}).get(at, 0), offset) for at, offset in of.items()}
            for topic, of in first.items()
        }

    def describe_lost(self, then: Position) -> str | None:
        """Return how many records that were read are no longer available; None if all are."""
        offsets = _first_offsets(then.log)
        if offsets is None:
            return None
        first = self.client.ends({topic: list(of) for topic, of in offsets.items()}, first=True)
        self.client.close()
        gone = sum(max(0, first[topic][at] - offset) for topic, of in offsets.items() for at, offset in of.items())
        return f"{gone:,} of the records that were read" if gone else None

    def _starts(self, partitions: dict[str, list[int]]) -> Offsets | None:
        """Return the first offsets to read, None to read from the beginning."""
        options = self.options
        match options.string("scan.startup.mode"):
            case "earliest-offset":
                return None
            case "latest-offset":
                return self.client.ends(partitions)
            case "timestamp":
                return self.client.offsets_at_time(partitions, options.number("scan.startup.timestamp-millis"))
            case "specific-offsets":
                offsets = parse_offsets(self.table, options, "scan.startup.specific-offsets")
                first = self.client.ends(partitions, first=True)
                return self._merge_offsets(offsets, first, "scan.startup.specific-offsets")
            case _:
                return self._group_starts(partitions)

    def _merge_offsets(self, offsets: dict[int, int], others: Offsets, option: str) -> Offsets:
        [topic] = others
        for partition in offsets:
            if partition not in others[topic]:
                raise ConnectorError.of(
                    "no-such-partition",
                    f"table `{self.table.name}`: topic `{topic}` has no partition {partition}",
                    self.table.span_of_option(option),
                    f"it has {len(others[topic])}, from 0 on",
                )
        return {topic: {**others[topic], **offsets}}

    def _group_starts(self, partitions: dict[str, list[int]]) -> Offsets:
        committed = self.client.committed(partitions)
        reset = self.options.with_prefix("properties.").get("auto.offset.reset", "none")
        missing = any(offset is None for of in committed.values() for offset in of.values())
        if missing and reset not in ("earliest", "latest"):
            group = self.options.string("properties.group.id")
            raise ConnectorError.of(
                "no-group-offsets",
                f"table `{self.table.name}`: the group `{group}` has committed no offsets for "
                f"{', '.join(f'`{topic}`' for topic in partitions)}",
                self.table.span_of_option("properties.group.id"),
                "set 'scan.startup.mode' = 'earliest-offset', "
                "or 'properties.auto.offset.reset' = 'earliest' or 'latest'",
            )
        others = self.client.ends(partitions, first=reset == "earliest") if missing else {}
        return {
            topic: {at: others[topic][at] if offset is None else offset for at, offset in of.items()}
            for topic, of in committed.items()
        }

    def _end_offsets(self, partitions: dict[str, list[int]]) -> Offsets | None:
        """Return the first offsets that a bounded source does not read; None if it is unbounded."""
        options = self.options
        match options.string("scan.bounded.mode"):
            case "unbounded":
                return None
            case "latest-offset":
                return self.client.ends(partitions)
            case "timestamp":
                return self.client.offsets_at_time(partitions, options.number("scan.bounded.timestamp-millis"))
            case "specific-offsets":
                offsets = parse_offsets(self.table, options, "scan.bounded.specific-offsets")
                return self._merge_offsets(offsets, self.client.ends(partitions), "scan.bounded.specific-offsets")
            case _:
                committed = self.client.committed(partitions)
                return {topic: {at: offset or 0 for at, offset in of.items()} for topic, of in committed.items()}

    def _fixed_ends(self, context: SourceContext, partitions: dict[str, list[int]]) -> Offsets | None:
        """Return the end offsets, fixed when the job was first started; None if it is unbounded."""
        if not self.is_bounded():
            return None
        path = None if context.start_folder is None else context.start_folder / f"{context.name}.ends.json"
        if path is not None and path.exists():
            fixed: dict[str, dict[str, int]] = json.loads(path.read_text())
            if len(fixed) == len(partitions) == 1:  # the topic may have been renamed
                fixed = dict(zip(partitions, fixed.values(), strict=True))
            return {topic: {int(at): offset for at, offset in of.items()} for topic, of in fixed.items()}
        ends = self._end_offsets(partitions)
        assert ends is not None
        if path is not None:
            path.write(_json(ends))
        return ends

    def splits(self, context: SourceContext) -> tuple[str, ...]:
        """Return the current partitions."""
        found = self.client.partitions()
        self.client.close()
        return tuple(self._name_split(topic, at) for topic, of in found.items() for at in of)

    def find_lag(self, latest: Any, end: Any) -> Mapping[str, int] | None:
        """Return how many records of each partition the job has not read."""
        read = _offsets(end)
        return {
            self._name_split(topic, at): max(0, offset - read.get(topic, {}).get(at, 0))
            for topic, of in _offsets(latest).items()
            for at, offset in of.items()
        }

    def _name_split(self, topic: str, partition: int) -> str:
        """Return the name of a partition's split, as `_split` has it in SQL."""
        named = (self.table.identity, *([] if len(topics(self.options)) == 1 else [topic]), partition)
        return "/".join(map(str, named))

    def has_reached_end(self, context: SourceContext, offsets_json: str) -> bool:
        """Return whether every partition has been read up to its end."""
        if self._ends is None:
            return False
        offsets: dict[str, dict[str, int]] = json.loads(offsets_json)
        return all(
            offsets.get(topic, {}).get(str(at), 0) >= end for topic, of in self._ends.items() for at, end in of.items()
        )

    def after_batch(self, context: SourceContext, offsets_json: str) -> None:
        """Commit the progress as offsets of the table's group, for monitoring.

        The job itself resumes from its checkpoint.
        """
        if self.options.string_or_none("properties.group.id") is not None:
            self.client.commit(json.loads(offsets_json))

    # -- failures ----------------------------------------------------------------------------------

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the error behind a failure of Spark.

        A bad record, unreachable brokers, or a topic that was deleted or created again.
        """
        bad = find_bad_record(error_text, self.table.name)
        if bad is not None:
            return self._bad_record(bad)
        timeless = find_null_rowtime(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error()
        if re.search(r"data may have been lost|failOnDataLoss|DATA_LOSS|KAFKA_DATA_LOSS", error_text, re.I):
            return ConnectorError.of(
                "kafka-data-lost",
                f"table `{self.table.name}`: records that were not read yet are gone from "
                f"{', '.join(f'`{each}`' for each in topics(self.options)) or 'a topic'}",
                help="the topic was created again, or its retention is shorter than the job was down: "
                "start a new job (another --state)",
            )
        if re.search(r"UnknownTopicOrPartitionException", error_text):
            return ConnectorError.of(
                "no-such-topic",
                f"table `{self.table.name}`: the topic does not exist any more",
                self.table.span_of_option("topic"),
            )
        if re.search(
            r"kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception|No resolvable bootstrap urls", error_text
        ):
            return unreachable_error(self.table, self.options)
        return None

    def _bad_record(self, bad: dict[str, object]) -> ConnectorError:
        is_key = bad.get("part") == "key"
        form = key_format(self.table, self.options) if is_key else value_format(self.table, self.options)
        assert form is not None
        columns = (key_columns if is_key else value_columns)(self.table, self.options, Role.SOURCE)
        raw = base64.b64decode(re.sub(r"\s", "", str(bad.get("raw", ""))))
        nothing = "it has no key, but rows are identified by their keys" if is_key else "it cannot be read"
        reason = (
            f"field `{bad['column']}` cannot be read: `{excerpt(bad.get('text'))}`" if bad.get("column") else nothing
        )
        try:
            for _ in form.decoder(columns)(raw):
                pass
        except BadValue as wrong:
            reason = wrong.reason
        where = f"topic `{bad.get('topic')}` partition {bad.get('partition')} offset {bad.get('offset')}" + (
            ", key" if is_key else ""
        )
        return form.bad_record_error(where, reason, raw.decode("utf-8", "replace"), lasting=True)


def _record_parts(raw: str) -> tuple[tuple[str, str], ...]:
    """Return the position of a record's key or value (`raw`), and its beginning, for an error."""
    head = f"base64(substring({raw}, 1, {_RAW_BYTES}))"
    return (
        ("part", spark_string(raw[2:])),
        ("topic", "__topic"),
        ("partition", "__partition"),
        ("offset", "__offset"),
        ("raw", head),
    )


def _first_offsets(log: Location) -> Offsets | None:
    """Return the offsets that a job started from.

    log: the source's folder in its checkpoint. None if it has no offsets.
    """
    try:
        return _offsets(json.loads(read_first_position(log)))
    except (OSError, ValueError, AttributeError):
        return None


def _offsets(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(at): int(offset) for at, offset in of.items()} for topic, of in offsets.items()}


def _json(offsets: Offsets) -> str:
    return json.dumps({topic: {str(at): offset for at, offset in of.items()} for topic, of in offsets.items()})


def _is_before_end(ends: Offsets) -> str:
    """Return Spark SQL for whether a record is before the end of its partition.

    Partitions that were added later are not read.
    """
    by_topic = (
        f"topic = {spark_string(topic)} AND offset < CASE partition "
        + " ".join(f"WHEN {at} THEN {end}L" for at, end in of.items())
        + " ELSE 0L END"
        for topic, of in ends.items()
        if of
    )
    return " OR ".join(f"({each})" for each in by_topic) or "false"
