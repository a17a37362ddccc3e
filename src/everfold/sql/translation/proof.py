"""Check whether two scripts have the same plan.

The nodes must be equal and over the same topics; names of tables and variables may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Plan, Root, Scan, Sink, Table
from everfold.plan.parts import map_inputs
from everfold.plan.rewrites import rewrite
from everfold.secrets import is_secret

_NAMES = ("connector", "topic")


def prove(one: Sequence[Root], other: Sequence[Root]) -> None:
    """Raise UnsupportedFeature `not-one-plan` unless the queries are pairwise equal."""
    if [_normalize(root) for root in one] != [_normalize(root) for root in other]:
        raise UnsupportedFeature.of(
            "not-one-plan",
            "the translation has a different plan, so it is not returned",
            help="everfold explain shows both plans",
        )


def _normalize(root: Root) -> Root:
    # A job reads the columns of all its queries; for the comparison each query keeps only its own.
    (root,) = rewrite((root,))
    if isinstance(root, Sink):
        table = _normalize_table(root.table)
        # How the table is read does not matter to a query that writes it.
        # That a key must not be NULL follows from the PRIMARY KEY.
        columns = tuple(replace(column, type=column.type.as_nullable()) for column in table.columns)
        root = replace(root, table=replace(table, columns=columns, changelog=ChangelogMode.INSERT_ONLY))
    return replace(root, input=_normalize_plan(root.input))


def _normalize_plan(node: Plan) -> Plan:
    if isinstance(node, Scan):
        return replace(node, table=_normalize_table(node.table))
    return map_inputs(node, _normalize_plan)


def _normalize_table(table: Table) -> Table:
    """Return a table identified by what it reads and writes, not by its name."""
    options = dict(table.options)
    others = tuple((key, value) for key, value in table.options if key not in _NAMES and not is_secret(key))
    return replace(table, name=options.get("topic", table.name), options=others)
