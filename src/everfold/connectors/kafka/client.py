"""Talks to the brokers beside Spark: which topics and partitions there are, where they begin and end, what a group has committed."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from everfold.connectors.connector_errors import trouble
from everfold.connectors.contract import OptionValues
from everfold.connectors.kafka.connector import SERVERS, topics
from everfold.errors import ConnectorError, nearest
from everfold.plan.nodes import Table
from everfold.secrets import is_secret

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
TIMEOUT_S = 10.0
Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""

_OWN = frozenset({
    "bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "auto.commit.interval.ms", "key.deserializer",
    "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes", "transactional.id", "partitioner.class",
})  # fmt: skip
"""Settings of Kafka's client that are everfold's to decide."""
_JAAS = re.compile(r"\b(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")
_STORES = ("ssl.truststore.", "ssl.keystore.")
_VERIFICATION = "ssl.endpoint.identification.algorithm"


def java_settings(options: OptionValues) -> dict[str, str]:
    """Settings for Spark's client: the table's, and waits short enough that a user hears of a broker that is down."""
    said = {key: value for key, value in options.with_prefix("properties.").items() if key not in _OWN}
    defaults = {"isolation.level": "read_committed", "default.api.timeout.ms": "15000", "request.timeout.ms": "12000"}
    return {**defaults, **said, "bootstrap.servers": options.text(SERVERS)}


def own_settings(options: OptionValues) -> dict[str, str]:
    """The same for the client of this process, where Java's words differ; what it does not know is left out."""
    said = {key: value for key, value in options.with_prefix("properties.").items() if key not in _OWN}
    for word, *values in _JAAS.findall(said.pop("sasl.jaas.config", "")):
        said.setdefault(f"sasl.{word}", re.sub(r"\\(.)", r"\1", "".join(values)))
    if said.get(_VERIFICATION) == "":
        said[_VERIFICATION] = "none"
    stores = {key: said.pop(key) for key in tuple(said) if key.startswith(_STORES)}
    settings = {"isolation.level": "read_committed", **said, **_stores(stores)}
    return _known({**settings, "bootstrap.servers": options.text(SERVERS)})


def group_of(options: OptionValues) -> str:
    """The group of a table, which nobody joins."""
    return options.text_or_none("properties.group.id") or "everfold"


def _stores(java: Mapping[str, str]) -> dict[str, str]:
    """Java's trust store and key store: PEM files or texts; a key store can be PKCS #12 too."""
    said: dict[str, str | None] = {
        "ssl.ca.location": java.get("ssl.truststore.location"),
        "ssl.ca.pem": java.get("ssl.truststore.certificates"),
    }
    if java.get("ssl.keystore.type", "").upper() == "PEM":
        said |= {
            "ssl.certificate.location": java.get("ssl.keystore.location"),
            "ssl.key.location": java.get("ssl.keystore.location"),
            "ssl.certificate.pem": java.get("ssl.keystore.certificate.chain"),
            "ssl.key.pem": java.get("ssl.keystore.key"),
        }
    else:
        said |= {each: java.get(each) for each in ("ssl.keystore.location", "ssl.keystore.password")}
    return {key: value for key, value in said.items() if value is not None}


def _known(settings: dict[str, str]) -> dict[str, str]:
    """Without the settings that the client of this process does not know."""
    while True:
        try:
            Consumer({**settings, "group.id": "everfold"}, logger=log).close()
            return settings
        except KafkaException as wrong:
            unknown = re.search(r'No such configuration property: "([^"]+)"', str(wrong))
            if unknown is None or unknown.group(1) not in settings:
                raise
            settings = {key: value for key, value in settings.items() if key != unknown.group(1)}


