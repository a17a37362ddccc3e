"""Runs the cases of case files on engines and compares their results with what is expected.

A case runs in each of its modes. In a stream, its result must not depend on how its rows are split
into batches, nor on restarts, as long as no row is late. So it is run as written, then with one row
per batch, with all rows in one batch, and with a restart after every second row. These row-by-row
runs use larger batches after the first `SINGLE_ROWS` rows. A case that sets one row per batch may
depend on that: it is only run once more, with a restart after each row.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everfold.errors import EverfoldError, UnsupportedFeature, UsageError
from everfold.plan.nodes import Collect, Plan, Table
from everfold.plan.walk import batch_inputs, tables_of, walk_plan, walk_streamed
from everfold.testing.casefile import Block, Case, CaseFile, ExpectedError, FedTable, Mode, Step
from everfold.testing.compare import Expectation, describe_difference
from everfold.testing.engines import Engine
from everfold.testing.part import Part, Rows
from everfold.testing.pipetable import PipeTable, PipeTableError
from everfold.testing.tables import Answer, from_arrow, to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from everfold.sql.planner import Session
    from everfold.sql.settings import Settings
    from everfold.sql.statements import CreateTable, CreateView

_RUNTIME_MODE = {"stream": "streaming", "batch": "batch"}
_ROWS_BEFORE_RESTART = 2
SINGLE_ROWS = 200
"""Number of rows of a step that the row-by-row runs feed one by one unless the case asks for them.

The batches after them have 2, 4, 8, … rows.
"""
_CAPPED = "capped"
"""How batches are split in such a run, where a case would have `row`."""
_TRACE_ENTRIES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case on an engine in a mode; `message` is empty if the case passed.

    capped: whether the row-by-row runs used larger batches after the first `SINGLE_ROWS` rows.
    """

    case: Case
    engine: str
    mode: Mode
    message: str
    seconds: float
    capped: bool = False

    @property
    def passed(self) -> bool:
        """Whether the result is as expected."""
        return not self.message


@dataclass(frozen=True, slots=True)
class InvalidFile:
    """A case file that cannot be read; `line` is that of the error, if it has one."""

    path: Path
    line: int | None
    message: str

    @classmethod
    def of(cls, path: Path, error: UsageError) -> InvalidFile:
        """Describe the error that reading a case file raised."""
        span = error.diagnostics[0].span
        return cls(path, None if span is None else span.line, str(error))


@dataclass(frozen=True, slots=True)
class _BoundStep:
    """A step with its bound SQL."""

    step: Step
    root: Collect
    settings: Settings
    tables: Mapping[str, pa.Table]
    lookup_tables: Mapping[str, pa.Table]


def run_file(file: CaseFile, engines: Iterable[Engine]) -> Iterator[Outcome]:
    """Run all cases of a file."""
    for engine in engines:
        for case in file.cases:
            for mode in case.modes:
                yield run(case, engine, mode)


def run(case: Case, engine: Engine, mode: Mode) -> Outcome:
    """Run a case on an engine in a mode."""
    started = time.perf_counter()
    capped = False
    try:
        fault, capped = _fault(case, engine, mode)
        message = fault or ""
    except Exception as error:
        # A bug of ours fails only this case; the others still run.
        message = "internal error\n" + "".join(traceback.format_exception(error)[-_TRACE_ENTRIES:]).rstrip()
    return Outcome(case, engine.name, mode, message, time.perf_counter() - started, capped)


def _fault(case: Case, engine: Engine, mode: Mode) -> tuple[str | None, bool]:
    """Return what is wrong with the results of a case, None if nothing is, and `Outcome.capped`."""
    gap = next((step.not_yet[mode] for step in case.steps if mode in step.not_yet), None)
    expected = next((step.error for step in case.steps if step.error is not None), None)
    if gap is not None:
        expected = ExpectedError(code=gap)
    capped = False
    try:
        bound = [_bind(case, step, mode) for step in case.steps]
        if mode == "batch":
            fault = _check_results(case, bound, [engine.batch(_part(bound[0], [bound[0].tables]))])
        else:
            fault, capped = _stream_fault(case, engine, bound)
    except EverfoldError as error:
        return _error_fault(expected, error), capped
    if gap is not None and fault is None:
        fault = f"the error `{gap}` no longer occurs: remove `not_yet` from the case"
    elif expected is not None:
        succeeded = f"expected an error ({_describe(expected)}), but the query succeeded"
        fault = f"{succeeded}\n{fault}" if fault else succeeded
    return fault, capped


