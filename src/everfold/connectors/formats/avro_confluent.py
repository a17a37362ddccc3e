"""Format `avro-confluent`: Avro records with the number of their schema in a schema registry.

A record is a byte 0, the number of its schema in four bytes, and the record in Avro's binary
encoding. It is read with the schema that it was written with, and its fields are assigned to the
table's columns by name, by the rules of Avro: a narrower number becomes a wider one, a missing
field is NULL, and other fields are ignored. Unlike in Flink, the unit of a timestamp and the scale
of a decimal are those of the record's schema.

Rows are written with the schema that Flink derives from the columns, or that of option `schema`,
which is registered when the first row is written.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact, localcontext
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Self

from everfold.connectors.formats.avro import (
    AvroFormat,
    Conversion,
    RowReader,
    RowWriter,
    avro_schema,
    from_avro,
    read_with,
    record_type,
    skip_null,
    to_avro,
    within_days,
)
from everfold.connectors.formats.avro_limits import check_schema_text, kind_of
from everfold.connectors.formats.format import RecordColumn
from everfold.connectors.formats.schema_registry import SchemaRegistry, basic, split_user_info
from everfold.connectors.formats.text_decode import BadValue
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.errors import UnsupportedFeature
from everfold.limits import MAX_SCHEMA_REFERENCES
from everfold.plan.nodes import Table
from everfold.types import (
    ArrayType,
    BigIntType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
)

_NO_PASSWORD = "has no meaning here: certificates in PEM have no password"
OPTIONS = OptionSet(
    (
        Option("url", required=True, secret=True, meaning="the address of the schema registry, or several separated by `,`"),
        Option("subject", role="sink", meaning="the subject that the schema is registered under; by default `<topic>-value`, or `<topic>-key` for keys"),
        Option("schema", meaning="the Avro schema of the records, which must have the columns of the table with their types; by default the one that Flink derives from the columns"),
        Option("basic-auth.credentials-source", ("USER_INFO", "URL"), meaning="where user and password are: in `basic-auth.user-info` or in `url`"),
        Option("basic-auth.user-info", secret=True, meaning="`user:password`, preferably as `${env:NAME}`"),
        Option("bearer-auth.credentials-source", ("STATIC_TOKEN",), meaning="STATIC_TOKEN: the token is in `bearer-auth.token`"),
        Option("bearer-auth.token", secret=True, meaning="the token of the authorization, preferably as `${env:NAME}`"),
        Option("ssl.truststore.location", meaning="the certificates that are trusted, as a PEM file on the driver and all workers"),
        Option("ssl.truststore.password", secret=True, note=_NO_PASSWORD),
        Option("ssl.keystore.location", meaning="the own certificate and its key, as a PEM file on the driver and all workers"),
        Option("ssl.keystore.password", secret=True, meaning="the password of the key"),
    )
)  # fmt: skip
_MAGIC = b"\0"
_HEADER = struct.Struct(">I")
_RECORD = "org.apache.flink.avro.generated.record"
_JAVA_STORES = (".jks", ".p12", ".pfx", ".jceks")
_UNITS = {"timestamp-millis": 1000, "timestamp-micros": 1}
_LOCAL = "local-"
_MAX_REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class AvroConfluentFormat(AvroFormat):
    """Avro with schemas in a registry.

    subject, schema: what rows are written with; empty: that of the topic, and of the columns.
    """

    registry: SchemaRegistry = field(default_factory=lambda: SchemaRegistry(()))
    subject: str = ""
    schema: str = ""

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        """Return the format configured by the table's options. Raises SqlError."""
        given = _strip_prefix(options, prefix)
        for store in ("truststore", "keystore"):
            location = given.get(f"ssl.{store}.location")
            if location is not None and PurePath(location).suffix.lower() in _JAVA_STORES:
                option = f"{prefix}ssl.{store}.location"
                raise UnsupportedFeature.of(
                    "java-key-store",
                    f"table `{table.name}`: `{option}` is a store that only Java can read",
                    table.span_of_option(option),
                    "write it as PEM (keytool, openssl pkcs12)",
                )
        parts = [split_user_info(url) for url in given.get("url", "").split(",") if url.strip()]
        if not parts or not all(url.startswith(("http://", "https://")) for url, _ in parts):
            raise wrong_option_error(table, f"{prefix}url", f"option `{prefix}url` is not the URL of a schema registry")
        registry = SchemaRegistry(
            tuple(url for url, _ in parts),
            _authorization(given, parts[0][1]),
            given.get("ssl.truststore.location"),
            given.get("ssl.keystore.location"),
            given.get("ssl.keystore.password"),
        )
        kind = "key" if prefix.startswith("key.") else "value"
        subject = given.get("subject") or f"{options.string_or_none('topic')}-{kind}"
        return cls(registry=registry, subject=subject, schema=given.get("schema", ""))

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Check the types of the columns, and that a given schema has the same."""
        AvroFormat.check(self, table, columns)
        if not self.schema:
            return
        option = next(name for name, value in table.options if value == self.schema and name.endswith(".schema"))
        try:
            given = _Schema.parse(self.schema)
        except ValueError as wrong:
            raise wrong_option_error(table, option, f"option `{option}` is not an Avro schema: {wrong}") from None
        derived = _Schema.parse(_derive_schema(columns))
        if given.shape(given.root) != derived.shape(derived.root):
            message = f"option `{option}` differs from the columns of the table"
            raise wrong_option_error(table, option, message, f"the columns have the schema {_derive_schema(columns)}")

    @property
    def names_fields(self) -> bool:
        """Always True: the schema of a record has the names."""
        return True

    def open_reader(self, columns: Sequence[RecordColumn]) -> RowReader:
        """Return a function from a record to its fields, which raises BadValue."""
        of = record_type(columns)
        readers: dict[int, RowReader] = {}

        def read(record: bytes) -> dict[str, Any]:
            if record[:1] != _MAGIC or len(record) < 1 + _HEADER.size:
                raise BadValue("it does not begin with a byte 0 and the number of a schema")
            [number] = _HEADER.unpack_from(record, 1)
            if number not in readers:
                schema = _load_schema(self.registry, number)
                if isinstance(schema, str):
                    raise BadValue(schema)
                readers[number] = _open_reader(schema, of, number)
            return readers[number](record[1 + _HEADER.size :])

        return read

    def open_writer(self, columns: Sequence[RecordColumn]) -> RowWriter:
        """Return a function from a row to its record. Raises ConnectorError."""
        from fastavro import parse_schema, schemaless_writer

        text = self.schema or _derive_schema(columns)
        schema, convert = parse_schema(json.loads(text)), to_avro(record_type(columns))
        header = _MAGIC + _HEADER.pack(self.registry.register(self.subject, text))

        def write(row: Mapping[str, object]) -> bytes:
            record = io.BytesIO()
            record.write(header)
            schemaless_writer(record, schema, convert(row))
            return record.getvalue()

        return write


FORMAT = AvroConfluentFormat


def _strip_prefix(options: OptionValues, prefix: str) -> dict[str, str]:
    """Return the options of the format that are set, by their names in `OPTIONS`."""
    names = (option.name for option in OPTIONS.options if prefix + option.name in options.explicit)
    return {name: options.string(prefix + name) for name in names}


def _authorization(given: Mapping[str, str], user_info_of_url: str) -> str:
    if "bearer-auth.token" in given:
        return f"Bearer {given['bearer-auth.token']}"
    if "basic-auth.user-info" in given and given.get("basic-auth.credentials-source") != "URL":
        return basic(given["basic-auth.user-info"])
    return basic(user_info_of_url) if user_info_of_url else ""


# --- schemas --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Schema:
    """A parsed schema.

    named: the named types that it refers to. stored: the schema without logical types, for which
    fastavro returns what is stored, and stored_types: its named types.
    """

    root: Any
    named: Mapping[str, Any]
    stored: Any
    stored_types: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, others: Sequence[str] = ()) -> _Schema:
        """Parse a schema. others: schemas whose types it uses. Raises ValueError."""
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType

        named: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        try:
            for each in (*others, text):
                check_schema_text(each)
                root = parse_schema(json.loads(each), named_schemas=named)
                stored = parse_schema(_without_logical_types(json.loads(each)), named_schemas=plain)
        except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError, RecursionError) as wrong:
            raise ValueError(str(wrong)) from None
        return cls(root, named, stored, plain)

    def resolve(self, schema: Any) -> Any:
        """Return the definition of a type that is given by its name."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema

    def shape(self, schema: Any) -> Any:
        """Return a type without what does not matter to its records: names, documentation, …."""
        schema = self.resolve(schema)
        if isinstance(schema, list):
            return frozenset(map(self.shape, schema))
        kind = kind_of(schema)
        match kind:
            case "record":
                return frozenset((each["name"], self.shape(each["type"])) for each in schema["fields"])
            case "array" | "map":
                return kind, self.shape(schema["items" if kind == "array" else "values"])
        logical = _logical_type(schema)
        return kind, logical, (schema.get("precision"), schema.get("scale", 0)) if logical == "decimal" else None


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values", "fields"):
        if key in kept:
            kept[key] = _without_logical_types(kept[key])
    return kept


