"""A process that `spark-submit` started: its JVM runs already, with a master and a configuration.

Its configuration takes precedence over ours. What it has decided cannot be changed any more: the
master, the deploy mode and the options of the JVM itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from everfold.errors import Diagnostic, UsageError

MASTER = "spark.master"
_FIXED = (
    "spark.driver.cores",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraLibraryPath",
    "spark.driver.memory",
    "spark.jars",
    "spark.jars.packages",
    "spark.submit.deployMode",
    "spark.submit.pyFiles",
)
"""Options that only the command line of `spark-submit` can set."""
_NOT_SET = "not set"


def is_submitted() -> bool:
    """Return whether `spark-submit` has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def read_submitted_conf() -> dict[str, str]:
    """Return the configuration of the JVM that has started this process."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())


def check_contradictions(submitted: Mapping[str, str], master: str | None, conf: Mapping[str, str]) -> None:
    """Check that a master and options of everfold's command line agree with `spark-submit`.

    Raises UsageError `spark-submit`.
    """
    asked = {key: conf[key] for key in _FIXED if key in conf}
    found = [_contradiction(f"--conf {key}", key, submitted) for key in asked if asked[key] != submitted.get(key)]
    masters = {"--master": master, f"--conf {MASTER}": conf.get(MASTER)}
    found += [
        _contradiction(option, MASTER, submitted)
        for option, value in masters.items()
        if value not in (None, submitted.get(MASTER))
    ]
    if found:
        raise UsageError(*found)


def _contradiction(option: str, key: str, submitted: Mapping[str, str]) -> Diagnostic:
    """Return the error for an option; its value may be a secret, the one of the master is not."""
    given = f"`{submitted[key]}`" if key == MASTER else "another value" if key in submitted else _NOT_SET
    return Diagnostic(
        "spark-submit",
        f"`{option}` contradicts spark-submit, where `{key}` is {given}",
        help="pass the option to spark-submit, before the script, and not to everfold",
    )