class Client:
    """A connection for questions. Every failure is a ConnectorError: `kafka-unreachable`, `no-such-topic`, `kafka-refused`."""

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self._consumer: Any = None

    @property
    def consumer(self) -> Any:
        """The consumer, made when first asked; it belongs to no group's members."""
        if self._consumer is None:
            try:
                settings = {**own_settings(self.options), "group.id": group_of(self.options)}
                self._consumer = Consumer({**settings, "enable.auto.commit": False}, logger=log)
            except KafkaException as wrong:
                raise self.error(wrong) from None
        return self._consumer

    def close(self) -> None:
        """Lets go of the connection."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def cluster(self) -> str:
        """The id of the cluster that the brokers belong to; empty where they do not give one."""
        try:
            return self.consumer.list_topics(timeout=TIMEOUT_S).cluster_id or ""
        except KafkaException as wrong:
            raise self.error(wrong) from None

    def partitions(self) -> dict[str, list[int]]:
        """The partitions of the table's topics. Raises ConnectorError when there is no such topic."""
        try:
            found = self.consumer.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as wrong:
            raise self.error(wrong) from None
        pattern = self.options.text_or_none("topic-pattern")
        named = (
            topics(self.options)
            if pattern is None
            else tuple(sorted(each for each in found if re.fullmatch(pattern, each)))
        )
        for topic in named:
            if topic not in found:
                raise self._no_such_topic(topic, (each for each in found if not each.startswith("__")))
        if not named:
            raise trouble(
                "no-such-topic", f"table `{self.table.name}`: no topic matches `{pattern}`", self._span("topic-pattern")
            )
        return {topic: sorted(found[topic].partitions) for topic in named}

    def _no_such_topic(self, topic: str, known: Iterable[str]) -> ConnectorError:
        return trouble(
            "no-such-topic",
            f"table `{self.table.name}`: the brokers at {self.options.text(SERVERS)} have no topic `{topic}`",
            self._span("topic"),
            nearest(topic, known) or "create the topic first",
        )

    def ends(self, partitions: Mapping[str, list[int]], *, first: bool = False) -> Offsets:
        """Where the partitions end (`first`: begin) now."""
        return {
            topic: {at: self._watermarks(topic, at)[0 if first else 1] for at in of} for topic, of in partitions.items()
        }

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        try:
            low, high = self.consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        except KafkaException as wrong:
            raise self.error(wrong) from None
        return int(low), int(high)

    def at_time(self, partitions: Mapping[str, list[int]], millis: int) -> Offsets:
        """The first offsets with a time from `millis` on; the end where there is none."""
        asked = [TopicPartition(topic, at, millis) for topic, of in partitions.items() for at in of]
        try:
            answers = self.consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
        except KafkaException as wrong:
            raise self.error(wrong) from None
        found: Offsets = {topic: {} for topic in partitions}
        for answer in answers:
            offset = answer.offset if answer.offset >= 0 else self._watermarks(answer.topic, answer.partition)[1]
            found[answer.topic][answer.partition] = offset
        return found

    def committed(self, partitions: Mapping[str, list[int]]) -> dict[str, dict[int, int | None]]:
        """What the table's group has committed, None where it has nothing."""
        asked = [TopicPartition(topic, at) for topic, of in partitions.items() for at in of]
        try:
            answers = self.consumer.committed(asked, timeout=TIMEOUT_S)
        except KafkaException as wrong:
            raise self.error(wrong) from None
        found: dict[str, dict[int, int | None]] = {topic: {} for topic in partitions}
        for answer in answers:
            found[answer.topic][answer.partition] = answer.offset if answer.offset >= 0 else None
        return found

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Commits offsets for the table's group: for people who watch it, so a failure is only logged."""
        said = [TopicPartition(topic, int(at), offset) for topic, of in offsets.items() for at, offset in of.items()]
        try:
            self.consumer.commit(offsets=said, asynchronous=False)
        except (KafkaException, ConnectorError) as wrong:
            log.warning("the offsets of table %s could not be committed: %s", self.table.name, wrong)

    def error(self, wrong: KafkaException) -> ConnectorError:
        """A failure of the client as an error for users; no settings are in it, as they can be secrets."""
        return kafka_error(self.table, self.options, wrong)

    def _span(self, option: str) -> Any:
        return dict(self.table.option_spans).get(option)


def kafka_error(table: Table, options: OptionValues, wrong: KafkaException) -> ConnectorError:
    """A failure of the client as an error for users."""
    error: KafkaError = wrong.args[0]
    if error.code() in (
        KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE, KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
    ):  # fmt: skip
        return unreachable(table, options)
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        topic = options.text_or_none("topic") or options.text_or_none("topic-pattern")
        return trouble(
            "no-such-topic",
            f"table `{table.name}`: the brokers at {options.text(SERVERS)} have no topic `{topic}`",
            dict(table.option_spans).get("topic"),
            "create the topic first",
        )
    return trouble("kafka-refused", f"table `{table.name}`: Kafka says: {_without_secrets(error.str(), options)}")


def _without_secrets(text: str, options: OptionValues) -> str:
    """The text with stars for secrets of the table."""
    said = options.with_prefix("properties.")
    hidden = [value for key, value in said.items() if is_secret(key)]
    hidden += ["".join(value) for word, *value in _JAAS.findall(said.get("sasl.jaas.config", "")) if word == "password"]
    for value in filter(None, hidden):
        text = text.replace(value, "******")
    return text


def unreachable(table: Table, options: OptionValues) -> ConnectorError:
    """No broker answers."""
    return trouble(
        "kafka-unreachable",
        f"table `{table.name}`: no Kafka broker answers at {options.text(SERVERS)}",
        dict(table.option_spans).get(SERVERS),
        "is the broker running, and is this its address?",
    )
