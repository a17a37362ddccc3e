"""`everfold state`: the state of a job as tables."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from rich.cells import cell_len

from everfold.cli.history import describe_start
from everfold.cli.progress import show_activities
from everfold.cli.runner import open_job
from everfold.errors import UsageError
from everfold.far_times import to_values
from everfold.rendering import table_format
from everfold.types import TimeType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.inspection.job_state import AggregateStart, JobState, OperatorState
    from everfold.inspection.tables import StateTable
    from everfold.jobs.folders import FolderName

StateFormat: TypeAlias = Literal["table", "json", "parquet"]
DEFAULT_LIMIT = 100
"""How many rows of a table are printed without `--limit`."""
_SPARK_CONF = {"spark.driver.maxResultSize": "0"}
"""No limit: state may be larger than the result size that Spark allows by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """The options of `everfold state`.

    operator: id or label of the only operator to show. where: an SQL condition over the columns.
    limit: rows per table, 0 for all, None for the default of the format. out: the folder for
    Parquet files. sizes: show bytes and pages instead of rows. internal: show internal columns,
    too. conf: Spark options.
    """

    operator: str | None = None
    where: str | None = None
    limit: int | None = None
    format: StateFormat = "table"
    out: Path | None = None
    sizes: bool = False
    internal: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)


def state(folder: FolderName, options: StateOptions) -> None:
    """Print the state of the job in a folder after its last finished batch, or write it into files.

    Raises UsageError `no-job`, `no-operator`, `wrong-condition`, `folder-of-job`; StateError
    `no-batch` and the errors of a damaged job.
    """
    from everfold.inspection.filter import check_condition
    from everfold.inspection.job_state import Inspection, log_file
    from everfold.jobs import get_engine
    from everfold.jobs.folders import needs_s3

    job = open_job(folder, options.conf)
    inspection = Inspection(job, options.operator)
    if options.where is not None:
        check_condition(options.where)
    if options.out is not None and job.local_path is not None and options.out.resolve().is_relative_to(job.local_path):
        raise UsageError.of(
            "folder-of-job", f"`{options.out}` is inside the job directory", help="name a folder outside of it"
        )
    engine = get_engine(None, {**_SPARK_CONF, **options.conf}, brief=True, uses_s3=needs_s3(folder, ()))
    with show_activities():
        found = inspection.read(lambda: engine.spark(log_file()))
    if options.where is not None:
        found = filter_state(found, options.where)
    if not options.internal:
        found = hide_internal(found)
    match options.format:
        case "table":
            limit = DEFAULT_LIMIT if options.limit is None else options.limit
            sys.stdout.writelines(f"{line}\n" for line in _format_state(found, limit, sizes=options.sizes))
        case "json":
            limit = DEFAULT_LIMIT if options.limit is None else options.limit
            sys.stdout.write(_json(found, limit, rows=not options.sizes) + "\n")
        case "parquet":
            assert options.out is not None, "the command line requires it"
            for file, rows in _write_files(found, options.out, options.limit or 0):
                sys.stdout.write(f"{file}: {_format_count(rows)}\n")


def filter_state(state: JobState, condition: str) -> JobState:
    """Return the state with only the rows that match a condition.

    Tables without the columns of the condition are left out. Raises UsageError `wrong-condition`
    if no table has them.
    """
    from everfold.inspection.filter import NoSuchColumn, filter_rows

    misfits: list[tuple[NoSuchColumn, StateTable]] = []
    operators, fits = [], 0
    for operator in state.operators:
        tables = []
        for table in operator.tables:
            try:
                rows = filter_rows(table.rows, table.schema, condition, state.zone) if len(table.schema) else table.rows
                tables.append(replace(table, rows=rows))
                fits += bool(len(table.schema))
            except NoSuchColumn as error:
                misfits.append((error, table))
        operators.append(replace(operator, tables=tuple(tables)))
    if misfits and not fits:
        why, table = misfits[0]
        raise UsageError.of(
            "wrong-condition",
            f"the condition `{condition}` cannot be evaluated: {why}",
            help="the columns are " + ", ".join(f"`{name}`" for name in table.schema.names),
        )
    return replace(state, operators=tuple(operators))


def hide_internal(state: JobState) -> JobState:
    """Return the state without internal columns."""
    operators = (
        replace(operator, tables=tuple(table.without_internal() for table in operator.tables))
        for operator in state.operators
    )
    return replace(state, operators=tuple(operators))


def _limit(rows: pa.Table, limit: int) -> pa.Table:
    return rows.slice(0, limit) if 0 < limit < rows.num_rows else rows


def _format_count(rows: int) -> str:
    return f"{rows} row{'s' if rows != 1 else ''}"


# --- for people -----------------------------------------------------------------------------------


def _format_state(state: JobState, limit: int, *, sizes: bool) -> Iterator[str]:
    yield f"after batch {state.batch} of version {state.version.number}"
    if not state.operators:
        yield "no operator of the query keeps state"
    for operator in state.operators:
        yield ""
        yield f"{operator.operator.name}  {operator.operator.label}"
        if sizes:
            yield from _format_sizes(operator)
            continue
        for table in operator.tables:
            yield table.name
            yield from _format_table(table, state.zone, limit)
        yield from (f"  {_format_since(each)}" for each in operator.since)


