"""Check the tables of queries before a job starts; sources and sinks are made from the result."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from everfold.connectors.contract import ClusterSink, Connector, LocalSink, OptionValues, Role, SinkContext, Source
from everfold.connectors.registry import connector_of
from everfold.connectors.sink_changelog import check_changes
from everfold.errors import EverfoldError
from everfold.plan.emitted_changes import check_batch_input
from everfold.plan.nodes import Plan, Root, Sink, Table
from everfold.plan.walk import batch_inputs, scans_of, tables_of, tables_read, walk_plan


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """A table whose declaration and options were checked, for reading or for writing."""

    table: Table
    connector: Connector
    options: OptionValues

    def source(self) -> Source:
        """Return a source that reads the table. Raises UnsupportedFeature `not-a-source`."""
        return self.connector.source(self.table, self.options)

    def locations(self, base_folder: Path) -> frozenset[str]:
        """Return where its rows are by its options, see `Connector.locations`."""
        return self.connector.locations(self.table, self.options, base_folder)

    def sink(self, context: SinkContext) -> LocalSink | ClusterSink:
        """Return a sink that writes to the table. Raises UnsupportedFeature `not-a-sink`."""
        return self.connector.sink(context, self.options)


@dataclass(frozen=True, slots=True)
class CheckedTables:
    """The tables that queries read and write, without those whose rows the caller provides."""

    sources: Mapping[Table, CheckedTable]
    sinks: Mapping[Table, CheckedTable]

    def rename_sources(self, roots: Sequence[Root]) -> CheckedTables:
        """Return the tables with the names by which a job knows them. roots: its plans."""
        checked = ((table, self.sources[table]) for table in tables_read(roots) if table in self.sources)
        return CheckedTables({table: replace(source, table=table) for table, source in checked}, self.sinks)


def check_table(table: Table, role: Role) -> CheckedTable:
    """Check a table. Touches no external system. Raises SqlError."""
    connector = connector_of(table)
    return CheckedTable(table, connector, connector.check(table, role))


def check_tables(
    roots: Sequence[Root],
    *,
    streaming: bool,
    given: Container[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> CheckedTables:
    """Check every table and how it is used, and in a stream also that the sinks accept the changes.

    Starts nothing and touches no external system. given: names of tables whose rows the caller
    provides. note: called with each note on options without effect, once per sentence. Raises
    SqlError with all errors found.
    """
    checked: dict[Role, dict[Table, CheckedTable]] = {Role.SOURCE: {}, Role.SINK: {}}
    used = [(table, Role.SOURCE) for table in tables_read(roots) if table.name not in given]
    used += [(root.table, Role.SINK) for root in roots if isinstance(root, Sink)]
    streamed = {scan.table for scan in scans_of(roots)} if streaming else set[Table]()
    batches = [plan for root in roots for plan in _find_batches(root, streaming=streaming)]
    read_at_once = {table for plan in batches for table in tables_of(walk_plan(plan))}
    sources: dict[Table, Source] = {}
    notes: dict[str, None] = {}
    wrong: list[EverfoldError] = []
    for table, role in dict.fromkeys(used):
        try:
            found = checked[role][table] = check_table(table, role)
            notes |= dict.fromkeys(found.options.notes)
            if role is Role.SINK:
                found.connector.require_sink(table)
                continue
            source = sources[table] = found.source()
            for as_stream, tables in ((True, streamed), (False, read_at_once)):
                if table in tables:
                    source.check_use(as_stream=as_stream)
        except EverfoldError as error:
            wrong.append(error)
    for plan in batches:
        try:
            check_batch_input(plan, streaming=streaming)
        except EverfoldError as error:
            wrong.append(error)
    read_per_batch = {table for table, source in sources.items() if source.is_read_per_batch()}
    for root in roots if streaming else ():
        try:
            check_changes(root, read_per_batch)
        except EverfoldError as error:
            wrong.append(error)
    for sentence in notes:
        note(sentence)
    if wrong:
        raise type(wrong[0])(*dict.fromkeys(finding for error in wrong for finding in error.diagnostics))
    return CheckedTables(checked[Role.SOURCE], checked[Role.SINK])


def _find_batches(root: Root, *, streaming: bool) -> Iterable[Plan]:
    """Return what a query reads as a batch: everything in batch mode, and one side of joins."""
    return batch_inputs(root.input) if streaming else (root.input,)
