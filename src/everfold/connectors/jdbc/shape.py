"""The columns and unique keys of a PostgreSQL table, and whether a declared table fits them.

A name is looked up as it is spelled, then in lower case, as PostgreSQL and Flink resolve an
unquoted name. A name in `"…"` in `table-name` is matched exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from everfold.connectors.contract import Role, columns_of
from everfold.connectors.jdbc.address import name_parts
from everfold.connectors.jdbc.client import Connection
from everfold.errors import ConnectorError, Diagnostic, suggest_name
from everfold.plan.nodes import Table
from everfold.types import (
    BooleanType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    FloatType,
    IntegerType,
    StringType,
    TimestampType,
    TimeType,
    with_article,
)

_FIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ANY(%(names)s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND CASE WHEN %(schemas)s::text[] IS NULL THEN pg_catalog.pg_table_is_visible(c.oid)
    ELSE n.nspname = ANY(%(schemas)s::text[]) END
ORDER BY array_position(%(names)s, c.relname::text), array_position(%(schemas)s::text[], n.nspname::text)
LIMIT 1
"""
_COLUMNS = """
SELECT a.attname, coalesce(base.typname, t.typname), t.typtype::text,
  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END, format_type(a.atttypid, a.atttypmod),
  a.attnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
  (SELECT l.collname FROM pg_catalog.pg_collation l
    WHERE (l.oid = a.attcollation OR l.oid IN (
      SELECT k.used FROM pg_catalog.pg_index i, unnest(i.indkey, i.indcollation) AS k(num, used)
      WHERE i.indrelid = a.attrelid AND i.indisunique AND k.num = a.attnum))
    AND NOT coalesce((to_jsonb(l) ->> 'collisdeterministic')::boolean, true) LIMIT 1)
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type base ON base.oid = t.typbasetype
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_KEYS = """
SELECT array_agg(a.attname::text)
FROM pg_catalog.pg_index i, unnest(i.indkey[0 : i.indnkeyatts - 1]) AS k(num)
JOIN pg_catalog.pg_attribute a ON a.attnum = k.num
WHERE i.indrelid = %s AND a.attrelid = i.indrelid
  AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
Refuse = Callable[..., None]
_INTEGERS = {"int2": 16, "int4": 32, "int8": 64}
_TEXTS = ("text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid", "xml")
_LOOSE_TYPES = {
    "bpchar": "it ignores blanks at the end",
    "citext": "it ignores case",
    "jsonb": "it ignores how JSON is written",
}
"""How types take different strings for equal."""
_MICROS = 6


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a PostgreSQL table.

    base: the name of its type; for a domain, of the underlying type. kind: `typtype` of pg_type.
    modifier: its length or precision, packed. sql_type: its type in SQL. has_default: whether it
    has a default. is_generated: whether its value is always generated. loose_collation: the name of
    its collation, or of one of its unique indexes, if different strings can be equal by it.
    """

    name: str
    base: str
    kind: str
    modifier: int
    sql_type: str
    not_null: bool
    has_default: bool
    is_generated: bool
    loose_collation: str | None

    @property
    def equality(self) -> str | None:
        """How different strings can be equal in the column; None if they cannot."""
        if self.loose_collation is not None:
            return f"the collation `{self.loose_collation}` takes different strings for equal"
        return _LOOSE_TYPES.get(self.base)

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a numeric; None if it is unlimited."""
        packed = self.modifier - 4
        return None if self.modifier < 0 else (packed >> 16 & 0xFFFF, packed & 0x7FF)


@dataclass(frozen=True, slots=True)
class Target:
    """A table of PostgreSQL.

    kind: `relkind` of pg_class. keys: the column sets of its unique indexes.
    """

    oid: int
    schema: str
    name: str
    kind: str
    columns: Mapping[str, TargetColumn]
    keys: Sequence[frozenset[str]]

    def column(self, name: str) -> TargetColumn | None:
        """Return the column of that name, or else of the name in lower case."""
        return self.columns.get(name) or self.columns.get(name.lower())


def find_table(connection: Connection, table: Table, name: str) -> Target:
    """Find the table `table-name`. Raises ConnectorError `no-such-table`, psycopg.Error."""
    *schema, plain = name_parts(table, name)
    parameters = {"names": _spellings(plain), "schemas": _spellings(schema[0]) if schema else None}
    found = connection.execute(_FIND, parameters).fetchone()
    if found is None:
        known = [
            row[0]
            for row in connection.execute(
                "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f')"
            )
        ]
        raise ConnectorError.of(
            "no-such-table",
            f"table `{table.name}`: PostgreSQL has no table `{name}`",
            table.span_of_option("table-name"),
            suggest_name(plain[0], known) or "create it first: everfold does not create tables",
        )
    oid, in_schema, spelled, kind = found
    columns = {row[0]: TargetColumn(*row) for row in connection.execute(_COLUMNS, (oid,))}
    keys = [frozenset(row[0]) for row in connection.execute(_KEYS, (oid,))]
    return Target(oid, in_schema, spelled, kind, columns, keys)