def _error_fault(expected: ExpectedError | None, error: EverfoldError) -> str | None:
    """Return what is wrong with an error, None if it is the expected one."""
    if expected is None:
        return str(error)
    shown = str(error).lower()
    if expected.code in (None, error.code) and all(word.lower() in shown for word in expected.words):
        return None
    return f"expected the error ({_describe(expected)}), but got\n{error}"


def _describe(expected: ExpectedError) -> str:
    return ", ".join([*([f"`{expected.code}`"] if expected.code else []), *(f"“{word}”" for word in expected.words)])


# --- streams --------------------------------------------------------------------------------------


def _stream_fault(case: Case, engine: Engine, bound: Sequence[_BoundStep]) -> tuple[str | None, bool]:
    """Run the case as written, then with batches and restarts that must not change the result.

    Return the fault and `Outcome.capped`.
    """
    late_rows, fault = _run_stream(case, engine, bound, [each.step.batches for each in bound])
    if fault or engine.name != "memory" or any(step.error or "stream" in step.not_yet for step in case.steps):
        return fault, False
    if any(each.step.changelog and each.step.batches != "row" for each in bound):
        return None, False  # every change of a result depends on the batches
    if all(each.step.batches == "row" for each in bound):
        every_row = ["row"] * len(bound)
        _, fault = _run_stream(case, engine, bound, every_row, restart_after=1)
        return _describe_variant("a restart after each row", fault), False
    single_rows = ["row" if each.step.batches == "row" else _CAPPED for each in bound]
    capped = any(
        sizes == _CAPPED and sum(table.num_rows for table in each.tables.values()) > SINGLE_ROWS
        for each, sizes in zip(bound, single_rows, strict=True)
    )
    if capped and late_rows:
        return None, False  # larger batches may have other late rows than the case as written
    until = f" (the first {SINGLE_ROWS} rows of a step, then batches of 2, 4, 8, … rows)" if capped else ""
    late_rows, fault = _run_stream(case, engine, bound, single_rows)
    if late_rows:
        return None, capped
    fault = (
        _describe_variant(f"one row per batch{until}", fault)
        or _describe_variant("all rows in one batch", _run_stream(case, engine, bound, ["one"] * len(bound))[1])
        or _describe_variant(
            f"a restart after every {_ROWS_BEFORE_RESTART} rows{until}",
            _run_stream(case, engine, bound, single_rows, restart_after=_ROWS_BEFORE_RESTART)[1],
        )
    )
    return fault, capped


def _describe_variant(variant: str, fault: str | None) -> str | None:
    return f"with {variant}:\n{fault}" if fault else None


def _run_stream(
    case: Case,
    engine: Engine,
    bound: Sequence[_BoundStep],
    batches: Sequence[str | tuple[int, ...]],
    restart_after: int | None = None,
) -> tuple[int, str | None]:
    """Run the steps as a stream with these batches; return the number of late rows and the fault.

    restart_after: the number of batches after which the job is restarted.
    """
    parts: list[Part] = []
    owners: list[int] = []
    for at, (step, sizes) in enumerate(zip(bound, batches, strict=True)):
        split = list(_split(step.tables, sizes))
        size = restart_after or len(split)
        for first in range(0, len(split), size):
            parts.append(_part(step, split[first : first + size]))
            owners.append(at)
    ran = engine.stream(parts)
    by_step: list[list[pa.Table]] = [[] for _ in bound]
    for owner, table in zip(owners, ran.tables, strict=True):
        by_step[owner].append(table)
    return ran.late_rows, _check_results(case, bound, [_concat(tables) for tables in by_step])


def _part(bound: _BoundStep, batches: Sequence[Rows]) -> Part:
    return Part(
        root=bound.root,
        settings=bound.settings,
        batches=tuple(batches),
        lookup_tables=bound.lookup_tables,
        on_change=bound.step.on_change,
    )


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(tables)


