"""Whether two scripts are one plan: the same nodes over the same topics, whatever tables and variables are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from everfold.errors import UnsupportedFeature
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Plan, Root, Scan, Sink, Table, children, with_children
from everfold.plan.rewrites import rewrite
from everfold.secrets import is_secret

_NAMES = ("connector", "topic")


def prove(one: Sequence[Root], other: Sequence[Root]) -> None:
    """UnsupportedFeature `not-one-plan` unless queries are the same, one by one."""
    if [_bare(root) for root in one] != [_bare(root) for root in other]:
        raise UnsupportedFeature.of(
            "not-one-plan",
            "the translation is not the same plan, so it is not given",
            help="everfold explain shows both plans",
        )


def _bare(root: Root) -> Root:
    # A job reads the columns that any of its queries uses; each query is compared by those of its own.
    (root,) = rewrite((root,))
    if isinstance(root, Sink):
        table = _topic(root.table)
        # What its rows are when it is read is nothing to a query that writes it; that a key must not be NULL is the PRIMARY KEY's to say.
        columns = tuple(replace(column, type=column.type.as_nullable()) for column in table.columns)
        root = replace(root, table=replace(table, columns=columns, changelog=ChangelogMode.INSERT_ONLY))
    return replace(root, input=_over_topics(root.input))


def _over_topics(node: Plan) -> Plan:
    if isinstance(node, Scan):
        return replace(node, table=_topic(node.table))
    return with_children(node, tuple(map(_over_topics, children(node))))


def _topic(table: Table) -> Table:
    """A table by what it reads and writes, and not by its name."""
    options = dict(table.options)
    others = tuple((key, value) for key, value in table.options if key not in _NAMES and not is_secret(key))
    return replace(table, name=options.get("topic", table.name), options=others)
