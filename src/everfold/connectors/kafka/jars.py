"""Spark's Kafka connector, from Maven Central."""

from __future__ import annotations

from everfold.connectors.maven_jars import MavenJars

CONNECTOR_VERSION = "4.2.0"
TOKEN_VERSION = "4.0.0"
_GROUP, _SCALA = "org.apache.spark", "2.13"
_TOKEN = f"{_GROUP}:spark-token-provider-kafka-0-10_{_SCALA}"
KAFKA = MavenJars(
    name=f"spark-kafka-{CONNECTOR_VERSION}",
    uris=(
        f"ivy://{_GROUP}:spark-sql-kafka-0-10_{_SCALA}:{CONNECTOR_VERSION}?exclude={_TOKEN}",
        f"ivy://{_TOKEN}:{TOKEN_VERSION}?transitive=false",
    ),
    provider="org.apache.spark.sql.kafka010.KafkaSourceProvider",
    what="Spark's Kafka connector",
    table="a Kafka table",
    code="kafka-jars",
)
"""The jars of the connector.

The token provider of the connector's version is not published; an older one works (tested).
"""
