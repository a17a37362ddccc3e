"""Check that the PRIMARY KEY of a table keeps the rows of a changing result apart."""

from __future__ import annotations

from collections.abc import Sequence

from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.emitted_changes import changelog_of
from everfold.plan.keys import unique_keys
from everfold.plan.nodes import Sink, Table


def check_result_key(sink: Sink) -> None:
    """Check the PRIMARY KEY of a table that receives a changing result, as `check_sink_key`."""
    mode = changelog_of(sink.input)
    if sink.table.primary_key and mode is not ChangelogMode.INSERT_ONLY:
        try:
            check_sink_key(sink.table, mode, tuple(map(frozenset, unique_keys(sink.input))))
        except UnsupportedFeature as error:
            raise error.at(sink.span) from None


def check_sink_key(table: Table, mode: ChangelogMode, keys: Sequence[frozenset[int]]) -> None:
    """Raise UnsupportedFeature `sink-key` if several rows of a result have the same PRIMARY KEY.

    keys: the unique keys of the result, as in `connectors.sink_changelog`.
    """
    names = [column.name for column in table.columns if not column.virtual]
    primary = frozenset(map(names.index, table.primary_key))
    # A change with its old row can delete the old PRIMARY KEY when the key changes. An upsert
    # carries only the new row, so its key must not change.
    if any(key <= primary if mode is ChangelogMode.ALL else key == primary for key in keys):
        return
    if keys:
        rows = "one row for each " + " and for each ".join(_quote(key, names) for key in keys)
        fix = f"declare PRIMARY KEY {_quote(keys[0], names)} NOT ENFORCED" if keys[0] else None
    else:
        rows, fix = (
            "no unique key among these columns",
            "select the columns of GROUP BY too, and make them the PRIMARY KEY",
        )
    raise UnsupportedFeature.of(
        "sink-key",
        f"table `{table.name}` is written by its PRIMARY KEY {_quote(primary, names)},"
        f" but the query updates its result, which has {rows}",
        help=fix,
    )


def _quote(columns: frozenset[int], names: Sequence[str]) -> str:
    return "(" + ", ".join(f"`{names[at]}`" for at in sorted(columns)) + ")"