def _logical_type(schema: Any) -> str:
    """Return the logical type, empty without one. A local timestamp is stored as another one."""
    found = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    return str(found).removeprefix(_LOCAL)


def _derive_schema(columns: Sequence[RecordColumn]) -> str:
    """Return the schema that Flink derives from columns, as JSON."""
    return json.dumps(avro_schema(record_type(columns), _RECORD, logical=True), separators=(",", ":"))


@lru_cache(maxsize=1000)
def _load_schema(registry: SchemaRegistry, number: int) -> _Schema | str:
    """Return the schema with a number, or why it cannot be read.

    Raises BadValue, which is not cached, if the registry does not have it.
    """
    found = registry.find_schema(number)
    if found is None:
        raise BadValue(f"the schema registry has no schema {number}")
    if found.get("schemaType", "AVRO") != "AVRO":
        return f"schema {number} is not an Avro schema, but {found['schemaType']}"
    try:
        return _Schema.parse(found["schema"], _load_references(registry, found))
    except BadValue:
        raise
    except (ValueError, KeyError, TypeError) as wrong:
        return f"schema {number} of the schema registry cannot be read: {str(wrong)[:_MAX_REASON_CHARS]}"


def _load_references(registry: SchemaRegistry, entry: Mapping[str, Any]) -> list[str]:
    """Return the schemas that an entry refers to, each after those that it refers to itself."""
    schemas: dict[tuple[str, int], str] = {}
    _add_references(registry, entry, schemas, set())
    return list(dict.fromkeys(schemas.values()))


