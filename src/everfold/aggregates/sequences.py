"""Aggregates over the rows in their order.

FIRST_VALUE, LAST_VALUE, LISTAGG, ARRAY_AGG, COLLECT_LIST, COLLECT_SET, JSON_ARRAYAGG,
JSON_OBJECTAGG.

With retractions, all of them keep a sequence (`lists.py`). Over inserts, FIRST_VALUE and LAST_VALUE
keep one value and LISTAGG its string.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from everfold.aggregates import lists, sql_lists
from everfold.aggregates.first_n import parse_limit
from everfold.aggregates.lazy import pl
from everfold.aggregates.registry import Aggregate, Distinct, Fault, Signature, Slot, SqlArguments, aggregate
from everfold.engine_literals import duckdb_string, spark_string
from everfold.error_transport import raise_in_duckdb, raise_in_spark
from everfold.types import STRING, ArrayType, DataType, DateType, NullType, RowField, RowType, StringType, TimeType


class _Sequence(Aggregate):
    """Keeps an element of each row, or of each `present` row, in the order of the rows."""

    is_ordered = True

    @abstractmethod
    def element_type(self, of: Signature) -> DataType:
        """Return the type of the elements."""

    def element(self, columns: Sequence[pl.Expr]) -> pl.Expr:
        """Return the element of each row."""
        return columns[0]

    def present(self, of: Signature, columns: Sequence[pl.Expr]) -> pl.Expr | None:
        """Return which rows have an element, None for all."""
        return columns[0].is_not_null() if self.skips_nulls else None

    @abstractmethod
    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        """Return the result for the list of elements. A NULL list has no elements."""

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return lists.sequence_slots(self.element_type(of), of.retracting)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return lists.collect_sequence(self.element(columns), self.present(of, columns), sign)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return [lists.concat_lists(slot) for slot in slots]

    def settle(self, of: Signature, slots: Sequence[pl.Expr], whole: bool) -> Sequence[pl.Expr] | None:
        return lists.net_sequence(*slots) if of.retracting and whole else None

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return self.value(of, slots[0])


class _OneOf(_Sequence):
    """FIRST_VALUE and LAST_VALUE."""

    last: bool

    def result_type(self, of: Signature) -> DataType | None:
        return None if isinstance(of.args[0], NullType) else of.args[0].as_nullable()

    def element_type(self, of: Signature) -> DataType:
        return of.args[0]

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return super().slots(of) if of.retracting else (Slot("value", of.args[0].as_nullable()),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return super().update(of, columns, sign) if of.retracting else (self._pick(columns[0].drop_nulls()),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return super().merge(of, slots) if of.retracting else (self._pick(slots[0].drop_nulls()),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return super().result(of, slots) if of.retracting else slots[0]

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        return values.list.last() if self.last else values.list.first()

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"{sql_lists.spark_list(over)}[0]" if not self.last else sql_lists.spark_last(sql_lists.spark_list(over))

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"({sql_lists.duckdb_list(over)})[{-1 if self.last else 1}]"

    def _pick(self, column: pl.Expr) -> pl.Expr:
        return column.last() if self.last else column.first()


@aggregate("FIRST_VALUE")
class FirstValue(_OneOf):
    """First non-null value in arrival order; NULL if there is none."""

    last = False


@aggregate("LAST_VALUE")
class LastValue(_OneOf):
    """Last non-null value in arrival order; NULL if none. With DISTINCT: the last new value.

    With DISTINCT, a value counts only if it had not occurred before.
    """

    last = True


@aggregate("LISTAGG")
class ListAgg(_Sequence):
    """Non-null strings joined by a separator (`,` by default); NULL if there is none.

    The separator is a constant string.
    """

    arity = (1, 2)
    constant = 1
    default = ","
    newest_slice_first = True

    def constant_value(self, value: object) -> object | None:
        return value if isinstance(value, str) else None

    def result_type(self, of: Signature) -> DataType | None:
        return of.args[0].as_nullable() if isinstance(of.args[0], StringType) else None

    def element_type(self, of: Signature) -> DataType:
        return STRING

    def slots(self, of: Signature) -> tuple[Slot, ...]:
        return super().slots(of) if of.retracting else (Slot("text", STRING),)

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return super().update(of, columns, sign) if of.retracting else (self._join(of, columns[0]),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return super().merge(of, slots) if of.retracting else (self._join(of, slots[0]),)

    def result(self, of: Signature, slots: Sequence[pl.Expr]) -> pl.Expr:
        return super().result(of, slots) if of.retracting else slots[0]

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        return pl.when(values.list.len() > 0).then(values.list.join(self._separator(of)))

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        joined = f"array_join({sql_lists.spark_list(over)}, {spark_string(self._separator(of))})"
        return f"CASE WHEN COUNT({over.texts[0]}) > 0 THEN {joined} END"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"array_to_string({sql_lists.duckdb_list(over)}, {duckdb_string(self._separator(of))})"

    def _join(self, of: Signature, column: pl.Expr) -> pl.Expr:
        return pl.when(column.count() > 0).then(column.drop_nulls().str.join(self._separator(of)))

    @staticmethod
    def _separator(of: Signature) -> str:
        return str(of.constants[0])


@aggregate("ARRAY_AGG")
class ArrayAgg(_Sequence):
    """Array of the values in arrival order, with NULLs unless IGNORE NULLS; NULL if none."""

    skips_nulls = False
    newest_slice_first = True
    clause = "NULLS"
    default = "RESPECT"

    def result_type(self, of: Signature) -> DataType | None:
        return None if isinstance(of.args[0], NullType) else ArrayType(element=of.args[0])

    def element_type(self, of: Signature) -> DataType:
        return of.args[0]

    def present(self, of: Signature, columns: Sequence[pl.Expr]) -> pl.Expr | None:
        return columns[0].is_not_null() if of.constants == ("IGNORE",) else None

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        return pl.when(values.list.len() > 0).then(values)

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        values = sql_lists.spark_list(self._present(of, over), nulls=True)
        return f"CASE WHEN size({values}) > 0 THEN {values} END"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return sql_lists.duckdb_list(self._present(of, over), nulls=True)

    @staticmethod
    def _present(of: Signature, over: SqlArguments) -> SqlArguments:
        (text,) = over.texts
        return over if of.constants != ("IGNORE",) else over.where(f"{text} IS NOT NULL")


@aggregate("COLLECT_LIST")
class CollectList(_Sequence):
    """The first n non-null values in arrival order, all without n: `COLLECT(x, n)` of Lenses SQL.

    The result is an array.
    """

    dialect = "lenses"
    arity = (1, 2)
    constant = 1
    distinct = Distinct.REFUSED
    unique = False

    def constant_value(self, value: object) -> object | None:
        return parse_limit(value)

    def result_type(self, of: Signature) -> DataType | None:
        return None if isinstance(of.args[0], NullType) else ArrayType(element=of.args[0].as_nullable(), nullable=False)

    def element_type(self, of: Signature) -> DataType:
        return of.args[0]

    def update(self, of: Signature, columns: Sequence[pl.Expr], sign: pl.Expr | None) -> Sequence[pl.Expr]:
        return super().update(of, columns, sign) if of.retracting else (self._first(of, columns[0].drop_nulls()),)

    def merge(self, of: Signature, slots: Sequence[pl.Expr]) -> Sequence[pl.Expr]:
        return super().merge(of, slots) if of.retracting else (self._first(of, lists.explode_lists(slots[0])),)

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        found = values.list.eval(self._take(of, pl.element())) if of.retracting else values
        return found.fill_null([])

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        values = sql_lists.spark_list(replace(over, distinct=self.unique))
        return values if not of.constants else f"slice({values}, 1, {of.constants[0]})"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        found = f"coalesce({sql_lists.duckdb_list(replace(over, distinct=self.unique))}, [])"
        return found if not of.constants else f"({found})[1:{of.constants[0]}]"

    def _first(self, of: Signature, values: pl.Expr) -> pl.Expr:
        return self._take(of, values).implode()

    def _take(self, of: Signature, values: pl.Expr) -> pl.Expr:
        if self.unique:
            values = values.unique(maintain_order=True)
        return values.head(of.constants[0]) if of.constants else values  # type: ignore[arg-type]


@aggregate("COLLECT_SET")
class CollectSet(CollectList):
    """The first n distinct non-null values, all without n: `COLLECT_UNIQUE(x, n)` of Lenses SQL.

    The result is an array in arrival order.
    """

    unique = True


class _Json(_Sequence):
    """JSON_ARRAYAGG and JSON_OBJECTAGG.

    The arguments are JSON strings. The constant NULL or ABSENT specifies the treatment of NULL.
    """

    skips_nulls = False
    clause = "ON NULL"
    distinct = Distinct.REFUSED

    def result_type(self, of: Signature) -> DataType | None:
        return StringType(length=2000, nullable=False) if all(_is_json_type(arg) for arg in of.args) else None

    @staticmethod
    def keeps_nulls(of: Signature) -> bool:
        """Return whether NULL ON NULL applies."""
        return of.constants == ("NULL",)

    def present(self, of: Signature, columns: Sequence[pl.Expr]) -> pl.Expr | None:
        return None if self.keeps_nulls(of) else columns[-1].is_not_null()


@aggregate("JSON_ARRAYAGG")
class JsonArrayAgg(_Json):
    """JSON array in arrival order; `[]` if none. NULLs are omitted unless NULL ON NULL is given."""

    default = "ABSENT"
    argument_functions = ("JSON_STRING",)

    def element_type(self, of: Signature) -> DataType:
        return STRING

    def element(self, columns: Sequence[pl.Expr]) -> pl.Expr:
        return columns[0].fill_null("null")

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        return pl.format("[{}]", values.list.join(",").fill_null(""))

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"concat('[', array_join({sql_lists.spark_list(self._elements(of, over), nulls=True)}, ','), ']')"

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        return f"concat('[', array_to_string({sql_lists.duckdb_list(self._elements(of, over), nulls=True)}, ','), ']')"

    def _elements(self, of: Signature, over: SqlArguments) -> SqlArguments:
        (text,) = over.texts
        kept = over if self.keeps_nulls(of) else over.where(f"{text} IS NOT NULL")
        return replace(kept, texts=(f"coalesce({text}, 'null')",))


@aggregate("JSON_OBJECTAGG")
class JsonObjectAgg(_Json):
    """JSON object sorted by key; `{}` if none. NULL values are kept unless ABSENT ON NULL is given.

    A repeated key or a NULL key stops the job.
    """

    arity = (2, 2)
    default = "NULL"
    argument_functions = ("JSON_STRING", "JSON_STRING")

    def result_type(self, of: Signature) -> DataType | None:
        return super().result_type(of) if isinstance(of.args[0], StringType) else None

    def element_type(self, of: Signature) -> DataType:
        return RowType(fields=(RowField(name="key", type=STRING), RowField(name="value", type=STRING)))

    def element(self, columns: Sequence[pl.Expr]) -> pl.Expr:
        return pl.struct(columns[0].alias("key"), columns[1].fill_null("null").alias("value"))

    def value(self, of: Signature, values: pl.Expr) -> pl.Expr:
        # Sort by the key without its quotes, which would affect the order.
        bare = pl.element().struct.field("key").str.strip_chars('"')
        pairs = values.list.eval(pl.format("{}:{}", _field("key"), _field("value")).sort_by(bare))
        return pl.format("{{{}}}", pairs.list.join(",").fill_null(""))

    def faults(self, of: Signature, slots: Sequence[pl.Expr]) -> tuple[Fault, ...]:
        keys = slots[0].list.eval(_field("key"))
        return (
            Fault("null-key", keys.list.contains(None), _NULL_KEY),
            Fault("repeated-key", keys.list.n_unique() < keys.list.len(), _REPEATED_KEY),
        )

    def spark_sql(self, of: Signature, over: SqlArguments) -> str:
        pairs = sql_lists.spark_list(self._pairs(of, over, "struct({0} AS key, {1} AS value)"), nulls=True)
        keys = f"transform({pairs}, __p -> __p.key)"
        sorted_ = f"array_sort({pairs}, (__a, __b) -> {_SPARK_ORDER})"
        texts = f"transform({sorted_}, __p -> concat(__p.key, ':', __p.value))"
        return (
            f"CASE WHEN exists({keys}, __k -> __k IS NULL) THEN {raise_in_spark('null-key', _NULL_KEY)} "
            f"WHEN size(array_distinct({keys})) < size({keys}) THEN {raise_in_spark('repeated-key', _REPEATED_KEY)} "
            f"ELSE concat('{{', array_join({texts}, ','), '}}') END"
        )

    def duckdb_sql(self, of: Signature, over: SqlArguments) -> str:
        pairs = sql_lists.duckdb_list(
            self._pairs(of, over, "{{'bare': trim({0}, '\"'), 'key': {0}, 'value': {1}}}"), nulls=True
        )
        keys = f"list_transform({pairs}, lambda p: p.key)"
        texts = f"list_transform(list_sort({pairs}), lambda p: p.key || ':' || p.value)"
        has_null = f"len(list_filter({keys}, lambda k: k IS NULL)) > 0"
        return (
            f"CASE WHEN {has_null} THEN {raise_in_duckdb('null-key', _NULL_KEY)} "
            f"WHEN len(list_distinct({keys})) < len({keys}) THEN {raise_in_duckdb('repeated-key', _REPEATED_KEY)} "
            f"ELSE concat('{{', array_to_string({texts}, ','), '}}') END"
        )

    def _pairs(self, of: Signature, over: SqlArguments, form: str) -> SqlArguments:
        key, value = over.texts
        kept = over if self.keeps_nulls(of) else over.where(f"{value} IS NOT NULL")
        return replace(kept, texts=(form.format(key, f"coalesce({value}, 'null')"),))


_NULL_KEY = "a key of JSON_OBJECTAGG is NULL"
_REPEATED_KEY = "a key of JSON_OBJECTAGG occurs more than once"
_SPARK_ORDER = (
    """CASE WHEN trim(BOTH '"' FROM __a.key) < trim(BOTH '"' FROM __b.key) THEN -1 """
    """WHEN trim(BOTH '"' FROM __a.key) > trim(BOTH '"' FROM __b.key) THEN 1 ELSE 0 END"""
)


def _field(name: str) -> pl.Expr:
    return pl.element().struct.field(name)


def _is_json_type(of: DataType) -> bool:
    """Return whether Flink writes values of a type as JSON."""
    return not isinstance(of, NullType | DateType | TimeType)