def _split(tables: Mapping[str, pa.Table], sizes: str | tuple[int, ...]) -> Iterator[Rows]:
    """Yield batches, each with the next rows of every table.

    One row per batch alternates between the tables. There is always at least one batch.
    """
    if sizes == "one":
        yield tables
    elif isinstance(sizes, str):
        yield from _split_rows(tables, SINGLE_ROWS if sizes == _CAPPED else None) or [tables]
    else:
        start = 0
        for size in sizes:
            yield {name: _rows(table, start, size) for name, table in tables.items()}
            start += size
        if any(table.num_rows > start for table in tables.values()):
            yield {name: _rows(table, start, table.num_rows) for name, table in tables.items()}


def _split_rows(tables: Mapping[str, pa.Table], single_rows: int | None) -> list[Rows]:
    """Return batches of one row, after the first `single_rows` rows batches of 2, 4, 8, … rows."""
    longest = max((table.num_rows for table in tables.values()), default=0)
    order = [name for at in range(longest) for name in tables if at < tables[name].num_rows]
    batches: list[Rows] = []
    starts = dict.fromkeys(tables, 0)
    first = 0
    size = 1
    while first < len(order):
        if single_rows is not None and first >= single_rows:
            size *= 2
        counts = Counter(order[first : first + size])
        batches.append({name: _rows(table, starts[name], counts[name]) for name, table in tables.items()})
        for name, count in counts.items():
            starts[name] += count
        first += size
    return batches


def _rows(table: pa.Table, start: int, size: int) -> pa.Table:
    """Copy some rows of a table: DuckDB rejects a slice that has a ROW column."""
    import pyarrow as pa

    return table.take(pa.array(range(start, min(start + size, table.num_rows)), pa.int64()))


def _check_results(case: Case, bound: Sequence[_BoundStep], tables: Sequence[pa.Table]) -> str | None:
    """Return what is wrong with the rows that each step emitted, None if nothing is."""
    for at, (each, table) in enumerate(zip(bound, tables, strict=True)):
        if each.step.expect is None:
            continue
        expected = Expectation(
            table=each.step.expect,
            types=each.step.types,
            changelog=each.step.changelog,
            tolerance=case.tolerance,
            zone=each.settings.local_time_zone,
        )
        fault = describe_difference(expected, from_arrow(table, each.root.schema))
        if fault:
            return f"step {at + 1}:\n{fault}" if len(bound) > 1 else fault
    return None


def collect_results(case: Case, engine: Engine) -> list[Answer]:
    """Return the result of each step, in the first mode of the case and with its batches.

    Raises EverfoldError.
    """
    bound = [_bind(case, step, case.modes[0]) for step in case.steps]
    if case.modes[0] == "batch":
        tables = [engine.batch(_part(bound[0], [bound[0].tables]))]
    else:
        parts = [_part(each, list(_split(each.tables, each.step.batches))) for each in bound]
        tables = list(engine.stream(parts).tables)
    return [from_arrow(table, each.root.schema) for table, each in zip(tables, bound, strict=True)]


# --- binding --------------------------------------------------------------------------------------


def bind_query(case: Case, mode: Mode) -> Collect:
    """Return the plan of a case's first step in a mode."""
    return _bind(case, case.steps[0], mode).root


def uses_worker_scan(case: Case) -> bool:
    """Return whether workers decode rows of the case in a stream on Spark.

    Only then does its result depend on the option `everfold.scan`.
    """
    from everfold.plan.walk import operators_of
    from everfold.spark.worker_scan import plan_worker_scans

    try:
        roots = [_bind(case, step, "stream").root for step in case.steps]
    except EverfoldError:
        return False
    return any(not isinstance(plan_worker_scans(node), str) for node in operators_of(roots))


