"""The target of a projection: a field of the value, the value itself, or the key.

Source: the seed on Lenses streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Sequence

from everfold.sql import syntax
from everfold.sql.binder.context import Context, quote_names
from everfold.sql.dialects.lenses import KEY, META, VALUE


def target_column(node: syntax.Projection, context: Context, *, aggregation: bool) -> str:
    """Return the column that a projection writes: a field, `_value` or `_key`.

    Raises SqlError `key-projection`, `meta-projection`, `unnamed-projection`; UnsupportedFeature
    `nested-projection`.
    """
    path = node.target
    if path is None:
        return _default_name(node, context)
    names = path.names
    if names[0] == KEY and aggregation:
        raise context.error(
            "key-projection",
            f"`{context.sql(node)}` projects onto the key: the key of an aggregation is defined by GROUP BY",
            path,
            "name a field of the value; GROUP BY x AS name shapes the key",
        )
    if names[0] == META:
        raise context.error(
            "meta-projection", f"`{'.'.join(names)}` cannot be written: it is metadata of each record", path
        )
    if names[0] == VALUE and len(names) > 1:
        names = names[1:]
    if len(names) > 1:
        raise context.unsupported(
            "nested-projection",
            f"a field within a field, `{'.'.join(names)}`, is not supported",
            path,
            "name one field",
        )
    return names[0]


def check_names(names: Sequence[str], node: syntax.TopicQuery, context: Context) -> None:
    """Raise SqlError `duplicate-column` if two projections write the same column.

    A field in addition to the whole value is such an error too.
    """
    doubles = [name for at, name in enumerate(names) if name in names[:at]]
    if doubles:
        raise context.error(
            "duplicate-column", f"two projections are named {quote_names(doubles[:1])}", node, "rename one with AS"
        )
    if VALUE in names and set(names) - {KEY, VALUE}:
        raise context.error(
            "duplicate-column", "`_value` is the whole value, and cannot be combined with fields", node, "name a field"
        )


def _default_name(node: syntax.Projection, context: Context) -> str:
    name = syntax.implicit_name(node.value)
    if name is not None:
        return name
    raise context.error(
        "unnamed-projection",
        f"`{context.sql(node)}` has no name",
        node,
        "give it one: " + context.sql(node) + " AS name",
    )
