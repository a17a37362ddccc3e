"""Spark's Kafka connector: fetched when a Kafka table is first used, and kept for all later times."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.cache import cache_folder
from everfold.connectors.connector_errors import trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
CONNECTOR_VERSION = "4.2.0"
TOKEN_VERSION = "4.0.0"
_GROUP, _SCALA = "org.apache.spark", "2.13"
_TOKEN = f"{_GROUP}:spark-token-provider-kafka-0-10_{_SCALA}"
JARS = (
    f"ivy://{_GROUP}:spark-sql-kafka-0-10_{_SCALA}:{CONNECTOR_VERSION}?exclude={_TOKEN}",
    f"ivy://{_TOKEN}:{TOKEN_VERSION}?transitive=false",
)
"""The token provider of the connector's own version is not published; an older one fits (seen working)."""
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_DONE = "spark.everfold.kafka.jars"


def add_jars(spark: SparkSession) -> None:
    """Makes `kafka` a data source of the session. Raises ConnectorError `kafka-jars` when the jars cannot be fetched."""
    if spark.conf.get(_DONE, "") or _is_there(spark):
        return
    kept = _kept()
    if kept.is_dir():
        for jar in sorted(kept.glob("*.jar")):
            spark.sql(f"ADD JAR '{jar}'")
    else:
        _fetch(spark)
        _keep(spark, kept)
    spark.conf.set(_DONE, "true")


def _fetch(spark: SparkSession) -> None:
    for jar in JARS:
        try:
            spark.sql(f"ADD JAR '{jar}'")
        except Exception as wrong:
            log.debug("ADD JAR %s", jar, exc_info=True)
            raise trouble(
                "kafka-jars",
                "Spark's Kafka connector could not be fetched from Maven Central: " + str(wrong).splitlines()[0][:200],
                help="the first use of a Kafka table needs the network, or an Ivy cache that has seen it (spark.jars.ivy)",
            ) from None


def _kept() -> Path:
    """Where the jars are kept."""
    return cache_folder() / f"spark-kafka-{CONNECTOR_VERSION}"


def _keep(spark: SparkSession, kept: Path) -> None:
    """Copies what Ivy has fetched, so that the next start asks nobody. Whole or not at all; a failure costs only time."""
    names = [str(row[0]).rsplit("/", 1)[-1] for row in spark.sql("LIST JARS").collect()]
    said = spark.conf.get("spark.jars.ivy", "")
    homes = [Path(said)] if said else sorted(Path.home().glob(".ivy2*"))
    found = [next((home / "jars" / name for home in homes if (home / "jars" / name).is_file()), None) for name in names]
    if not names or None in found:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{kept.name}-", dir=kept.parent))
        for jar in found:
            assert jar is not None
            shutil.copy2(jar, staging)
        staging.rename(kept)
    except OSError:
        log.debug("the jars were not kept", exc_info=True)


def _is_there(spark: SparkSession) -> bool:
    """Whether the caller has brought the connector along."""
    try:
        jvm = spark._jvm
        assert jvm is not None
        jvm.org.apache.spark.util.Utils.classForName(_PROVIDER, False, False)
    except Exception:
        return False
    return True
