"""Jars of a connector from Maven Central: downloaded when a table first needs them, then cached."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.errors import ConnectorError
from everfold.files import cache_folder, remove_least_used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
_ATTEMPTS = 3
_KEPT = 2
"""Number of versions of a connector to keep in the cache, those used last."""
_SHARED_LOADER = "org.apache.spark.util.MutableURLClassLoader"
"""The class loader of Spark's driver, the parent of that of tasks in the same process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MavenJars:
    """Jars that provide a data source of Spark.

    name: of the folder in the cache, with the version. uris: of the jars, for Ivy. provider: a
    class that exists if the jars are loaded. what, table: their names in an error. code: its code.
    share: whether the driver and the tasks of its process must load the same classes.
    """

    name: str
    uris: tuple[str, ...]
    provider: str
    what: str
    table: str
    code: str
    share: bool = False

    def add_to(self, spark: SparkSession) -> None:
        """Load the jars in a session. Raises ConnectorError if they cannot be downloaded."""
        loaded = f"spark.everfold.jars.{self.name}"
        if spark.conf.get(loaded, "") or self._is_loaded(spark):
            return
        cache = cache_folder() / self.name
        if cache.is_dir():
            with suppress(OSError):
                os.utime(cache)  # it is in use
            for jar in sorted(cache.glob("*.jar")):
                spark.sql(f"ADD JAR '{jar}'")
        else:
            before = _list_jars(spark)
            self._download(spark)
            _copy_jars(spark, cache, sorted(_list_jars(spark) - before))
        if self.share:
            self._share(spark, cache)
        spark.conf.set(loaded, "true")

    def _share(self, spark: SparkSession, cache: Path) -> None:
        """Add the jars to the class loader that the driver and the tasks of its process share.

        `ADD JAR` gives each of them a loader of its own, and so two copies of a class.
        """
        jvm: Any = spark._jvm
        loader = jvm.Thread.currentThread().getContextClassLoader()
        while loader is not None and loader.getClass().getName() != _SHARED_LOADER:
            loader = loader.getParent()
        if loader is None or not cache.is_dir():
            where = f"the jars are not in {cache}" if loader is not None else "the session has no class loader for it"
            raise ConnectorError.of(
                self.code,
                f"{self.what} could not be loaded: {where}",
                help=f"start Spark with --conf spark.jars.packages={','.join(map(_coordinates, self.uris))}",
            )
        for jar in sorted(cache.glob("*.jar")):
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())

    def _download(self, spark: SparkSession) -> None:
        """Download the jars with Ivy; a server may fail once."""
        for uri in self.uris:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    spark.sql(f"ADD JAR '{uri}'")
                    break
                except Exception as wrong:
                    log.debug("ADD JAR %s, attempt %d", uri, attempt, exc_info=True)
                    if attempt == _ATTEMPTS:
                        raise ConnectorError.of(
                            self.code,
                            f"{self.what} could not be downloaded from Maven Central: {_show_cause(wrong)}",
                            help=f"the first use of {self.table} needs the network, or an Ivy cache with the jars"
                            " (spark.jars.ivy)",
                        ) from None

    def _is_loaded(self, spark: SparkSession) -> bool:
        """Return whether the jars are on the class path already."""
        try:
            jvm = spark._jvm
            assert jvm is not None
            jvm.org.apache.spark.util.Utils.classForName(self.provider, False, False)
        except Exception:
            return False
        return True


def _coordinates(uri: str) -> str:
    """Return the coordinates in a URI for Ivy."""
    return uri.removeprefix("ivy://").partition("?")[0]


def _show_cause(error: Exception) -> str:
    """Return the message of a Java exception, or that of another one."""
    thrown: Any = getattr(error, "java_exception", None)
    return str(error if thrown is None else thrown.getMessage()).splitlines()[0][:200]


def _list_jars(spark: SparkSession) -> set[str]:
    """Return the names of the jars that were added to a session."""
    return {str(row[0]).rsplit("/", 1)[-1] for row in spark.sql("LIST JARS").collect()}


def _copy_jars(spark: SparkSession, cache: Path, names: list[str]) -> None:
    """Copy the jars that Ivy downloaded into the cache, so that the next start needs no network.

    Copies all or none. A failure is only logged.
    """
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
        remove_least_used(cache.parent.glob(f"{cache.name.rpartition('-')[0]}-*"), _KEPT)
    except OSError:
        log.debug("the jars were not cached", exc_info=True)