def _add_references(
    registry: SchemaRegistry,
    entry: Mapping[str, Any],
    schemas: dict[tuple[str, int], str],
    visited: set[tuple[str, int]],
) -> None:
    """Add the schemas that an entry refers to. A cycle ends at a type that is not yet known."""
    for reference in entry.get("references") or ():
        key = str(reference["subject"]), int(reference["version"])
        if key in visited:
            continue
        visited.add(key)
        if len(visited) > MAX_SCHEMA_REFERENCES:
            raise ValueError(f"it refers to more than {MAX_SCHEMA_REFERENCES} schemas")
        other = registry.find_version(*key)
        if other is None:
            raise BadValue(f"the schema registry has no version {key[1]} of {key[0]}")
        _add_references(registry, other, schemas, visited)
        schemas[key] = other["schema"]


# --- reading --------------------------------------------------------------------------------------


def _open_reader(schema: _Schema, of: RowType, number: int) -> RowReader:
    """Return a function from a record without its header to the fields of a type."""
    try:
        convert = _resolve(schema, schema.root, of, "")
    except (_Unresolved, ValueError, TypeError) as wrong:
        raise BadValue(f"schema {number}: {wrong}") from None
    return read_with(schema.stored, convert, schema.stored_types)


class _Unresolved(Exception):
    """A type of a schema that is not read as the type of a column."""


