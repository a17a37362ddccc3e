"""Reads topics through Spark. Where it starts and ends is decided here: as offsets, once, when the job is first started."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.connector_errors import trouble
from everfold.connectors.contract import KIND, SPLIT, History, OptionValues, Position, Role, Source, SourceContext
from everfold.connectors.filesystem.source import bad_record
from everfold.connectors.formats.format import BAD, Format, Place, RecordColumn, find_bad, raise_bad
from everfold.connectors.formats.json import SESSION as JSON_SESSION
from everfold.connectors.formats.text_decode import BadValue, excerpt, identifier, quoted
from everfold.connectors.kafka.client import Client, Offsets, java_settings, unreachable
from everfold.connectors.kafka.connector import (
    key_columns,
    key_format,
    specific_offsets,
    topics,
    value_columns,
    value_format,
)
from everfold.connectors.kafka.jars import add_jars
from everfold.connectors.null_rowtime import PLACE, find_timeless
from everfold.connectors.skipped_rows import count_bad
from everfold.errors import ConnectorError, StateError
from everfold.files import write_atomically
from everfold.plan.changelog import RowKind
from everfold.plan.nodes import Table, TableColumn
from everfold.types import physical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RAW_BYTES = 20_000
"""How much of a bad record is carried in an error, to say what is wrong with it."""
_METADATA = {
    "topic": "__topic",
    "partition": "__partition",
    "offset": "__offset",
    "timestamp": "__timestamp",
    "headers": "coalesce(map_from_entries(__headers), CAST(map() AS MAP<STRING, BINARY>))",
    "timestamp-type": "CASE __timestamp_type WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' ELSE 'NoTimestampType' END",
}


class KafkaSource(Source):
    """The records of a table's topics. `upsert`: a record is the newest row of its key, or, without a value, the end of it."""

    def __init__(self, table: Table, options: OptionValues, *, upsert: bool = False) -> None:
        self.table = table
        self.options = options
        self.upsert = upsert
        self.client = Client(table, options)
        self._ends: Offsets | None = None

    def bounded(self) -> bool:
        """With a `scan.bounded.mode`."""
        return self.options.text("scan.bounded.mode") != "unbounded"

    def location(self, base_folder: Path) -> str:
        """The id of the cluster, which the brokers are asked for, and the topics."""
        pattern = self.options.text_or_none("topic-pattern")
        cluster = self.client.cluster()
        self.client.close()
        return f"{cluster}/{','.join(sorted(topics(self.options))) if pattern is None else pattern}"

    def move(self, checkpoint: Path, name: str, old: str, new: str) -> None:
        """Rewrite the topic in the positions, if there is one topic and it has another name now."""
        named = topics(self.options)
        files = [each for each in (checkpoint / "offsets").glob("[0-9]*") if each.name.isdigit()]
        for file in (*files, checkpoint / "sources" / name / "0"):
            if file.is_file():
                lines = file.read_text(encoding="utf-8").split("\n")
                moved = [self._moved(line, name, named) for line in lines]
                if moved != lines:
                    write_atomically(file, "\n".join(moved))
                    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def _moved(self, line: str, name: str, named: tuple[str, ...]) -> str:
        """A line of a log; the positions of the source, or those that it began at, by its topic as it is called now."""
        head = f"{name}:" if line.startswith(f"{name}:") else ""
        if not head and not (line.startswith("{") and not line.startswith('{"batchWatermarkMs"')):
            return line
        positions = json.loads(line.removeprefix(head))
        if set(positions) == set(named):
            return line
        if len(positions) != 1 or len(named) != 1:
            there = ", ".join(f"`{each}`" for each in positions)
            what = f"table `{self.table.name}`: positions in {there} cannot be kept for other topics: only one that is renamed can be followed"
            raise StateError.of(
                "changed-source", what, help=f"--source {self.table.name}=new reads the new topics from their start"
            )
        return head + json.dumps({named[0]: next(iter(positions.values()))}, separators=(",", ":"))

    # -- Spark ---------------------------------------------------------------------------------------------------------

    def stream(self, context: SourceContext) -> DataFrame:
        """The records as a stream; a bounded one leaves out what lies behind its end."""
        partitions = self.client.partitions()
        starts = self._first_starts(context, partitions) or self._starts(partitions)
        self._ends = self._fixed_ends(context, partitions)
        add_jars(context.spark)
        reader = context.spark.readStream.name(context.name).format("kafka")
        most = self.options.number("scan.max-records-per-batch")
        if context.settings is not None and "scan.max-records-per-batch" not in self.options.given:
            most = context.settings.batch_rows or most
        reader = reader.option("maxOffsetsPerTrigger", str(most))
        reader = reader.option("startingOffsets", "earliest" if starts is None else _json(starts))
        frame = self._frame(reader, context, streaming=True)
        self.client.close()
        return frame

    def batch(self, context: SourceContext) -> DataFrame:
        """The records that there are now."""
        partitions = self.client.partitions()
        starts = self._starts(partitions) or self.client.ends(partitions, first=True)
        ends = self._end_offsets(partitions) or self.client.ends(partitions)
        for topic, of in starts.items():
            for at, offset in of.items():
                ends[topic][at] = max(offset, ends[topic][at])
        add_jars(context.spark)
        reader = (
            context.spark.read.format("kafka")
            .option("startingOffsets", _json(starts))
            .option("endingOffsets", _json(ends))
        )
        frame = self._frame(reader, context, streaming=False)
        self.client.close()
        return frame

    def history(self, context: SourceContext, position: Position | None) -> History:
        """The records from the job's first position to its last, as far as the topics still have them."""
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
        add_jars(context.spark)
        reader = context.spark.read.format("kafka")
        reader = reader.option("startingOffsets", _json(starts)).option("endingOffsets", _json(ends))
        frame = self._frame(reader, context, streaming=False)
        self.client.close()
        return History(frame)

    def _frame(self, reader: Any, context: SourceContext, *, streaming: bool) -> DataFrame:
        for key, value in JSON_SESSION.items():
            context.spark.conf.set(key, value)
        for key, value in java_settings(self.options).items():
            reader = reader.option(f"kafka.{key}", value)
        pattern = self.options.text_or_none("topic-pattern")
        reader = (
            reader.option("subscribePattern", pattern)
            if pattern
            else reader.option("subscribe", ",".join(topics(self.options)))
        )
        wants_headers = any(column.metadata_key == "headers" for column in self.table.columns)
        frame: DataFrame = reader.option("includeHeaders", "true" if wants_headers else "false").load()
        if streaming and self._ends is not None:
            frame = frame.where(_before(self._ends))
        frame = frame.selectExpr(
            "key AS __key", "value AS __value", "topic AS __topic", "partition AS __partition", "offset AS __offset",
            "timestamp AS __timestamp", "timestampType AS __timestamp_type", *(["headers AS __headers"] if wants_headers else []),
        )  # fmt: skip
        values: dict[int, str] = {}
        keys, form = key_columns(self.table, self.options, Role.SOURCE), key_format(self.table, self.options)
        if form is not None:
            frame = self._parsed(frame, form, keys, "__key", values, context.name)
        of_keys = dict(values)
        columns = value_columns(self.table, self.options, Role.SOURCE)
        form = value_format(self.table, self.options)
        if self.upsert:
            frame = frame.where(f"__value IS NULL OR NOT ({form.is_empty(columns, '__value')})")
        if columns or form.changes:
            frame = self._parsed(frame, form, columns, "__value", values, context.name)
        if self.upsert:
            values |= {at: f"IF(__value IS NULL, {sql}, {values[at]})" for at, sql in of_keys.items()}
            kinds = (RowKind.DELETE.value, RowKind.UPDATE_AFTER.value)
            frame = frame.selectExpr("*", f"CAST(IF(__value IS NULL, {kinds[0]}, {kinds[1]}) AS TINYINT) AS {KIND}")
        out = [f"{self._column(at, column, values)} AS {physical(at)}" for at, column in enumerate(self.table.columns)]
        place = "concat('topic `', __topic, '` partition ', __partition, ' offset ', __offset)"
        kind = [KIND] if KIND in frame.columns else []
        return frame.selectExpr(*out, f"{self._split()} AS {SPLIT}", f"{place} AS {PLACE}", *kind)

    def _split(self) -> str:
        name = quoted(self.table.name + "/")
        if len(topics(self.options)) == 1:
            return f"concat({name}, __partition)"
        return f"concat({name}, __topic, '/', __partition)"

    def _column(self, at: int, column: TableColumn, values: dict[int, str]) -> str:
        if at in values:
            return values[at]
        assert column.metadata_key is not None, column
        said = value_format(self.table, self.options).metadata(column.metadata_key)
        return f"CAST({said or _METADATA[column.metadata_key]} AS {column.type.spark})"

    def _parsed(
        self,
        frame: DataFrame,
        form: Format,
        columns: tuple[RecordColumn, ...],
        raw: str,
        values: dict[int, str],
        name: str,
    ) -> DataFrame:
        """The frame with the fields of keys or values as `<raw>_0…`; Spark SQL for the columns goes into `values`."""
        place = Place(self.table.name, _parts(raw))
        own = [*frame.columns, *form.beside]
        frame = form.from_text(frame, columns, raw, keep_empty=raw == "__key" or self.upsert)
        fields = {column.position: f"{raw}_{at}" for at, column in enumerate(columns)}
        frame = frame.selectExpr(
            *(identifier(each) for each in own),
            *(f"{identifier(column.name)} AS {fields[column.position]}" for column in columns),
            # Where rows are found by their keys, a record without one is none.
            f"IF({raw} IS NULL, '', {BAD}) AS {BAD}" if self.upsert and raw == "__key" else BAD,
        )
        if form.ignore_errors:
            frame = self._counted(frame, form, columns, fields, f"{name}{raw}")
        else:
            frame = frame.where(f"CASE WHEN {BAD} IS NULL THEN true ELSE {raise_bad(place, None, BAD)} END")
        for column in columns:
            values[column.position] = form.value(column, fields[column.position], place)
        return frame.drop(BAD)

    def _counted(
        self,
        frame: DataFrame,
        form: Format,
        columns: tuple[RecordColumn, ...],
        fields: dict[int, str],
        name: str,
    ) -> DataFrame:
        from pyspark.sql.functions import expr

        partly = [sql for column in columns if (sql := form.is_bad(column, fields[column.position]))]
        frame = frame.withColumn("__lost", expr(form.lost(columns)))
        frame = count_bad(frame, " OR ".join(["__lost", f"{BAD} IS NOT NULL", *partly]), name)
        return frame.where("NOT __lost").drop("__lost")

    # -- where it starts and ends --------------------------------------------------------------------------------------

    def _first_starts(self, context: SourceContext, partitions: dict[str, list[int]]) -> Offsets | None:
        """Where a job that begins anew has begun before, as far as that is still there; None for one that has not."""
        said = None if context.before is None else _first_offsets(context.before)
        if said is None:
            return None
        first = self.client.ends(partitions, first=True)
        return {
            topic: {at: max(said.get(topic, {}).get(at, 0), offset) for at, offset in of.items()}
            for topic, of in first.items()
        }

    def lost(self, then: Position) -> str | None:
        """Records between the first that was read and the first that there is now."""
        said = _first_offsets(then.log)
        if said is None:
            return None
        first = self.client.ends({topic: list(of) for topic, of in said.items()}, first=True)
        self.client.close()
        gone = sum(max(0, first[topic][at] - offset) for topic, of in said.items() for at, offset in of.items())
        return f"{gone:,} of the records that were read" if gone else None

    def _starts(self, partitions: dict[str, list[int]]) -> Offsets | None:
        """The first offsets to read, None for all that there is."""
        options = self.options
        match options.text("scan.startup.mode"):
            case "earliest-offset":
                return None
            case "latest-offset":
                return self.client.ends(partitions)
            case "timestamp":
                return self.client.at_time(partitions, options.number("scan.startup.timestamp-millis"))
            case "specific-offsets":
                said = specific_offsets(self.table, options, "scan.startup.specific-offsets")
                first = self.client.ends(partitions, first=True)
                return self._specific(said, first, "scan.startup.specific-offsets")
            case _:
                return self._group_starts(partitions)

    def _specific(self, said: dict[int, int], others: Offsets, option: str) -> Offsets:
        [topic] = others
        for partition in said:
            if partition not in others[topic]:
                raise trouble(
                    "no-such-partition",
                    f"table `{self.table.name}`: topic `{topic}` has no partition {partition}",
                    dict(self.table.option_spans).get(option),
                    f"it has {len(others[topic])}, from 0 on",
                )
        return {topic: {**others[topic], **said}}

    def _group_starts(self, partitions: dict[str, list[int]]) -> Offsets:
        committed = self.client.committed(partitions)
        reset = self.options.with_prefix("properties.").get("auto.offset.reset", "none")
        missing = any(offset is None for of in committed.values() for offset in of.values())
        if missing and reset not in ("earliest", "latest"):
            group = self.options.text("properties.group.id")
            raise trouble(
                "no-group-offsets",
                f"table `{self.table.name}`: the group `{group}` has committed no offsets for {', '.join(f'`{topic}`' for topic in partitions)}",
                dict(self.table.option_spans).get("properties.group.id"),
                "set 'scan.startup.mode' = 'earliest-offset', or 'properties.auto.offset.reset' = 'earliest' or 'latest'",
            )
        others = self.client.ends(partitions, first=reset == "earliest") if missing else {}
        return {
            topic: {at: others[topic][at] if offset is None else offset for at, offset in of.items()}
            for topic, of in committed.items()
        }

    def _end_offsets(self, partitions: dict[str, list[int]]) -> Offsets | None:
        """Where a bounded source ends: the first offsets that are not read."""
        options = self.options
        match options.text("scan.bounded.mode"):
            case "unbounded":
                return None
            case "latest-offset":
                return self.client.ends(partitions)
            case "timestamp":
                return self.client.at_time(partitions, options.number("scan.bounded.timestamp-millis"))
            case "specific-offsets":
                said = specific_offsets(self.table, options, "scan.bounded.specific-offsets")
                return self._specific(said, self.client.ends(partitions), "scan.bounded.specific-offsets")
            case _:
                committed = self.client.committed(partitions)
                return {topic: {at: offset or 0 for at, offset in of.items()} for topic, of in committed.items()}

    def _fixed_ends(self, context: SourceContext, partitions: dict[str, list[int]]) -> Offsets | None:
        """The end as it was fixed when the job began."""
        if not self.bounded():
            return None
        path = None if context.kept is None else context.kept / f"{context.name}.ends.json"
        if path is not None and path.exists():
            said: dict[str, dict[str, int]] = json.loads(path.read_text())
            if len(said) == len(partitions) == 1:  # the topic may have been renamed
                said = dict(zip(partitions, said.values(), strict=True))
            return {topic: {int(at): offset for at, offset in of.items()} for topic, of in said.items()}
        ends = self._end_offsets(partitions)
        assert ends is not None
        if path is not None:
            write_atomically(path, _json(ends))
        return ends

    def splits(self, context: SourceContext) -> tuple[str, ...]:
        """The partitions that there are."""
        found = self.client.partitions()
        self.client.close()
        if len(topics(self.options)) == 1:
            return tuple(f"{self.table.name}/{at}" for of in found.values() for at in of)
        return tuple(f"{self.table.name}/{topic}/{at}" for topic, of in found.items() for at in of)

    def reached_end(self, context: SourceContext, offsets_json: str) -> bool:
        """Whether every partition has been read up to its end."""
        if self._ends is None:
            return False
        said: dict[str, dict[str, int]] = json.loads(offsets_json)
        return all(
            said.get(topic, {}).get(str(at), 0) >= end for topic, of in self._ends.items() for at, end in of.items()
        )

    def after_batch(self, context: SourceContext, offsets_json: str) -> None:
        """Shows the progress as offsets of the table's group; the job itself goes by its checkpoint."""
        if self.options.text_or_none("properties.group.id") is not None:
            self.client.commit(json.loads(offsets_json))

    # -- failures ------------------------------------------------------------------------------------------------------

    def failure(self, error_text: str) -> ConnectorError | None:
        """A bad record; brokers that went away; a topic that was deleted or made anew."""
        said = find_bad(error_text, self.table.name)
        if said is not None:
            return self._bad_record(said)
        timeless = find_timeless(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error()
        if re.search(r"data may have been lost|failOnDataLoss|DATA_LOSS|KAFKA_DATA_LOSS", error_text, re.I):
            return trouble(
                "kafka-data-lost",
                f"table `{self.table.name}`: records that were not read yet are gone from {', '.join(f'`{each}`' for each in topics(self.options)) or 'a topic'}",
                help="the topic was made anew, or its retention is shorter than the job was down: start a new job (another --state)",
            )
        if re.search(r"UnknownTopicOrPartitionException", error_text):
            return trouble(
                "no-such-topic",
                f"table `{self.table.name}`: the topic is gone",
                dict(self.table.option_spans).get("topic"),
            )
        if re.search(
            r"kafka\.common\.errors\.(?:Timeout|Disconnect|Network)Exception|No resolvable bootstrap urls", error_text
        ):
            return unreachable(self.table, self.options)
        return None

    def _bad_record(self, said: dict[str, object]) -> ConnectorError:
        is_key = said.get("part") == "key"
        form = key_format(self.table, self.options) if is_key else value_format(self.table, self.options)
        assert form is not None
        columns = (key_columns if is_key else value_columns)(self.table, self.options, Role.SOURCE)
        raw = base64.b64decode(re.sub(r"\s", "", str(said.get("raw", ""))))
        nothing = "it has no key, and rows are found by their keys" if is_key else "it cannot be read"
        reason = (
            f"field `{said['column']}` cannot be read: `{excerpt(said.get('text'))}`" if said.get("column") else nothing
        )
        try:
            for _ in form.decoder(columns)(raw):
                pass
        except BadValue as wrong:
            reason = wrong.reason
        where = f"topic `{said.get('topic')}` partition {said.get('partition')} offset {said.get('offset')}" + (
            ", key" if is_key else ""
        )
        return bad_record(where, reason, raw.decode("utf-8", "replace"), form, lasting=True)


def _parts(raw: str) -> tuple[tuple[str, str], ...]:
    """Where a record's key or value (`raw`) lies, and its beginning, for an error."""
    head = f"base64(substring({raw}, 1, {_RAW_BYTES}))"
    return (
        ("part", quoted(raw[2:])),
        ("topic", "__topic"),
        ("partition", "__partition"),
        ("offset", "__offset"),
        ("raw", head),
    )


def _first_offsets(log: Path) -> Offsets | None:
    """Where a job has begun, by the source's folder in its checkpoint; None if that does not say it."""
    try:
        return _offsets(json.loads((log / "0").read_text(encoding="utf-8").partition("\n")[2]))
    except (OSError, ValueError, AttributeError):
        return None


def _offsets(said: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(at): int(offset) for at, offset in of.items()} for topic, of in said.items()}


def _json(offsets: Offsets) -> str:
    return json.dumps({topic: {str(at): offset for at, offset in of.items()} for topic, of in offsets.items()})


def _before(ends: Offsets) -> str:
    """Spark SQL: whether a record lies before the end of its partition; a partition that came later is none of the table's."""
    pairs = ", ".join(f"{quoted(f'{topic}/{at}')}, {end}L" for topic, of in ends.items() for at, end in of.items())
    return f"coalesce(offset < try_element_at(map({pairs}), concat(topic, '/', partition)), false)"
