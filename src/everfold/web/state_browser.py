"""The state of a job as tables, read by a Spark that this process keeps."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from everfold.cli.state import filter_state, hide_internal
from everfold.far_times import to_values
from everfold.inspection.filter import check_condition
from everfold.inspection.job_state import Inspection, log_file
from everfold.rendering import table_format
from everfold.storage import Location

MAX_ROWS = 100
_SPARK_CONF = {"spark.driver.maxResultSize": "0"}
_READING = threading.Lock()


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table of an operator's state. rows: the first ones, as cells. total: how many there are."""

    operator: str
    name: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | None]]
    total: int


@dataclass(frozen=True, slots=True)
class ShownState:
    """The state of a job after a batch of a version."""

    version: int
    batch: int
    tables: tuple[ShownTable, ...]


def read_state(job: Location, where: str) -> ShownState:
    """Read the state of a job. where: an SQL condition, empty for all rows.

    Starts Spark at the first call. Raises EverfoldError.
    """
    from everfold.jobs import get_engine

    if where:
        check_condition(where)
    engine = get_engine(None, _SPARK_CONF, brief=True)
    with _READING:
        state = Inspection(job, None).read(lambda: engine.spark(log_file()))
    if where:
        state = filter_state(state, where)
    state = hide_internal(state)
    tables = []
    for operator in state.operators:
        for table in operator.tables:
            if not len(table.schema):
                continue
            columns = [to_values(column) for column in table.rows.slice(0, MAX_ROWS).columns]
            rows = [table_format.format_cells(row, table.schema, state.zone) for row in zip(*columns, strict=True)]
            name = f"{operator.operator.name} {operator.operator.label}"
            tables.append(ShownTable(name, table.name, table.schema.names, rows, table.rows.num_rows))
    return ShownState(state.version.number, state.batch, tuple(tables))