def _format_table(table: StateTable, zone: str, limit: int) -> Iterator[str]:
    names = table.schema.names
    columns = [to_values(column) for column in _limit(table.rows, limit).columns]
    cells = [table_format.format_cells(row, table.schema, zone) for row in zip(*columns, strict=True)]
    most = max([table_format.MAX_COLUMN_WIDTH, *map(cell_len, names)])
    *lines, footer = table_format.table(names, cells, most=most)
    yield from lines
    there = table.rows.num_rows
    yield footer if len(cells) == there else f"{len(cells)} of {_format_count(there)} in set: --limit 0 shows all"


def _format_since(each: AggregateStart) -> str:
    return f"{each.aggregate}: {describe_start(each.version, 0 if each.backfilled else each.version)}, {each.created}"


def _format_sizes(operator: OperatorState) -> Iterator[str]:
    sizes = operator.sizes
    pages = f"{sizes.pages} page{'s' if sizes.pages != 1 else ''}"
    yield f"{sizes.bytes} bytes in {pages}: the largest has {sizes.largest}, the median {sizes.median}"
    yield from _without_count(["bytes of", "bytes"], sizes.parts.items())
    tables = ((name, pages, size) for name, (pages, size) in sizes.tables.items())
    yield from _without_count(["table", "pages", "bytes"], tables)


def _without_count(names: Sequence[str], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    *lines, _ = table_format.table(names, [[*map(str, row)] for row in rows], most=None)
    yield from lines


# --- for programs ---------------------------------------------------------------------------------


def _json(state: JobState, limit: int, *, rows: bool) -> str:
    operators = [_operator_json(each, limit, rows=rows) for each in state.operators]
    version = state.version
    facts = {"version": version.number, "created": version.created, "batch": state.batch, "zone": state.zone}
    return _object(facts, operators=_array(operators))


def _operator_json(state: OperatorState, limit: int, *, rows: bool) -> str:
    sizes = state.sizes
    facts = {
        "name": state.operator.name,
        "operator": state.operator.label,
        "aggregates": [
            {
                "aggregate": each.aggregate,
                "since": each.version,
                "created": each.created,
                "backfilled": each.backfilled,
            }
            for each in state.since
        ],
        "sizes": {
            "pages": sizes.pages,
            "bytes": sizes.bytes,
            "largest": sizes.largest,
            "median": sizes.median,
            "parts": dict(sizes.parts),
            "tables": {name: {"pages": pages, "bytes": size} for name, (pages, size) in sizes.tables.items()},
        },
    }
    return _object(facts, tables=_array([_table_json(each, limit, rows=rows) for each in state.tables]))


def _table_json(table: StateTable, limit: int, *, rows: bool) -> str:
    from everfold.cli.output import JsonOutput

    columns = [{"name": of.name, "type": of.type.sql} for of in table.schema]
    facts = {"table": table.name, "columns": columns, "count": table.rows.num_rows}
    if not rows:
        return _object(facts)
    out = io.StringIO()
    written = _limit(table.rows, limit)
    if written.num_rows:
        JsonOutput(out, table.schema).write(
            written.rename_columns([physical_name(at) for at in range(len(table.schema))])
        )
    return _object(facts, rows=_array(out.getvalue().splitlines()))


def _object(facts: Mapping[str, object], **members: str) -> str:
    """Return a JSON object of `facts` and of `members`.

    members: JSON already; numbers in them keep their notation.
    """
    plain = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    return "{" + ", ".join([*plain, *(f"{json.dumps(name)}: {value}" for name, value in members.items())]) + "}"


def _array(parts: Sequence[str]) -> str:
    return "[\n" + ",\n".join(parts) + "\n]" if parts else "[]"


def _write_files(state: JobState, out: Path, limit: int) -> Iterator[tuple[Path, int]]:
    """Write a Parquet file for each table that has columns; yield each file and its row count."""
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    used: set[Path] = set()
    for operator in state.operators:
        for table in operator.tables:
            if not len(table.schema):
                continue
            names = _file_names(f"{operator.operator.name}-{re.sub(r'[^0-9A-Za-z]+', '-', table.name).strip('-')}")
            file = next(path for each in names if (path := out / each) not in used)
            used.add(file)
            rows = _limit(table.rows, limit)
            facts = {
                "operator": operator.operator.label,
                "table": table.name,
                "batch": state.batch,
                "since": {each.aggregate: each.version for each in operator.since},
            }
            pq.write_table(_cast_times(rows, table).replace_schema_metadata({"everfold": json.dumps(facts)}), file)
            yield file, rows.num_rows


def _file_names(stem: str) -> Iterator[str]:
    yield f"{stem}.parquet"
    yield from (f"{stem}-{number}.parquet" for number in count(2))


def _cast_times(rows: pa.Table, table: StateTable) -> pa.Table:
    """Return the rows with TIME columns as Arrow times of day."""
    import pyarrow as pa

    for at, of in enumerate(table.schema):
        if isinstance(of.type, TimeType):
            rows = rows.set_column(at, of.name, rows.column(at).cast(pa.time32("ms")))
    return rows
