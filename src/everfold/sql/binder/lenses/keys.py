"""The key of an aggregation's result: what GROUP BY says.

One field is the key itself, and its label is dropped; with an alias it is a structure of one field, and several fields are a structure of these. Keys of
windows have the window beside it. Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold.plan.expressions import Expr
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.rows import row_of
from everfold.sql.binder.lenses.sources import Source
from everfold.sql.dialects.lenses import PRIMITIVES
from everfold.sql.dialects.lenses_nodes import GroupKey, TopicQuery
from everfold.sql.dialects.nodes import ColumnPath, FieldAccess
from everfold.types import DataType

WINDOW_VALUE, WINDOW = "value", "window"
"""The fields of a key with a window."""
WINDOW_BOUNDS = ("window_start", "window_end")
"""The columns of a window in a table that has no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKey:
    """values: over the source. labels: what the fields are called, None for one that has no name. alone: whether the only value is the key itself."""

    values: tuple[Expr, ...]
    labels: tuple[str | None, ...]
    alone: bool

    def over(self, values: Sequence[Expr], window: Sequence[Expr]) -> Expr:
        """The key over the groups, with the start and the end of their window, if they have one."""
        key = values[0] if self.alone else row_of(values, [label for label in self.labels if label is not None])
        if not window:
            return key
        return row_of((key, row_of(window[:2], ("start", "end"))), (WINDOW_VALUE, WINDOW))


def primitive_format(of: DataType) -> str | None:
    """The storage format of values of a type alone; None if there is none."""
    return next((name.lower() for name, each in PRIMITIVES.items() if each.same_as(of.as_nullable())), None)


def bind_key(node: TopicQuery, source: Source, context: Context, problems: Problems) -> ResultKey:
    """What GROUP BY says. SqlError `unnamed-key`, `duplicate-column`; whatever is wrong goes to `problems`."""
    binder = FacetBinder(source, context, "GROUP BY")
    values: list[Expr] = []
    labels: list[str | None] = []
    alone = len(node.group) == 1 and node.group[0].args.get("alias") is None
    for each in node.group:
        with problems:
            value = binder.bind(each.this)
            label = _label(each)
            if not alone:
                _check_label(label, labels, each, context)
            labels.append(label)
            values.append(value)
    return ResultKey(values=tuple(values), labels=tuple(labels), alone=alone)


def _label(node: GroupKey) -> str | None:
    """What AS says, else the name of a field; None for another expression."""
    alias, value = node.args.get("alias"), node.this
    if alias is not None:
        return str(alias.name)
    match value:
        case ColumnPath(names=names):
            return names[-1]
        case FieldAccess(field=field):
            return field
        case _:
            return None


def _check_label(name: str | None, taken: Sequence[str | None], node: GroupKey, context: Context) -> None:
    if name is None:
        raise context.error(
            "unnamed-key",
            f"the field of the key that `{context.sql(node.this)}` makes has no name",
            node,
            "give it one with AS",
        )
    if name in taken:
        raise context.error("duplicate-column", f"two fields of the key are named `{name}`", node, "rename one with AS")
