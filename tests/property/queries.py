"""Bind SQL and make its input, for tests of the in-process runner."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from everfold.memory.batch import run_batch
from everfold.memory.pipeline import MemoryPipeline
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit
from everfold.sql.settings import Settings
from everfold.types import physical_name

BID = """
CREATE TABLE Bid (
  bidtime TIMESTAMP(3), price DECIMAL(10, 2), item STRING, supplier_id STRING,
  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND
);
"""


class Query:
    """The last statement of a script, bound."""

    def __init__(self, text: str, folder: Path | None = None) -> None:
        submits = [
            action
            for action in Session(folder=folder or Path(), import_functions=True).run(text)
            if isinstance(action, Submit)
        ]
        self.submit = submits[-1]
        self.root: Root = self.submit.roots[0]
        self.settings: Settings = self.submit.settings

    def input(self, **tables: Iterable[dict[str, Any]]) -> dict[str, pa.Table]:
        """Return the rows of each table in the format of an engine."""
        found = {}
        for table in self.submit.sources:
            if table.name in tables:
                rows = list(tables[table.name])
                columns = {
                    physical_name(at): pa.array([row.get(column.name) for row in rows], column.type.arrow)
                    for at, column in enumerate(table.columns)
                }
                found[table.name] = pa.table(columns)
        return found

    def pipeline(self, **kwargs: Any) -> MemoryPipeline:
        return MemoryPipeline(self.root, self.settings, **kwargs)

    def batch(self, **tables: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return tuples(run_batch(self.root, self.input(**tables), self.settings))


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]
