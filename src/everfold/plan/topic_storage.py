"""How the keys and values of topics are stored: which format holds which type.

Formats are named as in Lenses SQL. A format of single values holds one value, a structure has named
fields. All commands that plan a query check its topics here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from everfold import types
from everfold.errors import UnsupportedFeature
from everfold.plan.nodes import Root, Sink, Table
from everfold.plan.record_types import check_avro_field, check_json_field
from everfold.plan.walk import tables_read
from everfold.types import (
    AnyType,
    BytesType,
    DataType,
    FloatType,
    IntegerType,
    IntervalType,
    MapType,
    RowType,
    StringType,
)

KEY, VALUE, META = "_key", "_value", "_meta"
"""The facets of a record."""
PRIMITIVES: Mapping[str, DataType] = MappingProxyType({
    "STRING": types.STRING,
    "INT": types.INT,
    "LONG": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "BYTES": types.BYTES,
})  # fmt: skip
"""Storage formats of a single value, and its type."""
STRUCTURES = ("JSON", "AVRO")
"""Storage formats of named fields."""
CONNECTOR = "topic"


def find_primitive(data_type: DataType) -> str | None:
    """Return the storage format of single values of a type, None if there is none.

    Strings and bytes of any length are STRING and BYTES.
    """
    match data_type:
        case StringType():
            return "STRING"
        case BytesType():
            return "BYTES"
    return next((name for name, primitive in PRIMITIVES.items() if primitive.same_as(data_type)), None)


def is_primitive(storage_format: str | None) -> bool:
    """Return whether a format, in any case, holds single values."""
    return storage_format is not None and storage_format.upper() in PRIMITIVES


def check_topics(roots: Iterable[Root]) -> None:
    """Check the topics that queries read and write, as `check_topic`."""
    roots = tuple(roots)
    written = [root.table for root in roots if isinstance(root, Sink)]
    for table in dict.fromkeys((*tables_read(roots), *written)):
        if is_topic(table):
            check_topic(table)


def is_topic(table: Table) -> bool:
    """Return whether a table is a topic, also one whose rows the caller supplies."""
    return table.connector in (None, CONNECTOR) and table.option("value.format") is not None


def is_read_whole(table: Table) -> bool:
    """Return whether all columns of a topic are read: only JSON records name their fields."""
    formats = (table.option("key.format"), table.option("value.format"))
    return any(name is not None and name.upper() != "JSON" for name in formats)


def check_topic(table: Table) -> None:
    """Check that the storage formats of a topic hold its key and value.

    Raises UnsupportedFeature `key-format`, `value-format`, `avro-type`, `json-map-key`.
    """
    columns = {column.name: column.type for column in table.columns if column.metadata_key is None}
    key = columns.pop(KEY, None)
    for facet, single, fields, option in (
        (KEY, key, {}, "key.format"),
        (VALUE, columns.get(VALUE), columns, "value.format"),
    ):
        storage_format = (table.option(option) or "").upper()
        if storage_format in PRIMITIVES:
            if single is not None and not isinstance(single, AnyType) and find_primitive(single) != storage_format:
                raise _wrong_type(table, facet, single, storage_format)
        elif storage_format in STRUCTURES:
            _check_structure(table, facet, single, fields, storage_format)


def _check_structure(
    table: Table, facet: str, single: DataType | None, fields: Mapping[str, DataType], storage_format: str
) -> None:
    """Check a key or value with named fields.

    single: the type of the column `_key` or `_value`, if there is one. fields: the columns of a
    value.
    """
    if facet == KEY and isinstance(single, RowType):
        fields = {field.name: field.type for field in single.fields}
    elif single is not None and not isinstance(single, AnyType):
        raise _single_value_error(table, facet, single)
    for name, data_type in fields.items():
        column = KEY if facet == KEY else name
        if storage_format == "AVRO":
            check_avro_field(table, name, data_type, column)
        else:
            check_json_field(table, data_type, column)


def _single_value_error(table: Table, facet: str, data_type: DataType) -> UnsupportedFeature:
    name_it = "GROUP BY x AS name" if facet == KEY else "x AS name"
    converted = _suggest_type(data_type)
    convert_it = f", or convert it: CAST(x AS {converted})" if converted else ""
    return UnsupportedFeature.of(
        "key-format" if facet == KEY else "value-format",
        f"topic `{table.name}`: a {facet[1:]} of type {data_type.sql} without a name has no storage format, "
        f"only {', '.join(PRIMITIVES)} have one",
        table.span_of(facet),
        f"give it a name: {name_it}{convert_it}",
    )


def _wrong_type(table: Table, facet: str, data_type: DataType, storage_format: str) -> UnsupportedFeature:
    return UnsupportedFeature.of(
        "key-format" if facet == KEY else "value-format",
        f"topic `{table.name}`: a {facet[1:]} in {storage_format} is {PRIMITIVES[storage_format].sql}, "
        f"and `{facet}` is {data_type.sql}",
        table.span_of(facet),
        "declare the type of the format, or another format",
    )


def _suggest_type(data_type: DataType) -> str | None:
    """Return a type with a storage format that holds every value, None for collections."""
    match data_type:
        case IntegerType():
            return types.INT.sql
        case FloatType():
            return types.DOUBLE.sql
        case RowType() | types.ArrayType() | MapType() | IntervalType():
            return None
        case _:
            return types.STRING.sql
