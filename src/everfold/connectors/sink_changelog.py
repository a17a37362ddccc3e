"""Check that a sink accepts the changelog of a query."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from everfold.connectors.registry import connector_of
from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import KIND, ORDER, RETRACTIONS, ChangelogMode
from everfold.plan.emitted_changes import changelog_of, is_updating
from everfold.plan.keys import unique_keys
from everfold.plan.nodes import Join, Root, Sink, Table
from everfold.plan.sink_keys import check_sink_key
from everfold.plan.walk import tables_of, walk_plan, walk_streamed

if TYPE_CHECKING:
    import pyarrow as pa


def check_sink_accepts(table: Table, mode: ChangelogMode, keys: Sequence[frozenset[int]]) -> None:
    """Check that a table accepts changes of `mode`.

    keys: the unique keys of the result, each a set of positions of the sink's columns (the empty
    set: the result has at most one row).

    Raises UnsupportedFeature `updates-into-appends` if the table accepts only inserts, and
    `sink-key` if its PRIMARY KEY maps several rows of the result to one: the sink would have to
    remember them all to know which to keep when one is deleted. Inserts alone are written under any
    key, and the last one wins, as in Flink.
    """
    if mode is ChangelogMode.INSERT_ONLY:
        return
    connector = connector_of(table)
    takes = connector.accepted_changelog(table)
    if takes is ChangelogMode.INSERT_ONLY:
        raise UnsupportedFeature.of(
            "updates-into-appends",
            f"the query updates its result, but table `{table.name}` (connector `{connector.name}`)"
            " accepts only inserts",
            help=connector.updates_help,
        )
    if takes is ChangelogMode.UPSERT:
        check_sink_key(table, mode, keys)


def check_changes(root: Root, read_per_batch: Container[Table]) -> None:
    """Check that a stream can process the changes of a query, and that its sink accepts them.

    read_per_batch: the tables that joins read again in every batch.

    Raises UnsupportedFeature `changes-beside-changes` for a join of updating rows with a table that
    is read again in every batch: the joined rows to retract would be unknown. For other errors, see
    `check_sink_accepts`.
    """
    for node in walk_streamed(root.input):
        if not isinstance(node, Join) or not is_updating(node.left):
            continue
        for table in tables_of(walk_plan(node.right)):
            if table in read_per_batch:
                raise UnsupportedFeature.of(
                    "changes-beside-changes",
                    f"updating rows are joined with `{table.name}`, which is read again in every batch:"
                    " the rows that they were joined with before are not remembered",
                    node.span,
                    "set 'lookup.cache' = 'FULL' to read the table once, when the job starts,"
                    " or join before you aggregate",
                )
    if isinstance(root, Sink):
        _check_sink(root)


def _check_sink(sink: Sink) -> None:
    keys = tuple(map(frozenset, unique_keys(sink.input)))
    try:
        check_sink_accepts(sink.table, changelog_of(sink.input), keys)
    except UnsupportedFeature as error:
        raise error.at(sink.span) from None


def last_by_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in the order of those rows."""
    import polars as pl

    frame = pl.from_arrow(rows.select(list(keys)))
    assert isinstance(frame, pl.DataFrame)
    last = frame.with_row_index("__at").group_by(keys).agg(pl.col("__at").last()).sort("__at")
    return rows if last.height == rows.num_rows else rows.take(last["__at"].to_arrow())


def sort_changes(rows: pa.Table, *, ties: bool = True) -> pa.Table:
    """Sort the rows of operators by `__order`.

    A retracted row comes before the row that replaces it.

    ties: sort equal rows by their values, for reading.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not rows.num_rows:
        return rows
    back = pa.array(RETRACTIONS, pa.int8())
    others = [of.name for of in rows.schema if of.name not in (ORDER, KIND) and not pa.types.is_nested(of.type)]
    rows = rows.append_column("__new", pc.invert(pc.is_in(rows[KIND], back)))
    return rows.sort_by([(name, "ascending") for name in (ORDER, "__new", *others * ties)]).drop_columns("__new")
