"""Validate the tables of queries before a job starts."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from everfold.connectors.contract import Role
from everfold.connectors.registry import connector_of
from everfold.connectors.sink_changelog import check_changes
from everfold.errors import EverfoldError
from everfold.plan.nodes import Root, Sink
from everfold.plan.walk import tables_read


def check_tables(
    roots: Sequence[Root],
    *,
    streaming: bool,
    given: Container[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Check every table, and in a stream also that the sinks accept the changes.

    Starts nothing and touches no external system. given: names of tables whose rows the caller
    provides. note: called with each note on options without effect, once per sentence. Raises
    SqlError with all errors found.
    """
    used = [(table, Role.SOURCE) for table in tables_read(roots) if table.name not in given]
    used += [(root.table, Role.SINK) for root in roots if isinstance(root, Sink)]
    notes: dict[str, None] = {}
    wrong: list[EverfoldError] = []
    for table, role in dict.fromkeys(used):
        try:
            connector = connector_of(table)
            notes |= dict.fromkeys(connector.check(table, role).notes)
            if role is Role.SOURCE:
                connector.source(table)
        except EverfoldError as error:
            wrong.append(error)
    for root in roots if streaming else ():
        try:
            check_changes(root)
        except EverfoldError as error:
            wrong.append(error)
    for sentence in notes:
        note(sentence)
    if wrong:
        raise type(wrong[0])(*dict.fromkeys(found for error in wrong for found in error.diagnostics))
