"""Names of sources that are derived from the options of their tables."""

from __future__ import annotations

import hashlib
from pathlib import Path

from everfold.plan.nodes import Table

_IDENTITY = (
    "connector",
    "path",
    "table-path",
    "topic",
    "topic-pattern",
    "properties.bootstrap.servers",
    "format",
    "url",
    "table-name",
)


def name_by_options(table: Table, name: str, base_folder: Path) -> str:
    """Return the name in Spark's checkpoint that is derived from a table's options as written.

    It is used without a job, and by jobs that do not record locations yet.
    """
    options = dict(table.options)
    parts = [f"{key}={options[key]}" for key in _IDENTITY if key in options]
    if "path" in options or "table-path" in options:
        parts.append(str(base_folder.resolve()))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{name}_{digest[:8]}"
