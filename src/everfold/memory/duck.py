"""DuckDB as the engine for scalar work: relations as SQL over Arrow tables, columns `c0, c1, …`.

Values have their physical types (`types`): TIMESTAMP_LTZ is a TIMESTAMP in UTC here, unlike in
Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import duckdb
import pyarrow as pa

from everfold.error_transport import MESSAGE_START
from everfold.errors import ConnectorError, EverfoldError
from everfold.plan.changelog import REEMIT, REEMIT_DELETE
from everfold.plan.expressions import Expr, InputRef
from everfold.plan.nodes import Join, JoinKind, Unnest, WindowAggregate, WindowTableFunction
from everfold.plan.windows import Cumulate, Hop, SlicedWindow, Tumble
from everfold.sql.functions.render import to_duckdb
from everfold.sql.functions.writer import RenderContext, Writer
from everfold.types import ArrayType, DataType, MapType, MultisetType, RowType, Schema, TimestampType, physical_name

_MAX_PREPARED = 32
"""Number of queries that are kept prepared: batches repeat them unless they depend on the time."""
_OF_DATA = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
"""Failures of an expression that depend on the values; an unknown time zone is another one."""
_UNKNOWN_ZONE = "Unknown TimeZone"
_FAILURE = re.compile(rf"{MESSAGE_START}(.*)", re.S)
JOINS = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN", JoinKind.RIGHT: "RIGHT JOIN", JoinKind.FULL: "FULL JOIN"}


@dataclass(slots=True)
class Duck:
    """A connection, and how expressions are written for it.

    zone: the session's time zone. now_ms: the processing time of the batch. now_sql: SQL for it,
        in microseconds, if queries are written before it is known.
    _leaves: the tables of relations, by name. _registered: the number of those that DuckDB has.
    _plain: the tables of the relations that select all columns of a table, by relation.
    _prepared: the queries that ran last, by relation.
    """

    zone: str
    now_ms: int
    now_sql: str | None = None
    _connection: duckdb.DuckDBPyConnection | None = None
    _leaves: dict[str, pa.Table] = field(default_factory=dict)
    _registered: int = 0
    _plain: dict[str, pa.Table] = field(default_factory=dict)
    _prepared: dict[str, duckdb.DuckDBPyRelation] = field(default_factory=dict)

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection, opened when the first query runs."""
        if self._connection is None:
            self._connection = connect()
        return self._connection

    @property
    def context(self) -> RenderContext:
        """The context that expressions depend on."""
        return RenderContext(zone=self.zone, now=f"make_timestamp({self.now_sql or self.now_ms * 1000})")

    def render_sql(self, expression: Expr, columns: Sequence[str]) -> str:
        """Return an expression as SQL over columns given as SQL."""
        return to_duckdb(expression, columns, self.context)

    def register_table(self, table: pa.Table, schema: Schema, hidden: Sequence[str] = ()) -> str:
        """Return a relation over an Arrow table.

        Its columns are those of the schema, by position, then the hidden ones. DuckDB receives the
        table when a relation is run.
        """
        table = table.select([*range(len(schema)), *map(table.schema.get_field_index, hidden)])
        table = table.rename_columns([*physical_names(schema), *hidden])
        columns = []
        for at, of in enumerate(schema):
            column = physical_name(at)
            if isinstance(of.type, MapType) and not pa.types.is_map(table.schema.field(at).type):
                columns.append(f"map_from_entries({column}) AS {column}")
            elif _holds_instants(of.type):
                columns.append(f"CAST({column} AS {of.type.duckdb}) AS {column}")
            else:
                columns.append(column)
        return self._add_leaf(table, [*columns, *hidden])

    def _add_leaf(self, table: pa.Table, columns: Sequence[str]) -> str:
        """Return a relation over an Arrow table with these columns, given as SQL."""
        name = f"leaf{len(self._leaves)}"
        self._leaves[name] = table
        relation = f"SELECT {', '.join(columns)} FROM {name}"
        if columns == table.column_names:
            self._plain[relation] = table
        return relation

    def run(self, relation: str) -> pa.Table:
        """Return the rows of a relation.

        Errors raised by the SQL become a ConnectorError with their code.
        """
        for name in [*self._leaves][self._registered :]:
            self.connection.register(name, self._leaves[name])
        self._registered = len(self._leaves)
        try:
            # A prepared query reads the tables that have its names when it runs.
            prepared = self._prepared.pop(relation, None)
            if prepared is None:
                prepared = self.connection.sql(relation)
            table = prepared.to_arrow_table()
            self._prepared[relation] = prepared
            if len(self._prepared) > _MAX_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            return table
        except duckdb.Error as error:
            known = _FAILURE.search(str(error))
            if known is None:
                if isinstance(error, _OF_DATA) or _UNKNOWN_ZONE in str(error):
                    raise EverfoldError.of("job-failed", f"the job failed: {_first_line(error)}") from error
                raise
            code, message = known.groups()
            raise ConnectorError.of(code, message.strip()) from error

    def rows(self, relation: str, schema: Schema, hidden: Sequence[str] = ()) -> pa.Table:
        """Return the rows of a relation in the schema's Arrow types, with its hidden columns."""
        table = self.plain_table(relation)
        if table is None or not all(map(_is_stored_as, table.schema.types, schema.arrow.types)):
            table = self.run(relation)
        fields = [*schema.arrow, *(table.schema.field(name) for name in hidden)]
        return cast_table(table.rename_columns([*physical_names(schema), *hidden]), pa.schema(fields))

    def plain_table(self, relation: str) -> pa.Table | None:
        """Return the table of which a relation selects all columns, None if it computes any."""
        return self._plain.get(relation)

    def clear_tables(self) -> None:
        """Forget the tables of all relations; those of the next batch replace them in DuckDB."""
        self._leaves, self._registered, self._plain = {}, 0, {}

    # --- relations --------------------------------------------------------------------------------

    def project(self, below: str, expressions: Sequence[Expr], width: int, hidden: Sequence[str] = ()) -> str:
        """Project to one column per expression, none a Python call, and the hidden columns."""
        table = self.plain_table(below)
        if table is not None and all(isinstance(each, InputRef) for each in expressions):
            names = [physical_name(each.position) for each in expressions if isinstance(each, InputRef)]
            renamed = [*_columns(len(names)), *hidden]
            return self._add_leaf(table.select([*names, *hidden]).rename_columns(renamed), renamed)
        outputs = [
            f"{self.render_sql(each, _columns(width))} AS {physical_name(at)}" for at, each in enumerate(expressions)
        ]
        return f"SELECT {', '.join([*outputs, *hidden])} FROM ({below})"

    def filter(self, below: str, condition: Expr, width: int, again: str | None = None) -> str:
        """Keep the rows for which the condition is TRUE.

        again: the row kind column if some rows are re-emitted; those that the condition excludes
        become `REEMIT_DELETE`.
        """
        text = self.render_sql(condition, _columns(width))
        if again is None:
            return f"SELECT * FROM ({below}) WHERE {text}"
        kind = f"CASE WHEN {again} = {REEMIT} AND NOT coalesce({text}, FALSE) THEN {REEMIT_DELETE} ELSE {again} END"
        kinds = f"SELECT * REPLACE (CAST({kind} AS TINYINT) AS {again}) FROM ({below})"
        return f"{kinds} WHERE {again} >= {REEMIT} OR ({text})"

    def values(self, rows: Sequence[Sequence[Expr]], schema: Schema) -> str:
        """Return a relation of constant rows."""
        if not rows:
            nulls = [f"CAST(NULL AS {of.type.duckdb}) AS {physical_name(at)}" for at, of in enumerate(schema)]
            return f"SELECT {', '.join(nulls)} WHERE FALSE"
        selects = [
            "SELECT "
            + ", ".join(
                f"CAST({self.render_sql(each, ())} AS {of.type.duckdb}) AS {physical_name(at)}"
                for at, (each, of) in enumerate(zip(row, schema, strict=True))
            )
            for row in rows
        ]
        return " UNION ALL ".join(selects)

    def join(self, left: str, right: str, node: Join, hidden: Sequence[str] = ()) -> str:
        """Join two relations, in the order of the left one and with its hidden columns."""
        width, more = len(node.left.schema), len(node.right.schema)
        columns = [*(f"l.{column}" for column in _columns(width)), *(f"r.{column}" for column in _columns(more))]
        condition = "TRUE" if node.condition is None else self.render_sql(node.condition, columns)
        if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
            negated = "NOT " if node.kind is JoinKind.ANTI else ""
            return f"SELECT l.* FROM ({left}) l WHERE {negated}EXISTS (SELECT 1 FROM ({right}) r WHERE {condition})"
        outputs = [f"{column} AS {physical_name(at)}" for at, column in enumerate(columns)]
        kind = "JOIN" if node.kind is JoinKind.CROSS else JOINS[node.kind]
        numbered = f"SELECT *, row_number() OVER () AS __nth FROM ({left})"
        carried = ", ".join([*outputs, *(f"l.{name}" for name in hidden)])
        return f"SELECT {carried} FROM ({numbered}) l {kind} ({right}) r ON {condition} ORDER BY l.__nth"

    def unnest(self, below: str, node: Unnest, hidden: Sequence[str] = ()) -> str:
        """Repeat each row for every element, with its hidden columns."""
        width = len(node.input.schema)
        of = node.collection.type
        carried = ", ".join([*_columns(width), *hidden])
        parts = ["__element"]
        items = "__collection"
        if isinstance(of, MultisetType):
            items = (
                "flatten(list_transform(map_entries(__collection), "
                "lambda e: list_transform(range(e.value), lambda i: e.key)))"
            )
            element = of.key
        elif isinstance(of, MapType):
            items, parts, element = "map_entries(__collection)", ["__element.key", "__element.value"], of.key
        else:
            assert isinstance(of, ArrayType), of
            element = of.element
        if isinstance(element, RowType) and len(parts) == 1:
            parts = [f'__element."{each.name}"' for each in element.fields]
        if node.ordinality:
            parts.append("CAST(__position AS INTEGER)")
        assert len(parts) == len(node.fields)
        collection = self.render_sql(node.collection, _columns(width))
        listed = (
            f"SELECT {carried}, {items} AS __items FROM (SELECT {carried}, {collection} AS __collection FROM ({below}))"
        )
        if node.outer:
            listed = (
                f"SELECT {carried}, CASE WHEN len(__items) > 0 THEN __items ELSE [NULL] END AS __items, "
                f"len(__items) > 0 AS __some FROM ({listed})"
            )
            position = "unnest(CASE WHEN __some THEN range(1, len(__items) + 1) ELSE [NULL] END)"
        else:
            position = "unnest(range(1, len(__items) + 1))"
        each_row = f"SELECT {carried}, unnest(__items) AS __element, {position} AS __position FROM ({listed})"
        outputs = [f"{part} AS {physical_name(width + at)}" for at, part in enumerate(parts)]
        return f"SELECT {', '.join([*_columns(width), *outputs, *hidden])} FROM ({each_row})"

    # --- time -------------------------------------------------------------------------------------

    def milliseconds(self, text: str, of: DataType, zone: str | None = None) -> str:
        """Return a timestamp as milliseconds of its wall clock.

        For TIMESTAMP_LTZ that is the wall clock in `zone`, or the instant if none is given.
        """
        assert isinstance(of, TimestampType), of
        if of.local_zone and zone is not None:
            text = Writer("DuckDB", (), RenderContext(zone=zone)).local(text)
        micros = f"epoch_us({text})"
        return f"(({micros} - (({micros} % 1000) + 1000) % 1000) // 1000)"

    def window_ends(self, window: SlicedWindow, at: str) -> str:
        """Return the list of the ends of the windows that contain the instant `at` (ms)."""
        end = f"({_floor(at, window.slice_ms, window.offset_ms)} + {window.slice_ms})"
        match window:
            case Tumble():
                return f"[{end}]"
            case Hop():
                last = f"({end} + {window.size_ms - window.slice_ms})"
                if window.is_whole_slides:
                    return f"generate_series({end}, {last}, {window.slide_ms})"
                # The first window end that is not before the end of the slice.
                aligned = _floor(f"({end} - 1)", window.slide_ms, window.size_ms + window.offset_ms)
                return f"generate_series({aligned} + {window.slide_ms}, {last}, {window.slide_ms})"
            case Cumulate():
                last = f"({_floor(at, window.size_ms, window.offset_ms)} + {window.size_ms})"
                return f"generate_series({end}, {last}, {window.step_ms})"

    def window_start(self, window: SlicedWindow, end: str) -> str:
        """Return the start (ms) of the window with the given end."""
        if isinstance(window, Cumulate):
            return _floor(f"({end} - 1)", window.size_ms, window.offset_ms)
        return f"({end} - {window.size_ms})"

    def window_columns(self, node: WindowTableFunction | WindowAggregate, first: int) -> list[str]:
        """Return window_start, window_end and window_time as columns from position `first`.

        They are computed from `__start` and `__end` in local milliseconds.
        """
        of = node.input.schema[node.time_column].type
        assert isinstance(of, TimestampType), of
        last = "(__end - 1)" if of.precision >= 3 else _floor("(__end - 1)", 10 ** (3 - of.precision), 0)
        time = f"make_timestamp({last} * 1000)"
        if of.local_zone and node.zone is not None:
            writer = Writer("DuckDB", (), RenderContext(zone=node.zone))
            later = writer.instant(time)
            # For a wall clock time that occurs twice, Flink takes the first instant and DuckDB the
            # second.
            earlier = f"({later} - to_minutes(60))"
            time = f"CASE WHEN {writer.local(earlier)} = {time} THEN {earlier} ELSE {later} END"
        return [
            f"make_timestamp(__start * 1000) AS {physical_name(first)}",
            f"make_timestamp(__end * 1000) AS {physical_name(first + 1)}",
            f"{time} AS {physical_name(first + 2)}",
        ]

    def assign_windows(self, below: str, node: WindowTableFunction, hidden: Sequence[str] = ()) -> str:
        """Repeat each row for every window it is in, with its hidden columns.

        The window is not a SESSION window.
        """
        assert isinstance(node.window, Tumble | Hop | Cumulate)
        width = len(node.input.schema)
        carried = ", ".join([*_columns(width), *hidden])
        at = self.milliseconds(physical_name(node.time_column), node.input.schema[node.time_column].type, node.zone)
        ended = (
            f"SELECT {carried}, unnest({self.window_ends(node.window, '__at')}) AS __end "
            f"FROM (SELECT {carried}, {at} AS __at FROM ({below}))"
        )
        bounded = f"SELECT *, {self.window_start(node.window, '__end')} AS __start FROM ({ended})"
        outputs = [*_columns(width), *self.window_columns(node, width), *hidden]
        return f"SELECT {', '.join(outputs)} FROM ({bounded})"


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast to a schema with the same names; a column that has its type is not cast."""
    if table.schema.equals(schema):
        return table
    pairs = zip(table.columns, schema.types, strict=True)
    columns = [column if column.type.equals(of) else column.cast(of) for column, of in pairs]
    return pa.table(columns, schema=schema)


def physical_names(schema: Schema) -> list[str]:
    """Return the physical column names `c0, c1, …`."""
    return _columns(len(schema))


def _columns(width: int) -> list[str]:
    return [physical_name(at) for at in range(width)]


def _floor(at: str, width: int, offset: int) -> str:
    """Return the last multiple of the width, shifted by the offset, that is not after `at`.

    DuckDB's remainder has the sign of its dividend.
    """
    past = f"({at} - {offset % width})"
    return f"({at} - (({past} % {width}) + {width}) % {width})"


def _is_stored_as(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type has the values of the other one, stored alike."""
    return bool(
        found == wanted
        or (pa.types.is_large_string(found) and pa.types.is_string(wanted))
        or (pa.types.is_large_binary(found) and pa.types.is_binary(wanted))
    )


def _holds_instants(of: DataType) -> bool:
    match of:
        case TimestampType():
            return of.local_zone
        case ArrayType():
            return _holds_instants(of.element)
        case MapType():
            return _holds_instants(of.key) or _holds_instants(of.value)
        case RowType():
            return any(_holds_instants(each.type) for each in of.fields)
        case _:
            return False


def connect() -> duckdb.DuckDBPyConnection:
    """Return a new connection to the database of this process, in UTC."""
    connection = _open_database().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@lru_cache(maxsize=1)
def _open_database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process, which has no tables and runs on one thread.

    Opening a database costs more than most batches of a test.
    """
    return duckdb.connect(":memory:", config={"threads": 1})


def _first_line(error: duckdb.Error) -> str:
    """Return the first line of a message, without the name of its kind."""
    return str(error).splitlines()[0].partition(" Error: ")[2]
