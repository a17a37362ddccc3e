"""Whether a table can take the result of a query, when that result changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from everfold.connectors.contract import Role, columns_of
from everfold.connectors.registry import connector_of
from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode, changelog_of, is_updating
from everfold.plan.keys import unique_keys
from everfold.plan.nodes import Join, Root, Sink, Table, streamed, tables_of, walk_plan

if TYPE_CHECKING:
    import pyarrow as pa


def check_sink_takes(table: Table, mode: ChangelogMode, keys: Sequence[frozenset[int]]) -> None:
    """Whether changes of `mode` can be written to the table. `keys`: each a set of the sink's columns, by position, that no two rows of
    the result share (the empty set: there is one row at most).

    Raises UnsupportedFeature `updates-into-appends` where the table only grows, and `sink-key` where its PRIMARY KEY would lump rows
    of the result together: which of them to show when one goes would have to be remembered. New rows only are written under any key,
    the last one wins, as in Flink.
    """
    if mode is ChangelogMode.INSERT_ONLY:
        return
    connector = connector_of(table)
    takes = connector.takes(table)
    if takes is ChangelogMode.INSERT_ONLY:
        raise UnsupportedFeature.of(
            "updates-into-appends",
            f"the result of the query changes, and table `{table.name}` (connector `{connector.name}`) takes new rows only",
            help=connector.for_changes,
        )
    if takes is ChangelogMode.UPSERT:
        _check_key(table, mode, keys)


def check_changes(root: Root) -> None:
    """Whether the changes of a query can be followed in a stream, and its sink takes those of the result.

    Raises UnsupportedFeature `changes-beside-changes` for a join of rows that change with a table that is read in every batch anew: what is
    taken back could not be told any more. And see `check_sink_takes`.
    """
    for node in streamed(root.input):
        if not isinstance(node, Join) or not is_updating(node.left):
            continue
        for table in tables_of(walk_plan(node.right)):
            if table.connector is not None and connector_of(table).source(table).read_anew():
                raise UnsupportedFeature.of(
                    "changes-beside-changes",
                    f"rows that change are joined with `{table.name}`, which is read in every batch anew: what they were joined with before is not remembered",
                    node.span,
                    "set 'lookup.cache' = 'FULL' to read the table once, when the job starts, or join before you aggregate",
                )
    if isinstance(root, Sink):
        _check_sink(root)


def _check_sink(sink: Sink) -> None:
    keys = tuple(map(frozenset, unique_keys(sink.input)))
    try:
        check_sink_takes(sink.table, changelog_of(sink.input), keys)
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            *(replace(found, span=found.span or sink.span) for found in error.diagnostics)
        ) from None


def _check_key(table: Table, mode: ChangelogMode, keys: Sequence[frozenset[int]]) -> None:
    names = [column.name for column in columns_of(table, Role.SINK)]
    primary = frozenset(map(names.index, table.primary_key))
    # Where rows come with what they were before, one that gets another PRIMARY KEY leaves its old place by that. An upsert has only
    # the new row: it has to stay where it is.
    if any(key <= primary if mode is ChangelogMode.ALL else key == primary for key in keys):
        return
    if keys:
        rows = "one row for each " + " and for each ".join(_named(key, names) for key in keys)
        fix = f"declare PRIMARY KEY {_named(keys[0], names)} NOT ENFORCED" if keys[0] else None
    else:
        rows, fix = (
            "no key of its own among these columns",
            "select the columns of GROUP BY too, and make them the PRIMARY KEY",
        )
    raise UnsupportedFeature.of(
        "sink-key",
        f"table `{table.name}` is written by its PRIMARY KEY {_named(primary, names)}, and the result of the query changes and has {rows}",
        help=fix,
    )


def _named(columns: frozenset[int], names: Sequence[str]) -> str:
    return "(" + ", ".join(f"`{names[at]}`" for at in sorted(columns)) + ")"


def last_by_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order in which those came."""
    import polars as pl

    frame = pl.from_arrow(rows.select(list(keys)))
    assert isinstance(frame, pl.DataFrame)
    last = frame.with_row_index("__at").group_by(keys).agg(pl.col("__at").last()).sort("__at")
    return rows if last.height == rows.num_rows else rows.take(last["__at"].to_arrow())