def _resolve(schema: _Schema, stored: Any, of: DataType, path: str) -> Conversion:
    """Return the conversion from values of a schema's type to a column's. Raises _Unresolved."""
    stored = schema.resolve(stored)
    if isinstance(stored, list):
        return _resolve_union(schema, stored, of, path)
    kind, logical = kind_of(stored), _logical_type(stored)
    match of, kind:
        case RowType(), "record":
            return _resolve_record(schema, stored, of, path)
        case ArrayType(), "array":
            element = _or_null(_resolve(schema, stored["items"], of.element, path), of.element)
            return lambda value: [element(each) for each in value]
        case MapType(), "map":
            entry = _or_null(_resolve(schema, stored["values"], of.value, path), of.value)
            return lambda value: [(key, entry(each)) for key, each in value.items()]
        case TimestampType(), "long":
            return _timestamp(of, _UNITS.get(logical))
        case TimeType(), "long" if logical == "time-micros":
            return lambda value: from_avro(of)(value // 1000)
        case DecimalType(), "bytes" | "fixed" if logical == "decimal":
            return _decimal(of, int(stored.get("scale", 0)))
        case StringType(), "bytes":
            return lambda value: value.decode()
        case BytesType(), "string":
            return lambda value: value.encode()
        case ((FloatType() | DoubleType()), ("int" | "long" | "float")):
            return float
        case (
            (BooleanType(), "boolean")
            | (BigIntType(), "int" | "long")
            | (IntegerType() | DateType() | TimeType(), "int")
            | (DoubleType(), "double")
            | (StringType(), "string" | "enum")
            | (BytesType() | DecimalType(), "bytes" | "fixed")
        ):
            return from_avro(of)
    name = f"field `{path}`" if path else "the record"
    raise _Unresolved(f"{name} is {kind}{f' ({logical})' * bool(logical)}, which is not read as {of.sql}")


def _resolve_union(schema: _Schema, branches: Sequence[Any], of: DataType, path: str) -> Conversion:
    others = [each for each in branches if each != "null"]
    if len(others) == 1:
        return _resolve(schema, others[0], of, path)
    found: dict[type, Conversion] = {}
    for each in others:
        kind = _PYTHON_TYPES.get(kind_of(schema.resolve(each)))
        if kind is None or kind in found:
            raise _Unresolved(f"field `{path}` is a union of several types, which is not read as {of.sql}")
        found[kind] = _resolve(schema, each, of, path)
    return lambda value: found[type(value)](value)


_PYTHON_TYPES = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
}
"""Types of the values that fastavro returns: they tell the branches of a union."""


def _resolve_record(schema: _Schema, stored: Mapping[str, Any], of: RowType, path: str) -> Conversion:
    types = {each["name"]: each["type"] for each in stored["fields"]}
    fields: list[tuple[str, Callable[[Any], Any]]] = []
    missing: list[str] = []
    for each in of.fields:
        name = f"{path}.{each.name}" if path else each.name
        if each.name in types:
            fields.append((each.name, _or_null(_resolve(schema, types[each.name], each.type, name), each.type)))
        elif each.type.nullable:
            missing.append(each.name)
        else:
            raise _Unresolved(f"it has no field `{name}`, and the column is NOT NULL")
    nothing = dict.fromkeys(missing)
    return lambda value: {**nothing, **{name: read(value[name]) for name, read in fields}}


def _or_null(convert: Conversion, of: DataType) -> Conversion:
    """Return a conversion of values that can be NULL.

    It raises ValueError for a NULL if the type forbids that.
    """
    if of.nullable:
        return skip_null(convert)

    def require(value: Any) -> Any:
        if value is None:
            raise ValueError(f"NULL is not a value of {of.sql} NOT NULL")
        return convert(value)

    return require


def _timestamp(of: TimestampType, unit: int | None) -> Conversion:
    """Return the conversion of a timestamp. unit: in microseconds, None for that of the column."""
    column_unit = 1000 if of.precision <= 3 else 1
    within = within_days(of)
    return lambda value: within(value * (unit or column_unit) // column_unit * column_unit)


def _decimal(of: DecimalType, scale: int) -> Conversion:
    """Return the conversion of a decimal with another scale. It refuses to round."""

    def convert(value: bytes) -> Decimal:
        unscaled = int.from_bytes(value, "big", signed=True)
        with localcontext(Context(prec=max(len(str(unscaled)) + abs(scale) + of.scale, 1), traps=[Inexact])):
            try:
                found = Decimal(unscaled).scaleb(-scale).quantize(Decimal(1).scaleb(-of.scale))
            except Inexact:
                raise ValueError(f"{Decimal(unscaled).scaleb(-scale)} has more digits than {of.sql}") from None
        if abs(found) >= 10 ** (of.precision - of.scale):
            raise ValueError(f"{found} is outside of {of.sql}")
        return found

    return convert
