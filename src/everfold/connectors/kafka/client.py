"""Query the brokers without Spark: topics, partitions, their offsets, and committed offsets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from everfold.connectors.contract import OptionValues
from everfold.connectors.kafka.table_options import SERVERS, topics
from everfold.errors import ConnectorError, suggest_name
from everfold.plan.nodes import Table
from everfold.secrets import is_secret

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
TIMEOUT_S = 10.0
_SAMPLED_PARTITIONS, _SAMPLED_RECORDS = 8, 50
_SAMPLE_S = 2.0
_POLL_S = 0.1
_T = TypeVar("_T")
Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


class TopicDescription(NamedTuple):
    """A topic: its id, empty if the brokers know none, and the numbers of its partitions."""

    topic_id: str
    partitions: frozenset[int]


_OWN = frozenset({
    "bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "key.deserializer",
    "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes", "transactional.id", "partitioner.class",
})  # fmt: skip
"""Settings of the Kafka client that everfold sets itself."""
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_WITHOUT_LEADER = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""Errors about a partition that was just created, or whose leader has just failed."""
_NO_IDS = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
"""What stands for the id of a topic at brokers that know no ids: the last one consists of zeros."""
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")
_STORES = ("ssl.truststore.", "ssl.keystore.")
_VERIFICATION = "ssl.endpoint.identification.algorithm"


JAVA_DEFAULTS = {
    "isolation.level": "read_committed",
    "default.api.timeout.ms": "15000",
    "request.timeout.ms": "12000",
    # After each poll Spark asks for the first and the last offset. So a poll returns all records of
    # an answer of the broker, unless they are small; with 1 or 4 MB it took more processor time.
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": str(2 << 20),
    # The last poll of a batch also asks for records that do not exist yet. The broker answers
    # nothing else on the connection before that, so a batch waited half a second if no more came.
    "fetch.max.wait.ms": "10",
}


def java_settings(options: OptionValues) -> dict[str, str]:
    """Return the settings for Spark's Kafka client.

    Those of the table, and timeouts that are short enough to report a broker that is down.
    """
    given = {key: value for key, value in options.with_prefix("properties.").items() if key not in _OWN}
    return {**JAVA_DEFAULTS, **given, "bootstrap.servers": options.string(SERVERS)}


def client_settings(options: OptionValues) -> dict[str, str]:
    """Return the settings for the Kafka client of this process.

    Java settings with another name are translated; settings that the client does not know are left
    out.
    """
    given = {key: value for key, value in options.with_prefix("properties.").items() if key not in _OWN}
    for field, *values in _JAAS.findall(given.pop("sasl.jaas.config", "")):
        given.setdefault(f"sasl.{field}", re.sub(r"\\(.)", r"\1", "".join(values)))
    if given.get(_VERIFICATION) == "":
        given[_VERIFICATION] = "none"
    stores = {key: given.pop(key) for key in tuple(given) if key.startswith(_STORES)}
    settings = {"isolation.level": "read_committed", **given, **_translate_stores(stores)}
    return _drop_unknown({**settings, "bootstrap.servers": options.string(SERVERS)})


def consumer_group(options: OptionValues) -> str:
    """Return the consumer group of a table. No consumer joins it."""
    return options.string_or_none("properties.group.id") or "everfold"


def _translate_stores(java: Mapping[str, str]) -> dict[str, str]:
    """Translate the settings of Java's trust store and key store.

    Both can be PEM files or strings; a key store can also be a PKCS #12 file.
    """
    given: dict[str, str | None] = {
        "ssl.ca.location": java.get("ssl.truststore.location"),
        "ssl.ca.pem": java.get("ssl.truststore.certificates"),
    }
    if java.get("ssl.keystore.type", "").upper() == "PEM":
        given |= {
            "ssl.certificate.location": java.get("ssl.keystore.location"),
            "ssl.key.location": java.get("ssl.keystore.location"),
            "ssl.certificate.pem": java.get("ssl.keystore.certificate.chain"),
            "ssl.key.pem": java.get("ssl.keystore.key"),
        }
    else:
        given |= {each: java.get(each) for each in ("ssl.keystore.location", "ssl.keystore.password")}
    return {key: value for key, value in given.items() if value is not None}


