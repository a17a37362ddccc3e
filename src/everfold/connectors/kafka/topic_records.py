"""Reads and writes topics of Lenses SQL as tables of Kafka's, and makes topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from everfold.connectors.connector_errors import trouble
from everfold.connectors.contract import BatchId, OptionValues, SinkContext, SourceContext
from everfold.connectors.kafka.client import TIMEOUT_S, kafka_error, log, own_settings
from everfold.connectors.kafka.connector import topics
from everfold.connectors.kafka.sink import KafkaSink
from everfold.connectors.kafka.source import KafkaSource
from everfold.connectors.kafka.topic import KEY, Spread
from everfold.plan.nodes import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CREATE = "create."
_COUNTS = ("partitions", "replication")


class TopicSource(KafkaSource):
    """The records of a topic, or the newest rows of its keys."""

    def __init__(self, spread: Spread, said: OptionValues, options: OptionValues) -> None:
        super().__init__(spread.table, options, upsert=bool(spread.table.primary_key))
        self.spread = spread
        self.said = said

    def stream(self, context: SourceContext) -> DataFrame:
        """The records as a stream. A topic that another INSERT of the script makes is made here, if this comes first."""
        make_topic(self.table, self.said, self.options)
        return super().stream(context)

    def _frame(self, reader: Any, context: SourceContext, *, streaming: bool) -> DataFrame:
        return self.spread.together(super()._frame(reader, context, streaming=streaming))


class TopicSink(KafkaSink):
    """One topic, which is made if the table says so."""

    def __init__(self, context: SinkContext, spread: Spread, said: OptionValues, options: OptionValues) -> None:
        super().__init__(replace(context, table=spread.table), options, upsert=bool(spread.table.primary_key))
        self.spread = spread
        self.said = said

    def prepare(self) -> None:
        """Makes the topic if it is to be made, and looks whether it is there."""
        make_topic(self.table, self.said, self.options)
        super().prepare()

    def write(self, rows: pa.Table, batch: BatchId) -> None:
        """Writes the batch, unless the topic has it. ConnectorError `null-key` for a row that could not be replaced later, as it has no key."""
        if self.upsert and self.spread.at is None:
            at = next(at for at, column in enumerate(self.table.columns) if column.name == KEY)
            if rows.column(at).null_count:
                raise trouble(
                    "null-key",
                    f"topic `{topics(self.options)[0]}`: a result has the key NULL, and records of a table are found by their keys",
                    help="leave such records out with WHERE field IS NOT NULL, or give the key a name: GROUP BY field AS name",
                )
        super().write(self.spread.apart(rows), batch)


def make_topic(table: Table, said: OptionValues, options: OptionValues) -> None:
    """Makes the topic of a table, if that says so and it is not there. Raises ConnectorError."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    if not said.flag("create"):
        return
    counts = {name: said.number(_CREATE + name) for name in _COUNTS}
    config = {
        name.removeprefix(_CREATE): str(said.values[name])
        for name in said.given
        if name.startswith(_CREATE) and name.removeprefix(_CREATE) not in counts
    }
    [topic] = topics(options)
    try:
        settings: dict[str, Any] = {**own_settings(options), "logger": log}
        del settings["isolation.level"]
        client = AdminClient(settings)
        made = NewTopic(topic, counts["partitions"], counts["replication"], config=config)
        client.create_topics([made], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)[topic].result()
    except KafkaException as wrong:
        if wrong.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise kafka_error(table, options, wrong) from None