def _spellings(part: tuple[str, bool]) -> list[str]:
    name, exact = part
    return [name] if exact or name == name.lower() else [name, name.lower()]


def check_fits(table: Table, target: Target, role: Role) -> tuple[TargetColumn, ...]:
    """Return the target's columns for the declared ones.

    Raises ConnectorError `wrong-shape` with all mismatches.
    """
    wrong: list[Diagnostic] = []

    def refuse(message: str, column: str | None = None, help: str | None = None) -> None:
        span = table.span if column is None else table.span_of(column)
        wrong.append(Diagnostic("wrong-shape", f"table `{table.name}`: {message}", span, help))

    found = []
    for column in columns_of(table, role):
        there = target.column(column.name)
        if there is None:
            refuse(
                f"`{target.name}` has no column `{column.name}`", column.name, suggest_name(column.name, target.columns)
            )
            continue
        found.append(there)
        reason = _why_unfit(column.type, there, role)
        if reason is not None:
            refuse(f"column `{there.name}` of `{target.name}` is {there.sql_type}: {reason}", column.name)
        if there.is_generated and role is Role.SINK:
            refuse(
                f"column `{there.name}` of `{target.name}` is generated by PostgreSQL and cannot be written",
                column.name,
            )
    if role is Role.SINK:
        names = {each.name for each in found}
        for there in target.columns.values():
            if there.not_null and not there.has_default and there.name not in names:
                refuse(
                    f"column `{there.name}` of `{target.name}` is NOT NULL and gets no value",
                    None,
                    "declare it, or give it a default",
                )
        if table.primary_key and not wrong:
            _check_key(table, target, refuse)
            _check_equality(table, target, refuse)
    if wrong:
        raise ConnectorError(*wrong)
    return tuple(found)


def _check_key(table: Table, target: Target, refuse: Refuse) -> None:
    if target.kind not in ("r", "p"):
        refuse(f"`{target.name}` is not a plain table, so rows cannot be changed by PRIMARY KEY")
        return
    key = frozenset(of.name for name in table.primary_key if (of := target.column(name)) is not None)
    if key not in target.keys:
        columns = ", ".join(f'"{name}"' for name in sorted(key))
        refuse(
            f"`{target.name}` has no unique constraint on the PRIMARY KEY "
            f"({', '.join(f'`{name}`' for name in table.primary_key)})",
            None,
            f'ALTER TABLE "{target.schema}"."{target.name}" ADD PRIMARY KEY ({columns})',
        )


def _check_equality(table: Table, target: Target, refuse: Refuse) -> None:
    """Refuse a PRIMARY KEY of strings by which PostgreSQL would merge rows."""
    for column in table.columns:
        there = target.column(column.name)
        if column.name in table.primary_key and isinstance(column.type, StringType) and there is not None:
            equality = there.equality
            if equality is not None:
                refuse(
                    f"column `{there.name}` of `{target.name}` is {there.sql_type}: {equality},"
                    " so rows with different keys would replace each other",
                    column.name,
                    "make it a column of type text without such a collation",
                )


def _why_unfit(of: DataType, column: TargetColumn, role: Role) -> str | None:
    """Return why values of a type do not fit a column unchanged; None if they do.

    They are written into the column, or read from it.
    """
    fits: bool
    base, writes = column.base, role is Role.SINK
    match of:
        case BooleanType():
            fits = base == "bool"
        case IntegerType() if writes:
            fits = _INTEGERS.get(base, 0) >= of.bits or (base == "numeric" and _has_room(column, of.digits, 0))
        case IntegerType():
            fits = 0 < _INTEGERS.get(base, 0) <= of.bits
        case FloatType():
            fits = base == "float4" or (writes and base == "float8")
        case FloatingType():
            fits = base == "float8" or (not writes and base == "float4")
        case DecimalType() if writes:
            fits = base == "numeric" and _has_room(column, of.precision - of.scale, of.scale)
            if base == "numeric" and not fits:
                return f"it would round {with_article(of)}, or is too small for it"
        case DecimalType():
            fits = base == "numeric" or base in _INTEGERS
        case StringType():
            fits = not writes or base in _TEXTS or column.kind == "e"
        case BytesType():
            fits = base == "bytea"
        case DateType():
            fits = base == "date"
        case TimeType():
            fits = base == "time" and (not writes or _has_precision(column, of.precision))
        case TimestampType():
            name = "timestamptz" if of.local_zone else "timestamp"
            fits = base == name and (not writes or _has_precision(column, of.precision))
        case _:
            raise AssertionError(of)
    if fits:
        return None
    return f"it does not take {with_article(of)}" if writes else f"it cannot be read as {with_article(of)}"


def _has_room(column: TargetColumn, whole: int, scale: int) -> bool:
    limits = column.digits
    return limits is None or (limits[1] >= scale and limits[0] - limits[1] >= whole)


def _has_precision(column: TargetColumn, precision: int) -> bool:
    return column.modifier < 0 or column.modifier >= min(precision, _MICROS)
