"""The key of an aggregation's result, from GROUP BY.

A single field is the key itself, and its name is dropped. With an alias it becomes a structure of
one field; several fields become a structure. The key of a windowed aggregation also contains the
window. Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everfold.plan.expressions import Expr
from everfold.sql import syntax
from everfold.sql.binder.context import Context, Problems
from everfold.sql.binder.lenses.facets import FacetBinder
from everfold.sql.binder.lenses.functions import build_row
from everfold.sql.binder.lenses.sources import Source

WINDOW_VALUE, WINDOW = "value", "window"
"""The fields of a key with a window."""
WINDOW_BOUNDS = ("window_start", "window_end")
"""The window columns in a table without a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKey:
    """The key of a result.

    `values` are expressions over the source, `labels` the names of the fields, None for one without
    a name. `is_single`: the only value is the key itself.
    """

    values: tuple[Expr, ...]
    labels: tuple[str | None, ...]
    is_single: bool

    def build_over_groups(self, values: Sequence[Expr], window: Sequence[Expr]) -> Expr:
        """Return the key over the groups, including start and end of the window if there is one."""
        key = values[0] if self.is_single else build_row(values, [label for label in self.labels if label is not None])
        if not window:
            return key
        return build_row((key, build_row(window[:2], ("start", "end"))), (WINDOW_VALUE, WINDOW))


def bind_key(node: syntax.TopicQuery, source: Source, context: Context, problems: Problems) -> ResultKey:
    """Bind GROUP BY.

    Errors, such as SqlError `unnamed-key`, `duplicate-column`, are collected in `problems`.
    """
    binder = FacetBinder(source, context, "GROUP BY")
    values: list[Expr] = []
    labels: list[str | None] = []
    alone = len(node.group) == 1 and node.group[0].alias is None
    for each in node.group:
        with problems:
            value = binder.bind(each.value)
            label = _label(each)
            if not alone:
                _check_label(label, labels, each, context)
            labels.append(label)
            values.append(value)
    return ResultKey(values=tuple(values), labels=tuple(labels), is_single=alone)


def _label(node: syntax.GroupKey) -> str | None:
    """Return the alias, else the name of a field; None for any other expression."""
    return node.alias.name if node.alias is not None else syntax.implicit_name(node.value)


def _check_label(name: str | None, taken: Sequence[str | None], node: syntax.GroupKey, context: Context) -> None:
    if name is None:
        raise context.error(
            "unnamed-key",
            f"the field of the key that `{context.sql(node.value)}` makes has no name",
            node,
            "give it one with AS",
        )
    if name in taken:
        raise context.error("duplicate-column", f"two fields of the key are named `{name}`", node, "rename one with AS")
