"""Jobs on Spark, as the command line and the Python API start them, each in its own directory.

One JVM serves all jobs of a process; the first job starts it, and it ends with the process.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everfold.jobs.engine import Engine

_ENGINES: dict[tuple[str | None, tuple[tuple[str, str], ...]], Engine] = {}


def get_engine(
    master: str | None,
    conf: Mapping[str, str],
    *,
    brief: bool = False,
    uses_s3: bool = False,
    log_file: Path | None = None,
) -> Engine:
    """Return this process's engine for a master and a Spark configuration, creating it if needed.

    brief, uses_s3, log_file: apply only to a new engine. Raises UsageError `engine-missing` without
    PySpark.
    """
    from everfold.spark.pyspark_path import require_pyspark

    require_pyspark()
    from everfold.jobs.engine import Engine

    key = (master, tuple(sorted(conf.items())))
    if key not in _ENGINES:
        _ENGINES[key] = Engine(master=master, conf=conf, brief=brief, uses_s3=uses_s3, log_file=log_file)
        atexit.register(_ENGINES[key].close)
    return _ENGINES[key]