def _drop_unknown(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings without those that the client of this process does not know."""
    while True:
        try:
            Consumer({**settings, "group.id": "everfold"}, logger=log).close()
            return settings
        except KafkaException as wrong:
            unknown = re.search(r'No such configuration property: "([^"]+)"', str(wrong))
            if unknown is None or unknown.group(1) not in settings:
                raise
            settings = {key: value for key, value in settings.items() if key != unknown.group(1)}


def create_admin(options: OptionValues) -> Any:
    """Return a client that can create and describe topics. Raises KafkaException."""
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {**client_settings(options), "logger": log}
    del settings["isolation.level"]
    return AdminClient(settings)


class Client:
    """A connection for metadata queries.

    Every failure is a ConnectorError: `kafka-unreachable`, `no-such-topic`, `kafka-refused`.
    """

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self._consumer: Any = None
        self._admin: Any = None

    @property
    def consumer(self) -> Any:
        """The consumer, created at first use. It does not join its group."""
        if self._consumer is None:
            with self._convert_errors():
                settings = {**client_settings(self.options), "group.id": consumer_group(self.options)}
                own = {"enable.auto.commit": False, "enable.partition.eof": True}
                self._consumer = Consumer({**settings, **own}, logger=log)
        return self._consumer

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._admin = None

    @property
    def admin(self) -> Any:
        """The client for questions about topics, created at first use."""
        if self._admin is None:
            with self._convert_errors():
                self._admin = create_admin(self.options)
        return self._admin

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Return those of the topics that exist."""
        from confluent_kafka import TopicCollection

        asked = list(names)
        if not asked:
            return {}
        found: dict[str, TopicDescription] = {}
        with self._convert_errors():
            answers = self.admin.describe_topics(TopicCollection(asked), request_timeout=TIMEOUT_S)
            for topic, answer in answers.items():
                try:
                    described = answer.result()
                except KafkaException as wrong:
                    if wrong.args[0].code() not in _UNKNOWN_TOPIC:
                        raise
                    continue
                topic_id = str(described.topic_id)
                partitions = frozenset(partition.id for partition in described.partitions)
                found[topic] = TopicDescription("" if topic_id in _NO_IDS else topic_id, partitions)
        return found

    def first_offsets(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the first offset that exists of each partition."""
        return self._list_offsets(partitions, is_first=True)

    def end_offsets(self, partitions: Mapping[str, Iterable[int]]) -> Offsets:
        """Return the next offset of each partition, open transactions included."""
        return self._list_offsets(partitions, is_first=False)

    def _list_offsets(self, partitions: Mapping[str, Iterable[int]], *, is_first: bool) -> Offsets:
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        asked = [TopicPartition(topic, partition) for topic, numbers in partitions.items() for partition in numbers]
        if not asked:
            return {}
        spec = OffsetSpec.earliest() if is_first else OffsetSpec.latest()  # type: ignore[no-untyped-call]

        def ask() -> Offsets:
            answers = self.admin.list_offsets(dict.fromkeys(asked, spec), request_timeout=TIMEOUT_S)
            offsets: Offsets = {}
            for partition in asked:
                offsets.setdefault(partition.topic, {})[partition.partition] = answers[partition].result().offset
            return offsets

        return self._ask_leaders(ask)

    def _ask_leaders(self, ask: Callable[[], _T]) -> _T:
        """Return the answer of the leaders of partitions, after waiting for new ones."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as wrong:
                if wrong.args[0].code() not in _WITHOUT_LEADER or time.monotonic() > deadline:
                    raise kafka_error(self.table, self.options, wrong) from None
            time.sleep(_POLL_S)

    def cluster_id(self) -> str:
        """Return the id of the cluster; empty if the brokers report none."""
        with self._convert_errors():
            return self.consumer.list_topics(timeout=TIMEOUT_S).cluster_id or ""

    def partitions(self) -> dict[str, list[int]]:
        """Return the partitions of the table's topics. Raises ConnectorError `no-such-topic`."""
        with self._convert_errors():
            found = self.consumer.list_topics(timeout=TIMEOUT_S).topics
        pattern = self.options.string_or_none("topic-pattern")
        names = (
            topics(self.options)
            if pattern is None
            else tuple(sorted(each for each in found if re.fullmatch(pattern, each)))
        )
        for topic in names:
            if topic not in found:
                raise self.no_such_topic_error(topic, (each for each in found if not each.startswith("__")))
        if not names:
            raise ConnectorError.of(
                "no-such-topic",
                f"table `{self.table.name}`: no topic matches `{pattern}`",
                self.table.span_of_option("topic-pattern"),
            )
        return {topic: sorted(found[topic].partitions) for topic in names}

    def no_such_topic_error(self, topic: str, known: Iterable[str]) -> ConnectorError:
        """Return the error for a topic that does not exist. known: those that do."""
        return ConnectorError.of(
            "no-such-topic",
            f"table `{self.table.name}`: the brokers at {self.options.string(SERVERS)} have no topic `{topic}`",
            self.table.span_of_option("topic"),
            suggest_name(topic, known) or "create the topic first",
        )

    def ends(self, partitions: Mapping[str, list[int]], *, first: bool = False) -> Offsets:
        """Return the current end offsets of the partitions; first: their first offsets."""
        return {
            topic: {at: self._watermarks(topic, at)[0 if first else 1] for at in of} for topic, of in partitions.items()
        }

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        consumer, place = self.consumer, TopicPartition(topic, partition)
        low, high = self._ask_leaders(lambda: consumer.get_watermark_offsets(place, timeout=TIMEOUT_S))
        return int(low), int(high)

    def mean_record_bytes(self, partitions: Mapping[str, list[int]]) -> int | None:
        """Return the mean size of the newest records, keys and values; None if none can be read."""
        bounds = ((topic, at, *self._watermarks(topic, at)) for topic, of in partitions.items() for at in of)
        starts = (
            TopicPartition(topic, at, max(low, high - _SAMPLED_RECORDS))
            for topic, at, low, high in bounds
            if high > low
        )
        newest = list(islice(starts, _SAMPLED_PARTITIONS))
        if not newest:
            return None
        with self._convert_errors():
            self.consumer.assign(newest)
            sizes = list(islice(self._read_sizes(newest), _SAMPLED_RECORDS * len(newest)))
            self.consumer.unassign()
        return sum(sizes) // len(sizes) if sizes else None

    def _read_sizes(self, assigned: Iterable[TopicPartition]) -> Iterator[int]:
        """Yield the sizes of records, up to the ends of the partitions or for a limited time."""
        unfinished = {(each.topic, each.partition) for each in assigned}
        until = time.monotonic() + _SAMPLE_S
        while unfinished and (left := until - time.monotonic()) > 0:
            found = self.consumer.poll(left)
            if found is None:
                return
            error = found.error()
            if error is None:
                yield len(found.key() or b"") + len(found.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard((found.topic(), found.partition()))

    def offsets_at_time(self, partitions: Mapping[str, list[int]], millis: int) -> Offsets:
        """Return the first offsets with a timestamp from `millis` on; the end if there is none."""
        queries = [TopicPartition(topic, at, millis) for topic, of in partitions.items() for at in of]
        with self._convert_errors():
            answers = self.consumer.offsets_for_times(queries, timeout=TIMEOUT_S)
        found: Offsets = {topic: {} for topic in partitions}
        for answer in answers:
            offset = answer.offset if answer.offset >= 0 else self._watermarks(answer.topic, answer.partition)[1]
            found[answer.topic][answer.partition] = offset
        return found

    def committed(self, partitions: Mapping[str, list[int]]) -> dict[str, dict[int, int | None]]:
        """Return the committed offsets of the table's group, None for a partition without one."""
        queries = [TopicPartition(topic, at) for topic, of in partitions.items() for at in of]
        with self._convert_errors():
            answers = self.consumer.committed(queries, timeout=TIMEOUT_S)
        found: dict[str, dict[int, int | None]] = {topic: {} for topic in partitions}
        for answer in answers:
            found[answer.topic][answer.partition] = answer.offset if answer.offset >= 0 else None
        return found

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Commit offsets for the table's group.

        They only serve monitoring, so a failure is only logged.
        """
        positions = [
            TopicPartition(topic, int(at), offset) for topic, of in offsets.items() for at, offset in of.items()
        ]
        try:
            self.consumer.commit(offsets=positions, asynchronous=False)
        except (KafkaException, ConnectorError) as wrong:
            log.warning("the offsets of table %s could not be committed: %s", self.table.name, wrong)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as wrong:
            raise kafka_error(self.table, self.options, wrong) from None


def kafka_error(table: Table, options: OptionValues, wrong: KafkaException) -> ConnectorError:
    """Return the error to show for a failure of the client.

    It contains no settings, as they can be secrets.
    """
    error: KafkaError = wrong.args[0]
    if error.code() in (
        KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
    ):  # fmt: skip
        return unreachable_error(table, options)
    if error.code() in _UNKNOWN_TOPIC:
        topic = options.string_or_none("topic") or options.string_or_none("topic-pattern")
        return ConnectorError.of(
            "no-such-topic",
            f"table `{table.name}`: the brokers at {options.string(SERVERS)} have no topic `{topic}`",
            table.span_of_option("topic"),
            "create the topic first",
        )
    return ConnectorError.of(
        "kafka-refused", f"table `{table.name}`: Kafka says: {_mask_secrets(error.str(), options)}"
    )


def _mask_secrets(text: str, options: OptionValues) -> str:
    """Mask the secrets of the table in a string."""
    given = options.with_prefix("properties.")
    hidden = [value for key, value in given.items() if is_secret(key)]
    hidden += [
        "".join(value) for field, *value in _JAAS.findall(given.get("sasl.jaas.config", "")) if field == "password"
    ]
    for value in filter(None, hidden):
        text = text.replace(value, "******")
    return text


def unreachable_error(table: Table, options: OptionValues) -> ConnectorError:
    """Return the error `kafka-unreachable`."""
    return ConnectorError.of(
        "kafka-unreachable",
        f"table `{table.name}`: no Kafka broker answers at {options.string(SERVERS)}",
        table.span_of_option(SERVERS),
        "check that the broker is running at this address",
    )
