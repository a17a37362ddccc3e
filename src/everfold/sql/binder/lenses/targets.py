"""The target of a projection: a field of the value or within one, the value itself, or the key.

Targets that begin with the same name are fields of one structure. Source: the seed on Lenses
streaming aggregations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from everfold.errors import SqlError
from everfold.plan.expressions import Expr
from everfold.plan.topic_storage import KEY, META, VALUE
from everfold.sql import syntax
from everfold.sql.binder.constants import null_literal, string_literal
from everfold.sql.binder.context import Context
from everfold.sql.binder.lenses.functions import build_row, has_aggregate
from everfold.sql.functions import build
from everfold.types import DataType, NullType, RowType

Path = tuple[str, ...]
"""A column, and the fields within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A field that a projection writes.

    is_aggregated: whether the projection contains an aggregate.
    """

    path: Path
    value: Expr
    is_aggregated: bool

    @property
    def name(self) -> str:
        """The path as it is written."""
        return ".".join(self.path)


def bind_targets(
    node: syntax.Projection, bind: Callable[[syntax.Expression], Expr], context: Context, *, aggregation: bool
) -> Iterator[Target]:
    """Yield what a projection writes: one field, or all fields of a structure that is the value.

    bind: binds its expression. aggregation: whether the query has groups, which define its key.
    Raises SqlError `key-projection`, `meta-projection`, `unnamed-projection`.
    """
    path = target_path(node)
    if path is None:
        raise context.error(
            "unnamed-projection",
            f"`{context.sql(node)}` has no name",
            node,
            f"give it one: {context.sql(node)} AS name, or AS _value for a value without fields",
        )
    _check_facet(path, node, context, aggregation=aggregation)
    value = bind(node.value)
    if isinstance(value.type, NullType):
        raise context.error("untyped-null", "NULL as a field needs a type", node, "write CAST(NULL AS STRING)")
    parts: dict[Path, Expr] = {path: value}
    if path == (VALUE,) and isinstance(value.type, RowType):
        names = [field.name for field in value.type.fields]
        parts = {(name,): build("FIELD", (value, string_literal(name)), value.span) for name in names}
    for part, field in parts.items():
        _check_facet(part, node, context, aggregation=aggregation)
        yield Target(path=part, value=field, is_aggregated=has_aggregate(node.value))


def target_path(node: syntax.Projection) -> Path | None:
    """Return the path after AS, or the name of a field without AS; None for other expressions."""
    if node.target is None:
        name = syntax.implicit_name(node.value)
        return None if name is None else (name,)
    names = node.target.names
    return names[1:] if names[0] == VALUE and len(names) > 1 else names


def sort_by_column(items: Sequence[syntax.Projection]) -> list[syntax.Projection]:
    """Return projections in the order of the fields that they write, those of a ROW together.

    A translation has their aggregates in this order.
    """
    paths = [target_path(item) or () for item in items]
    prefixes = [[path[:length] for length in range(1, len(path) + 1)] for path in paths]
    first: dict[Path, int] = {}
    for position, outer in enumerate(prefixes):
        for path in outer:
            first.setdefault(path, position)
    order = sorted(range(len(items)), key=lambda position: [first[path] for path in prefixes[position]])
    return [items[position] for position in order]


def build_columns(
    paths: Sequence[Path], values: Sequence[Expr], declared: Mapping[str, DataType] = MappingProxyType({})
) -> dict[str, Expr]:
    """Return the columns with these values; paths of several names build ROWs.

    declared: the types of columns that exist. A ROW has the fields of its type first, those that
    are not written as NULL.
    """
    parts: dict[str, dict[Path, Expr]] = {}
    for path, value in zip(paths, values, strict=True):
        parts.setdefault(path[0], {})[path[1:]] = value
    columns: dict[str, Expr] = {}
    for name, part in parts.items():
        if () in part:
            columns[name] = part[()]
        else:
            row = declared.get(name)
            types = {field.name: field.type for field in row.fields} if isinstance(row, RowType) else {}
            fields: dict[str, Expr] = {field: null_literal(data_type) for field, data_type in types.items()}
            fields |= build_columns(tuple(part), tuple(part.values()), types)
            columns[name] = build_row(tuple(fields.values()), tuple(fields), nullable_fields=True)
    return columns


def find_undeclared(paths: Iterable[Path], declared: Mapping[str, DataType]) -> Path | None:
    """Return the first path to a field that a declared ROW does not have, None if there is none."""
    for path in paths:
        data_type = declared.get(path[0])
        for length, name in enumerate(path[1:], 2):
            if not isinstance(data_type, RowType):
                break
            data_type = next((field.type for field in data_type.fields if field.name == name), None)
            if data_type is None:
                return path[:length]
    return None


def check_paths(paths: Sequence[Path], node: syntax.TopicQuery, context: Context) -> None:
    """Raise SqlError `duplicate-column` if two projections write the same field.

    A field in addition to the whole structure or the whole value is such an error too.
    """
    written: set[Path] = set()
    for path in paths:
        if path in written:
            raise _twice(f"two projections are named `{'.'.join(path)}`", node, context)
        written.add(path)
    for path in paths:
        outer = next((path[:length] for length in range(1, len(path)) if path[:length] in written), None)
        if outer is not None:
            message = f"`{'.'.join(outer)}` and a field in it, `{'.'.join(path)}`, cannot both be written"
            raise _twice(message, node, context)
    if (VALUE,) in paths and any(path[0] not in (KEY, VALUE) for path in paths):
        raise context.error(
            "duplicate-column", "`_value` is the whole value, and cannot be combined with fields", node, "name a field"
        )


def _twice(message: str, node: syntax.TopicQuery, context: Context) -> SqlError:
    return context.error("duplicate-column", message, node, "rename one with AS")


def _check_facet(path: Path, node: syntax.Projection, context: Context, *, aggregation: bool) -> None:
    """Check a target that is not a field of the value."""
    if path[0] == KEY and aggregation:
        raise context.error(
            "key-projection",
            f"`{context.sql(node)}` projects onto the key: the key of an aggregation is defined by GROUP BY",
            node.target or node,
            "name a field of the value; GROUP BY x AS name shapes the key",
        )
    if path[0] == META or path[0].startswith(f"{META}."):
        raise context.error(
            "meta-projection",
            f"`{'.'.join(path)}` cannot be written: it is metadata of each record",
            node.target or node,
        )