def _bind(case: Case, step: Step, mode: Mode) -> _BoundStep:
    """Run the DDL of the case's layers and bind its query."""
    from everfold.connectors.registry import apply_connector
    from everfold.sql.planner import Session
    from everfold.sql.script import keep_variables
    from everfold.sql.statements import CreateTopic
    from everfold.testing.scripts import ScriptRun, choose_result, mark_changing

    fixed = step.options | {"execution.runtime-mode": _RUNTIME_MODE[mode]}
    variables, environment = keep_variables(step.sql.text) if step.script is not None else ({}, {})
    session = Session(
        options={"table.local-time-zone": "UTC"} | fixed,
        variables=variables,
        environment=environment,
        connected=apply_connector,
        folder=case.file.path.parent,
        import_functions=True,
    )
    created: dict[str, CreateTable | CreateView] = {}
    for block in step.tables:
        _redefine(session, block, case.file, created)
        for _ in session.run(block.padded_text, source=str(case.file.path)):
            pass
    # A topic in Lenses SQL has options but no connector; its rows are those of the case.
    declared = {name for name, statement in created.items() if isinstance(statement, CreateTopic)}
    if step.script is None:
        _check_rows(case, step, created)
        mark_changing(case, session)
        root = choose_result(case, step, session.run(step.sql.padded_text, source=str(case.file.path)))
    else:
        mark_changing(case, session)
        script = ScriptRun(case, step, session, fixed, created)
        root = choose_result(case, step, script.run())
        declared |= script.stand_ins
        _check_rows(case, step, created)

    def read(nodes: Iterable[Plan]) -> dict[str, pa.Table]:
        return {
            table.name: _read(case.file, table)
            if table.options and f"`{table.name}`" not in declared
            else _arrow(case.file, step, table, session)
            for table in tables_of(nodes)
        }

    if mode == "batch":
        return _BoundStep(step, root, session.settings, read(walk_plan(root.input)), {})
    lookup_plans = (node for each in batch_inputs(root.input) for node in walk_plan(each))
    return _BoundStep(step, root, session.settings, read(walk_streamed(root.input)), read(lookup_plans))


def _redefine(session: Session, block: Block, file: CaseFile, created: dict[str, CreateTable | CreateView]) -> None:
    """Drop what the block defines again.

    A table of a case replaces the suite's table of the same name.
    """
    from everfold.sql.script import parse_script
    from everfold.sql.statements import CreateTable, CreateView

    for statement in parse_script(block.padded_text, source=str(file.path), dialect=session.settings.dialect):
        if isinstance(statement, CreateTable | CreateView):
            name = ".".join(f"`{part}`" for part in statement.name)
            if (before := created.get(name)) is not None:
                view, temporary = isinstance(before, CreateView), before.temporary
                session.catalog.drop(before.name, view=view, temporary=temporary, if_exists=True)
            created[name] = statement


def _check_rows(case: Case, step: Step, created: Mapping[str, object]) -> None:
    """Check that every table with rows exists."""
    unknown = next((name for name in step.rows if f"`{name}`" not in created), None)
    if unknown is not None:
        raise case.file.error(
            step.rows[unknown].line, f"`rows` has a table `{unknown}`, but no CREATE TABLE defines it"
        )


def _read(file: CaseFile, table: Table) -> pa.Table:
    """Read the rows of a table with a connector.

    Relative paths start at the folder of the case file.
    """
    import pyarrow as pa

    from everfold.connectors.contract import Role
    from everfold.connectors.validate import check_table

    source = check_table(table, Role.SOURCE).source()
    if not source.is_bounded():
        raise UnsupportedFeature.of("unbounded-case", f"table `{table.name}` is unbounded, so a case cannot read it")
    return pa.concat_tables(list(source.read_local(file.path.parent)) or [table.schema.arrow.empty_table()])


def _arrow(file: CaseFile, step: Step, table: Table, session: Session) -> pa.Table:
    """Return the rows that the case gives a table, with the columns that the query reads."""
    fed = step.rows.get(table.name, FedTable(PipeTable((), ()), step.line))
    from everfold.sql.catalog import CatalogTable

    declared = session.catalog.find((table.name,))
    known = [column.name for column in declared.table.columns] if isinstance(declared, CatalogTable) else None
    try:
        return to_arrow(fed.table, table.columns, name=table.name, known=known, zone=session.settings.local_time_zone)
    except PipeTableError as error:
        raise file.error(fed.line + error.line, str(error)) from error
