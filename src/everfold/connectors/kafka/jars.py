"""Spark's Kafka connector: downloaded when a Kafka table is first used, then cached."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.errors import ConnectorError
from everfold.files import cache_folder, remove_least_used

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
"""The jars to download.

The token provider of the connector's version is not published; an older one works (tested).
"""
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_LOADED = "spark.everfold.kafka.jars"
_KEPT = 2
"""Number of versions to keep in the cache, those used last."""
_ATTEMPTS = 3


def add_jars(spark: SparkSession) -> None:
    """Make `kafka` a data source of the session.

    Raises ConnectorError `kafka-jars` if the jars cannot be downloaded.
    """
    if spark.conf.get(_LOADED, "") or _is_loaded(spark):
        return
    cache = _cache()
    if cache.is_dir():
        with suppress(OSError):
            os.utime(cache)
        for jar in sorted(cache.glob("*.jar")):
            spark.sql(f"ADD JAR '{jar}'")
    else:
        _fetch(spark)
        _copy_jars(spark, cache)
    spark.conf.set(_LOADED, "true")


def _fetch(spark: SparkSession) -> None:
    """Download the jars with Ivy; a server may fail once."""
    for jar in JARS:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                spark.sql(f"ADD JAR '{jar}'")
                break
            except Exception as wrong:
                log.debug("ADD JAR %s, attempt %d", jar, attempt, exc_info=True)
                if attempt == _ATTEMPTS:
                    raise ConnectorError.of(
                        "kafka-jars",
                        f"Spark's Kafka connector could not be downloaded from Maven Central: {_show_cause(wrong)}",
                        help="the first use of a Kafka table needs the network, or an Ivy cache with the jars"
                        " (spark.jars.ivy)",
                    ) from None


def _show_cause(error: Exception) -> str:
    """Return the message of a Java exception, or that of another one."""
    thrown: Any = getattr(error, "java_exception", None)
    return str(error if thrown is None else thrown.getMessage()).splitlines()[0][:200]


def _cache() -> Path:
    """Return the cache folder of the jars."""
    return cache_folder() / f"spark-kafka-{CONNECTOR_VERSION}"


def _copy_jars(spark: SparkSession, cache: Path) -> None:
    """Copy the jars that Ivy downloaded into the cache, so that the next start needs no network.

    Copies all or none. A failure is only logged.
    """
    names = [str(row[0]).rsplit("/", 1)[-1] for row in spark.sql("LIST JARS").collect()]
    ivy = spark.conf.get("spark.jars.ivy", "")
    homes = [Path(ivy)] if ivy else sorted(Path.home().glob(".ivy2*"))
    found = [next((home / "jars" / name for home in homes if (home / "jars" / name).is_file()), None) for name in names]
    if not names or None in found:
        return
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{cache.name}-", dir=cache.parent))
        for jar in found:
            assert jar is not None
            shutil.copy2(jar, staging)
        staging.rename(cache)
        remove_least_used(cache.parent.glob("spark-kafka-*"), _KEPT)
    except OSError:
        log.debug("the jars were not cached", exc_info=True)


def _is_loaded(spark: SparkSession) -> bool:
    """Return whether the connector is on the class path already."""
    try:
        jvm = spark._jvm
        assert jvm is not None
        jvm.org.apache.spark.util.Utils.classForName(_PROVIDER, False, False)
    except Exception:
        return False
    return True
