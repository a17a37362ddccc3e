"""Read and write topics of Lenses SQL as Kafka tables, and create topics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from everfold.connectors.contract import OptionValues, SinkContext, SourceContext
from everfold.connectors.kafka.client import TIMEOUT_S, create_admin, kafka_error
from everfold.connectors.kafka.records import RecordEncoder
from everfold.connectors.kafka.sink import KafkaSink
from everfold.connectors.kafka.source import KafkaSource
from everfold.connectors.kafka.table_options import topics
from everfold.connectors.kafka.topic_table import ConvertedTable
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table
from everfold.plan.topic_storage import KEY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CREATE = "create."
_POLL_S = 0.02
_COUNTS = ("partitions", "replication")


class TopicSource(KafkaSource):
    """A source that reads a topic.

    topic_options: of the connector `topic`. options: of the converted table.
    """

    def __init__(self, spread: ConvertedTable, topic_options: OptionValues, options: OptionValues) -> None:
        super().__init__(spread.table, options, upsert=bool(spread.table.primary_key))
        self.converted = spread
        self.topic_options = topic_options

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the records as a stream.

        Creates the topic first if the table demands it and no other INSERT of the script has.
        """
        create_topic(self.table, self.topic_options, self.options)
        return super().stream(context)

    def reason_not_in_worker(self, columns: Sequence[int]) -> str | None:
        """Return a reason: Catalyst puts the keys of topics together."""
        return "a topic of Lenses SQL"

    def _frame(self, frame: DataFrame, context: SourceContext) -> DataFrame:
        return self.converted.pack_key(super()._frame(frame, context))


@dataclass(frozen=True)
class TopicEncoder(RecordEncoder):
    """Encodes the rows of a query in Lenses SQL."""

    converted: ConvertedTable

    def convert(self, rows: pa.Table) -> pa.Table:
        """Split the key into columns.

        Raises ConnectorError `null-key` for a row without a key, which could not be replaced later.
        """
        if self.upsert and self.converted.key_position is None:
            at = next(at for at, column in enumerate(self.table.columns) if column.name == KEY)
            if rows.column(at).null_count:
                raise ConnectorError.of(
                    "null-key",
                    f"topic `{topics(self.options)[0]}`: a result has the key NULL, "
                    "but the records of a table are identified by their keys",
                    help="filter such records with WHERE field IS NOT NULL, "
                    "or give the key a name: GROUP BY field AS name",
                )
        return self.converted.unpack_key(rows)

    def locate(self, column: int) -> int:
        """Return the position in the query: the columns of a key are one column there."""
        key, width = self.converted.key_position, self.converted.key_width
        if key is None or column < key:
            return column
        return key if column < key + width else column - width + 1


class TopicSink(KafkaSink):
    """A sink that writes a topic, and creates it if the table demands it.

    topic_options: of the connector `topic`. options: of the converted table.
    """

    def __init__(
        self, context: SinkContext, spread: ConvertedTable, topic_options: OptionValues, options: OptionValues
    ) -> None:
        upsert = bool(spread.table.primary_key)
        encoder = TopicEncoder(spread.table, options, upsert, spread)
        super().__init__(replace(context, table=spread.table), options, upsert=upsert, encoder=encoder)
        self.topic_options = topic_options

    def prepare(self) -> None:
        """Create the topic if the table demands it, and check that it exists."""
        create_topic(self.table, self.topic_options, self.options)
        super().prepare()


def create_topic(table: Table, topic_options: OptionValues, options: OptionValues) -> None:
    """Create the topic of a table, if the table demands it and it does not exist.

    Returns when the brokers know it.

    topic_options: of the connector `topic`. options: of the converted table. Raises ConnectorError.
    """
    from confluent_kafka.cimpl import NewTopic

    if not topic_options.flag("create"):
        return
    counts = {name: topic_options.number(_CREATE + name) for name in _COUNTS}
    config = {
        name.removeprefix(_CREATE): str(topic_options.values[name])
        for name in topic_options.explicit
        if name.startswith(_CREATE) and name.removeprefix(_CREATE) not in counts
    }
    [topic] = topics(options)
    try:
        client = create_admin(options)
        topic_to_create = NewTopic(topic, counts["partitions"], counts["replication"], config=config)
        client.create_topics([topic_to_create], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)[topic].result()
        # The brokers list a topic a moment after the controller has created it.
        deadline = time.monotonic() + TIMEOUT_S
        while topic not in client.list_topics(timeout=TIMEOUT_S).topics and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    except KafkaException as wrong:
        if wrong.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise kafka_error(table, options, wrong) from None
