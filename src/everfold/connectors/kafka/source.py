"""Read topics with Spark.

The offsets to start and end at are determined here, once, when the job is first started.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.checkpoint.logs import Position, read_first_position, rewrite_positions
from everfold.connectors.contract import History, OptionValues, ReadSize, Role, Source, SourceContext
from everfold.connectors.decoded_rows import DecodedRows
from everfold.connectors.kafka.client import Client, Offsets, java_settings, unreachable_error
from everfold.connectors.kafka.handles import HandleLayout
from everfold.connectors.kafka.jars import KAFKA
from everfold.connectors.kafka.lost_records import JobOffsets, find_recreated, format_ids, parse_ids, read_ids
from everfold.connectors.kafka.table_options import (
    key_columns,
    key_format,
    parse_offsets,
    topics,
    value_columns,
    value_format,
    value_format_name,
)
from everfold.connectors.kafka.worker_records import RecordPart, RecordReader
from everfold.connectors.lost_input import LostInput
from everfold.connectors.null_rowtime import find_null_rowtime
from everfold.connectors.worker_reader import HANDLE, WorkerInput
from everfold.engine_literals import spark_string
from everfold.errors import ConnectorError, StateError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_RECORDS = 5_000_000
"""The limit of a batch of small records: OVER keeps all rows of a batch in memory."""
_UNKNOWN_RECORDS = 500_000
"""The limit of a batch if the topics are still empty when a job is started."""
_LOSS = re.compile(
    r"data may have been lost|failOnDataLoss|DATA_LOSS|OffsetOutOfRangeException|LogTruncationException"
    r"|KafkaIllegalStateException",
    re.I,
)
"""What failures of Spark's connector contain if records went away."""
_NO_TEXT = "UnknownReason"
"""What Spark says of a task whose exception the driver cannot read."""
_IDENTIFY_S = 10.0
"""How often the ids of topics are compared while a job runs, at most, besides before each batch."""


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
        self._batch_client = Client(table, options)  # for the thread that runs batches
        self._ends: Offsets | None = None
        self._identity = ""
        self._batch_starts: Offsets | None = None
        self._identified_at = float("-inf")

    def is_bounded(self) -> bool:
        """Return whether `scan.bounded.mode` is set to a bound."""
        return self.options.string("scan.bounded.mode") != "unbounded"

    def location(self, base_folder: Path) -> str:
        """Return the id of the cluster, as reported by the brokers, and the topics."""
        pattern = self.options.string_or_none("topic-pattern")
        cluster = self.client.cluster_id()
        self.client.close()
        return f"{cluster}/{','.join(sorted(topics(self.options))) if pattern is None else pattern}"

    def identify(self) -> str:
        """Return the ids of the topics."""
        try:
            return format_ids(read_ids(self.client.describe_topics(self.client.partitions())))
        except ConnectorError as error:
            if error.code != "no-such-topic":  # reported where the topic is read
                raise
            return ""
        finally:
            self.client.close()

    def is_recreated(self, old: str, new: str) -> bool:
        """Return whether a topic has another id than before."""
        return bool(find_recreated(parse_ids(old), parse_ids(new)))

    def find_lost(self, position: Position, planned: Position | None, identity: str) -> LostInput | None:
        """Return the records that the topics no longer have, of those that a job reads next."""
        end = None if planned is None else _offsets(json.loads(planned.line))
        try:
            return JobOffsets(_offsets(json.loads(position.line)), end, parse_ids(identity)).find_loss(self.client)
        finally:
            self.client.close()

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
        """Return None: tasks decode records in any format."""
        return None

    def stream_in_worker(self, context: SourceContext, columns: Sequence[int]) -> WorkerInput:
        """Return a stream of the bytes of records."""
        found = self._handles(self._load(self._stream_reader(context), context, streaming=True), context, columns)
        self.client.close()
        return found

    def _handles(self, frame: DataFrame, context: SourceContext, columns: Sequence[int]) -> WorkerInput:
        """Return what workers decode. columns: the positions of those that are needed."""
        keys, key_form = key_columns(self.table, self.options, Role.SOURCE), key_format(self.table, self.options)
        values, form = value_columns(self.table, self.options, Role.SOURCE), value_format(self.table, self.options)
        declared = ((position, self.table.columns[position]) for position in columns)
        metadata = {
            position: (column.metadata_key, column.type)
            for position, column in declared
            if column.metadata_key is not None
        }
        wanted = {key for key, _ in metadata.values()}
        has_key = key_form is not None and (self.upsert or any(key.position in columns for key in keys))
        names = topics(self.options)
        is_event = self.upsert and self.table.changelog is ChangelogMode.INSERT_ONLY
        layout = HandleLayout(
            names[0] if len(names) == 1 else "",
            has_time="timestamp" in wanted,
            has_time_type="timestamp-type" in wanted,
            has_headers="headers" in wanted,
            has_key=has_key,
            keeps_nulls=(self.upsert and not is_event) or value_format_name(self.table) == "raw" or not values,
        )
        reader = RecordReader(
            RecordPart(form, values) if values or form.is_changelog else None,
            RecordPart(key_form, keys) if has_key and key_form is not None else None,
            tuple(columns),
            metadata,
            self.table.identity,
            layout,
            context.zone,
            upsert=self.upsert,
            has_changes=form.is_changelog or self.upsert,
        )
        return WorkerInput(frame.selectExpr(f"{layout.to_sql()} AS {HANDLE}"), reader)

    def _stream_reader(self, context: SourceContext) -> Any:
        partitions = self.client.partitions()
        self._identity = context.identity or self.identify()
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
        self._batch_starts = starts
        reader = context.spark.read.format("kafka")
        reader = reader.option("startingOffsets", _json(starts)).option("endingOffsets", _json(ends))
        frame = self._frame(self._load(reader, context, streaming=False), context)
        self.client.close()
        return frame

    def _load(self, reader: Any, context: SourceContext, *, streaming: bool) -> DataFrame:
        """Return the records as Spark reads them."""
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
        decoded = DecodedRows(
            self._handles(frame, context, range(len(self.table.columns))),
            [column.type for column in self.table.columns],
            self.table.name,
            context.name,
            self.table.identity,
            has_changes=self.upsert or value_format(self.table, self.options).is_changelog,
        )
        return decoded.to_frame()

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
        described = self.client.describe_topics(offsets)
        there = {
            topic: described[topic].partitions.intersection(of) for topic, of in offsets.items() if topic in described
        }
        first, read = self.client.first_offsets(there), _offsets(json.loads(then.line))
        self.client.close()
        gone = sum(
            max(0, first.get(topic, {}).get(at, read.get(topic, {}).get(at, offset)) - offset)
            for topic, of in offsets.items()
            for at, offset in of.items()
        )
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

    # -- lost records ------------------------------------------------------------------------------

    @property
    def has_checked_batches(self) -> bool:
        """Return True: retention or a new topic can take records away at any time."""
        return True

    def check_batch(self, since: Position | None, until: Position) -> None:
        """Check that the topics are the same, and still have the records of a batch.

        Raises ConnectorError `changed-source`, `kafka-data-lost`.
        """
        end = _offsets(json.loads(until.line))
        start = _first_offsets(until.log) if since is None else _offsets(json.loads(since.line))
        if start is None:
            return
        lost = JobOffsets(start, end, parse_ids(self._identity)).find_loss_in_batch(self._batch_client)
        if lost is not None:
            raise lost.error

    def check_arrivals(self, base_folder: Path) -> None:
        """Check from time to time that the topics are the same: a new one may have fewer records.

        Raises ConnectorError `changed-source`.
        """
        if time.monotonic() - self._identified_at < _IDENTIFY_S:
            return
        self._identified_at = time.monotonic()
        ids = parse_ids(self._identity)
        recreated = find_recreated(ids, read_ids(self.client.describe_topics(ids)))
        if recreated:
            raise LostInput(self.table, (), "", recreated).error

    # -- failures ----------------------------------------------------------------------------------

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the error behind a failure of Spark.

        Unreachable brokers, or records that went away while they were read.
        """
        timeless = find_null_rowtime(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error()
        lost = self._find_lost_in_batch(error_text)
        if lost is not None:
            return lost
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

    def _find_lost_in_batch(self, error_text: str) -> ConnectorError | None:
        """Return the error for records of a batch query that went away while they were read.

        Spark's driver does not have the classes of the connector's exceptions, so the failure of a
        task has no text there.
        """
        is_loss = _LOSS.search(error_text) is not None
        if self._batch_starts is not None and (is_loss or _NO_TEXT in error_text):
            try:
                lost = JobOffsets(self._batch_starts, None, {}).find_loss(self.client)
            except ConnectorError:
                lost = None
            finally:
                self.client.close()
            if lost is not None:
                return ConnectorError.of(lost.code, lost.message, self.table.span, "run the query again")
        if not is_loss:
            return None
        names = ", ".join(f"`{topic}`" for topic in topics(self.options)) or "a topic"
        return ConnectorError.of(
            "kafka-data-lost",
            f"table `{self.table.name}`: records that were not read yet are gone from {names}",
            self.table.span,
            "run the same command again",
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
