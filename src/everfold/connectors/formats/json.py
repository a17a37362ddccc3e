"""Format `json`: one JSON object per record.

Decoding follows Flink 2.3's parser. A missing field is NULL unless `fail-on-missing-field` is set.
Numbers may be written as strings. Unreadable data fails the job; with `ignore-parse-errors` an
unreadable field is NULL, and a record that is not JSON is skipped. A record that is an array has a
row per element; if an element is not an object, the entire record is unreadable. (With
`ignore-parse-errors` Flink emits some of the other elements, depending on its parser.) Characters
after the object are ignored. Of a repeated field the last value is used. (Flink loses other fields
in this case.) An object or array in a STRING column is kept as written. A string of more than
20,000,000 characters makes a record unreadable.

Spark decodes differently from `decoder` in two rare cases. In records from topics, records of
changes and with `ignore-parse-errors`, an object or array in a STRING column loses its spaces. In
files without `ignore-parse-errors`, an overlong UTF-8 sequence (`C0 80`) or one beyond U+10FFFF is
read as another character: Spark's JSON source does not detect it, and reading lines of text instead
takes twice the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Self

from everfold.connectors.formats.format import BAD, Format, RecordColumn, RecordLocation, SparkReader
from everfold.connectors.formats.json_exact import NUMBER_MARK, may_differ, protect, quote_numbers, restore, unmark
from everfold.connectors.formats.nested import rewrite_scalars
from everfold.connectors.formats.text_decode import BadValue, TextRules, convert_sql, converter, excerpt
from everfold.connectors.formats.text_encode import map_values, string_encoder, to_strings
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.engine_literals import spark_identifier, spark_string
from everfold.plan.nodes import Table
from everfold.plan.record_types import check_json_field
from everfold.types import (
    ArrayType,
    BooleanType,
    DataType,
    FloatingType,
    IntervalType,
    MapType,
    NumericType,
    RowType,
    StringType,
    physical_name,
    with_article,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MAX_CHARACTERS = 20_000_000
"""A longer string makes a record unreadable.

Spark's parser would need several times its size in memory.
"""
_SPECIAL = r'[\x00-\x1f"\\]'
"""Characters that are escaped in strings."""
_PARSER_OPTIONS = {
    "maxStringLen": str(_MAX_CHARACTERS),
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": BAD,
    "allowUnquotedControlChars": "true",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
_OPTIONS = f"map({', '.join(f'{spark_string(key)}, {spark_string(value)}' for key, value in _PARSER_OPTIONS.items())})"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = spark_string(" \t\r\n")
SESSION = {"spark.sql.variant.allowDuplicateKeys": "true", "spark.sql.mapKeyDedupPolicy": "LAST_WIN"}
"""Spark settings required for decoding: of a repeated member the last one is used."""
_OBJECT = "__object"
"""Column of a frame during parsing: an object as a string."""
ObjectReader = Callable[[Mapping[str, object], str], list[object]]

_NO_NULL_KEYS = "has no meaning here: a MAP has no NULL keys"
OPTIONS = OptionSet(
    (
        Option("fail-on-missing-field", "bool", "false", meaning="fail if a record lacks a field"),
        Option("ignore-parse-errors", "bool", "false", meaning="skip and count unreadable records instead of failing"),
        Option("timestamp-format.standard", ("SQL", "ISO-8601"), "SQL", meaning="format of timestamps"),
        Option("map-null-key.mode", ("FAIL", "DROP", "LITERAL"), "FAIL", note=_NO_NULL_KEYS),
        Option("map-null-key.literal", "string", "null", note=_NO_NULL_KEYS),
        Option("encode.decimal-as-plain-number", "bool", "false", meaning="write decimals without an exponent"),
        Option("encode.ignore-null-fields", "bool", "false", meaning="do not write fields that are NULL"),
        Option("decode.json-parser.enabled", "bool", "true", note="has no meaning here: there is one parser"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JsonFormat(Format):
    """JSON with a table's options."""

    fail_on_missing: bool = False
    iso: bool = False
    ignore_nulls: bool = False

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        found = replace(cls.of_values(options, prefix), fail_on_missing=options.flag(f"{prefix}fail-on-missing-field"))
        if found.ignore_errors and found.fail_on_missing:
            message = f"`{prefix}fail-on-missing-field` and `{prefix}ignore-parse-errors` cannot both be true"
            raise wrong_option_error(table, f"{prefix}fail-on-missing-field", message)
        return found

    @classmethod
    def of_values(cls, options: OptionValues, prefix: str) -> Self:
        """Return the format of values by the options `<prefix>…`, also of another format."""
        return cls(
            ignore_errors=options.flag(f"{prefix}ignore-parse-errors"),
            ignore_option=f"{prefix}ignore-parse-errors",
            iso=options.string(f"{prefix}timestamp-format.standard") == "ISO-8601",
            ignore_nulls=options.flag(f"{prefix}encode.ignore-null-fields"),
        )

    @property
    def rules(self) -> TextRules:
        """The syntax of values."""
        return TextRules(separator="T" if self.iso else " ", minutes=self.iso, fractions=True)

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Refuse a MAP whose keys are not STRING: JSON has no other keys."""
        for column in columns:
            check_json_field(table, column.type, column.name)

    # -- decoding in Catalyst ----------------------------------------------------------------------

    def reader(self, columns: Sequence[RecordColumn]) -> SparkReader | None:
        """Return Spark's JSON source, unless options need more than it reports.

        It does not report whether a field is missing, nor the content of a record that it cannot
        read in full.
        """
        if self.fail_on_missing or self.ignore_errors:
            return None
        return SparkReader("json", _PARSER_OPTIONS, _text_schema(columns))

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parse a column of objects or arrays of objects."""
        own = [spark_identifier(name) for name in frame.columns]
        text = strip_byte_order_mark(f"CAST({raw} AS STRING)")
        frame = frame.selectExpr(*own, f"explode({_objects(text)}) AS {_OBJECT}")
        return self.object_from_text(frame, columns, _OBJECT, keep_empty=keep_empty).drop(_OBJECT)

    def object_from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Parse a column of objects, ignoring a byte order mark."""
        text = f"CAST({raw} AS STRING)"
        clean = strip_byte_order_mark(text)
        whole = [f"is_valid_utf8({text})", f"startswith(ltrim({_SPACE}, {clean}), '{{')"]
        own = [spark_identifier(name) for name in frame.columns]
        # The barriers keep Catalyst from parsing again for every column and filter above.
        frame = frame.selectExpr("*", f"{self._parse(clean, columns)} AS __record", "spark_partition_id() AS __barrier")
        frame = frame.where("__barrier >= 0").selectExpr(
            *own, "__record", f"{self._parse_exactly(clean, columns)} AS __exact", "spark_partition_id() AS __barrier"
        )
        missing = ""
        if self.fail_on_missing:
            keys = ", ".join(spark_string(column.name) for column in columns)
            missing = f" OR size(array_except(array({keys}), json_object_keys({clean}))) > 0"
        bad = f"IF(__record.{BAD} IS NOT NULL OR NOT ({' AND '.join(whole)}){missing}, {text}, NULL)"
        fields = [f"{self._field(column, clean)} AS {spark_identifier(column.name)}" for column in columns]
        some = f"coalesce(ltrim({_SPACE}, {clean}), '') <> ''"
        if keep_empty:
            bad = f"IF({some}, {bad}, NULL)"
        frame = frame.where("__barrier >= 0" if keep_empty else f"__barrier >= 0 AND {some}").selectExpr(
            *own, *(fields or ["__record.__none"]), f"{bad} AS {BAD}", "spark_partition_id() AS __barrier"
        )
        return frame.where("__barrier >= 0").drop("__barrier")

    def _parse(self, text: str, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: the fields of an object, all as strings."""
        return f"from_json({text}, {spark_string(_text_schema(columns))}, {_OPTIONS})"

    def _parse_exactly(self, text: str, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: as `_parse`, with quoted numbers, NULL if that makes no difference."""
        fields = ((f"__record.{spark_identifier(column.name)}", column.type) for column in columns)
        tests = [test for field, of in fields if (test := may_differ(field, of, text))]
        some = " OR ".join([f"contains({text}, {spark_string(NUMBER_MARK)})", *tests])
        return f"IF({some}, {self._parse(quote_numbers(text), columns)}, NULL)"

    def _field(self, column: RecordColumn, record: str) -> str:
        """Return Spark SQL: a field of a parsed record, as written.

        With `ignore-parse-errors` the readable elements of a collection are kept.
        """
        name = spark_identifier(column.name)
        field = f"IF(__exact IS NULL, __record.{name}, {unmark(f'__exact.{name}', column.type)})"
        if not self.ignore_errors or _string_type(column.type) == "STRING":
            return field
        path = spark_string("$" + member_path(column.name))
        variant = f"try_variant_get(try_parse_json({protect(quote_numbers(record))}), {path}, 'variant')"
        return f"IF(__record.{BAD} IS NULL, {field}, {_text_of_variant(variant, column.type)})"

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Return Spark SQL: whether the record is blank."""
        return f"trim(CAST({raw} AS STRING)) = ''"

    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Return Spark SQL for the value of a column from its string(s) `field`."""

        def convert(text: str, of: DataType, path: str) -> str:
            return self.convert_or_raise(text, of, self.rules, path, location)

        return rewrite_scalars(field, column.type, convert, column.name, last_entries=True)

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Return Spark SQL: whether a field is invalid for its type, None if none can be."""
        return _invalid_sql(field, column.type, self.rules)

    def is_unreadable(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: whether a record is not a JSON object or not UTF-8.

        A record whose ARRAY, MAP or ROW has another shape is read without that field.
        """
        texts = [column for column in columns if _string_type(column.type) == "STRING"]
        if len(texts) == len(columns):
            return f"{BAD} IS NOT NULL"
        flat = ", ".join(f"{spark_identifier(column.name)} STRING" for column in texts) or "`__none` STRING"
        parsed = f"from_json({BAD}, {spark_string(flat + ', ' + BAD + ' STRING')}, {_OPTIONS}).{BAD}"
        object_ = f"is_valid_utf8({BAD}) AND startswith(ltrim({_SPACE}, {BAD}), '{{')"
        return f"({BAD} IS NOT NULL AND ({parsed} IS NOT NULL OR NOT ({object_})))"

    # -- encoding ----------------------------------------------------------------------------------

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return an object for each row."""
        return self.objects(rows, columns).to_arrow()

    def objects(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pl.Series:
        """Return an object for each row, as a string."""
        import polars as pl

        members: list[pl.Expr] = []
        for column in columns:
            name = pl.lit(f",{_dump(column.name)}:")
            value = _to_json(rows.column(physical_name(column.position)), column.type, self)
            if self.ignore_nulls:
                members.append(pl.concat_str(name, pl.lit(value)).fill_null(""))
            else:
                members += [name, pl.lit(value).fill_null("null")]
        written = pl.concat_str(*members, pl.repeat("", rows.num_rows)).str.slice(1)  # without the first comma
        return pl.select(pl.concat_str(pl.lit("{"), written, pl.lit("}"))).to_series()

    # -- decoding in Python ------------------------------------------------------------------------

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows: one, unless the record is an array."""
        read = self.object_reader(columns)

        def decode(record: bytes) -> Iterator[list[object]]:
            for row, written in objects_of(record):
                yield read(row, written)

        return refuse_deep_nesting(decode)

    def object_reader(self, columns: Sequence[RecordColumn], *, shape: bool = False) -> ObjectReader:
        """Return a function from an object, parsed and as written, to the values of its row.

        The function raises BadValue. shape: return strings for everything that is not an ARRAY, MAP
        or ROW.
        """
        readers, others = _readers(((column.name, column.type) for column in columns), self.rules, "", self, shape)
        plain = [column.name for column in columns if isinstance(column.type, StringType)]

        def read_object(row: Mapping[str, object], written: str) -> list[object]:
            _check_overridden(row, others)
            if self.fail_on_missing:
                for name in readers:
                    if name not in row:
                        raise BadValue(f"field `{name}` is missing", name)
            if any(isinstance(row.get(name), list | dict) for name in plain):
                row = {**row, **_members_as_written(written, plain)}
            values = [row.get(name) for name in readers]
            if len(written) > _MAX_CHARACTERS:
                _refuse_long_strings(values)
            return [read(value) for value, read in zip(values, readers.values(), strict=True)]

        return read_object

    def reader_of_row(
        self, columns: Sequence[RecordColumn], path: str
    ) -> Callable[[Mapping[str, object]], list[object]]:
        """Return a function from a parsed object at `path` to a row, which raises BadValue."""
        fields = [(column.name, _reader(column.type, self.rules, path + column.name, self)) for column in columns]
        return lambda row: [read(row.get(name)) for name, read in fields]


FORMAT = JsonFormat


def strip_byte_order_mark(text: str) -> str:
    """Return Spark SQL: a string without a byte order mark."""
    return f"IF(startswith({text}, '\\uFEFF'), substring({text}, 2), {text})"


def _text_of_variant(value: str, of: DataType, depth: int = 0) -> str:
    """Return Spark SQL: a VARIANT as the type of `_string_type`, NULL where its shape differs."""
    item = f"v{depth}"
    match of:
        case ArrayType():
            inner = _text_of_variant(item, of.element, depth + 1)
            return f"transform(try_cast({value} AS ARRAY<VARIANT>), {item} -> {inner})"
        case MapType():
            inner = _text_of_variant(item, of.value, depth + 1)
            return f"transform_values(try_cast({value} AS MAP<STRING, VARIANT>), (k{depth}, {item}) -> {inner})"
        case RowType():
            members = (
                (part, f"try_variant_get({item}, {spark_string('$' + member_path(part.name))}, 'variant')")
                for part in of.fields
            )
            parts = ", ".join(
                f"{spark_string(part.name)}, {_text_of_variant(found, part.type, depth + 1)}" for part, found in members
            )
            struct = f"IF(try_cast({item} AS MAP<STRING, VARIANT>) IS NULL, NULL, named_struct({parts}))"
            return f"get(transform(array({value}), {item} -> {struct}), 0)"  # evaluates `value` once
        case _:
            return unmark(restore(f"try_cast({value} AS STRING)"), of)


def _objects(text: str) -> str:
    """Return Spark SQL: the objects of a record, as an array of strings.

    A record that is not an array of objects is the only element. Numbers in an array are quoted.
    """
    parsed = f"try_parse_json({protect(quote_numbers(text))})"
    elements = f"transform(try_cast({parsed} AS ARRAY<VARIANT>), x -> to_json(x))"
    objects = f"IF(forall({elements}, x -> startswith(x, '{{')), transform({elements}, x -> {restore('x')}), NULL)"
    is_array = f"is_valid_utf8({text}) AND startswith(ltrim({_SPACE}, {text}), '[')"
    return f"coalesce(IF({is_array}, {objects}, NULL), array({text}))"


def member_path(name: str) -> str:
    """Return the JSON path step for a member of an object."""
    return '["' + name.replace('"', '\\"') + '"]'


@cache
def _scanner() -> json.JSONDecoder:
    """Return a decoder that keeps numbers as written."""
    return json.JSONDecoder(
        object_pairs_hook=_build_object,
        parse_float=_Number,
        parse_int=_Number,
        parse_constant=_refuse_constant,
        strict=False,
    )


def objects_of(record: bytes) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the objects of a record, parsed and as written. Raises BadValue."""
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as wrong:
        raise BadValue(f"it is not UTF-8: byte {wrong.start + 1} is 0x{record[wrong.start]:02x}") from None
    text = text.removeprefix("\ufeff").strip(" \t\r\n")
    if not text:
        return
    try:
        value, _ = _scanner().raw_decode(text)
    except ValueError as wrong:
        raise BadValue(f"it is not JSON: {_describe_error(wrong)}") from None
    for row, written in _elements(text) if isinstance(value, list) else [(value, text)]:
        if not isinstance(row, dict):
            raise BadValue(f"it is {_kind(row)}, not an object")
        yield row, written


def refuse_deep_nesting(
    decode: Callable[[bytes], Iterator[list[object]]],
) -> Callable[[bytes], Iterator[list[object]]]:
    """Wrap `decode` to raise BadValue for a record nested deeper than Python's stack allows."""

    def decode_checked(record: bytes) -> Iterator[list[object]]:
        try:
            yield from decode(record)
        except RecursionError:
            raise BadValue("it is nested too deeply") from None

    return decode_checked


def _refuse_long_strings(value: object) -> None:
    """Raise BadValue for a string that Spark's parser would refuse."""
    match value:
        case str() if len(value) > _MAX_CHARACTERS:
            raise BadValue(f"it has a string of {len(value):,} characters: at most {_MAX_CHARACTERS:,} are allowed")
        case list():
            for each in value:
                _refuse_long_strings(each)
        case dict():
            for each in value.values():
                _refuse_long_strings(each)


def _elements(text: str) -> Iterator[tuple[object, str]]:
    """Yield the elements of the valid JSON array `text`, parsed and as written."""
    scan = _scanner()
    at = _match_end(r"\[\s*", text, 0)
    while text[at] != "]":
        value, end = scan.raw_decode(text, at)
        yield value, text[at:end]
        at = _match_end(r"[\s,]*", text, end)


def _members_as_written(text: str, names: Sequence[str]) -> dict[str, str]:
    """Return the objects and arrays in the valid JSON object `text`, as written."""
    scan = _scanner()
    found: dict[str, str] = {}
    at = 1
    while True:
        start = text.index('"', at)
        name, at = json.decoder.scanstring(text, start + 1, False)  # type: ignore[attr-defined]
        start = at = _match_end(r"[\s:]*", text, at)
        value, at = scan.raw_decode(text, start)
        if name in names:
            found.pop(name, None)
            if isinstance(value, list | dict):
                found[name] = text[start:at]
        if text[_match_end(r"\s*", text, at)] == "}":
            return found
        at += 1


def _match_end(pattern: str, text: str, at: int) -> int:
    """Return the end of the match of a pattern, which may be empty."""
    found = re.compile(pattern).match(text, at)
    assert found is not None, pattern
    return found.end()


# --- encoding -------------------------------------------------------------------------------------


def _to_json(values: pa.ChunkedArray, of: DataType, form: JsonFormat) -> pl.Series:
    """Convert a column to JSON; NULL stays NULL."""
    match of:
        case ArrayType() | MapType() | RowType() | FloatingType():
            return map_values(values, _writer(of, form))
        case BooleanType() | NumericType() | IntervalType():
            return to_strings(values, of)
        case _:
            return _quote(to_strings(values, of, iso=form.iso))


def _quote(texts: pl.Series) -> pl.Series:
    """Convert strings to JSON."""
    import polars as pl

    quoted = '"' + texts + '"'
    special = texts.str.contains(_SPECIAL).fill_null(value=False)
    if special.any():
        escaped = [json.dumps(each, ensure_ascii=False) for each in texts.filter(special).to_list()]
        quoted = quoted.scatter(special.arg_true(), pl.Series(escaped, dtype=pl.String))
    return quoted


def _writer(of: DataType, form: JsonFormat) -> Callable[[object], str]:
    """Return a function from an Arrow value to JSON."""
    match of:
        case ArrayType():
            element = _writer(of.element, form)
            return lambda value: "[" + ",".join(map(element, value)) + "]" if isinstance(value, list) else "null"
        case MapType():
            entry = _writer(of.value, form)

            def mapping(value: object) -> str:
                if not isinstance(value, list):
                    return "null"
                return "{" + ",".join(f"{_dump(key)}:{entry(each)}" for key, each in value) + "}"

            return mapping
        case RowType():
            return _object_writer([(part.name, part.type) for part in of.fields], form)
        case _:
            text = string_encoder(of, iso=form.iso)
            bare = isinstance(of, BooleanType | NumericType | IntervalType)

            def scalar(value: object) -> str:
                if value is None:
                    return "null"
                written = text(value)
                return (
                    written
                    if bare and written not in ("NaN", "Infinity", "-Infinity")
                    else json.dumps(written, ensure_ascii=False)
                )

            return scalar


def _object_writer(fields: Sequence[tuple[str, DataType]], form: JsonFormat) -> Callable[[object], str]:
    writers = [(name, _dump(name) + ":", _writer(of, form)) for name, of in fields]

    def write(value: object) -> str:
        if not isinstance(value, dict):
            return "null"
        members = [
            key + one(value[name]) for name, key, one in writers if not (form.ignore_nulls and value[name] is None)
        ]
        return "{" + ",".join(members) + "}"

    return write


class _Number(str):
    """A number as written."""

    __slots__ = ()


class _Repeating(dict[str, object]):
    """An object with repeated members.

    others: the repeated members that are overridden by later ones.
    """

    __slots__ = ("others",)
    others: list[tuple[str, object]]


def _build_object(members: list[tuple[str, object]]) -> dict[str, object]:
    last = dict(members)
    if len(last) == len(members):
        return last
    found = _Repeating(last)
    found.others = [(name, value) for name, value in members if value is not last[name]]
    return found


def _check_overridden(value: object, readers: Mapping[str, Callable[[object], object]]) -> None:
    """Raise BadValue if an overridden repeated member has the wrong shape, as Spark does.

    A wrong shape is a value that should be an ARRAY, MAP or ROW and is not. readers: shape readers,
    by member.
    """
    if isinstance(value, _Repeating):
        for name, other in value.others:
            if name in readers:
                readers[name](other)


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")


def _describe_error(wrong: ValueError) -> str:
    if isinstance(wrong, json.JSONDecodeError):
        return f"{wrong.msg[:1].lower()}{wrong.msg[1:]} at character {wrong.pos + 1}"
    return str(wrong)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            return f"the number {excerpt(value)}"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _reader(
    of: DataType, rules: TextRules, path: str, form: JsonFormat, *, shape: bool = False
) -> Callable[[object], object]:
    """Return a function from a parsed value to a value that Arrow accepts.

    For an invalid value it raises BadValue, or returns None if errors are ignored. shape: check
    only whether values are an ARRAY, MAP or ROW, and return strings for the others.
    """
    inner = _strict_reader(of, rules, path, form, shape)

    def read(value: object) -> object:
        if value is None:
            return None
        try:
            return inner(value)
        except BadValue:
            if form.ignore_errors:
                return None
            raise
        except (ValueError, OverflowError):
            if form.ignore_errors:
                return None
            shown = value if isinstance(value, str) else _kind(value)
            raise BadValue(f"field `{path}` is not {with_article(of)}: `{excerpt(shown)}`", path) from None

    return read


_Readers = dict[str, Callable[[object], object]]


def _readers(
    fields: Iterable[tuple[str, DataType]], rules: TextRules, path: str, form: JsonFormat, shape: bool
) -> tuple[_Readers, _Readers]:
    """Return the readers of an object's members, and those of its overridden repeated members.

    The latter check only the shape.
    """
    fields = list(fields)
    readers = {name: _reader(of, rules, path + name, form, shape=shape) for name, of in fields}
    if shape:
        return readers, readers
    return readers, {name: _reader(of, rules, path + name, form, shape=True) for name, of in fields}


def _strict_reader(
    of: DataType, rules: TextRules, path: str, form: JsonFormat, shape: bool
) -> Callable[[object], object]:
    match of:
        case ArrayType():
            element = _reader(of.element, rules, path + "[]", form, shape=shape)

            def array(value: object) -> object:
                if not isinstance(value, list):
                    raise ValueError
                return [element(each) for each in value]

            return array
        case MapType():
            entries, others = _readers([("{}", of.value)], rules, path, form, shape)

            def mapping(value: object) -> object:
                if not isinstance(value, dict):
                    raise ValueError
                if isinstance(value, _Repeating):
                    _check_overridden(value, dict.fromkeys(value, others["{}"]))
                return [(key, entries["{}"](each)) for key, each in value.items()]

            return mapping
        case RowType():
            parts, others = _readers(((each.name, each.type) for each in of.fields), rules, path + ".", form, shape)

            def row(value: object) -> object:
                if not isinstance(value, dict):
                    raise ValueError
                _check_overridden(value, others)
                return {name: read(value.get(name)) for name, read in parts.items()}

            return row
        case _ if shape and not isinstance(of, StringType):
            return _text
        case StringType():
            return lambda value: _SURROGATE.sub("?", _text(value))  # a lone surrogate, as in Java
        case _:
            convert = converter(of, rules)

            def scalar(value: object) -> object:
                return convert(_text(value))

            return scalar


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return str(value)
        case _:
            return _dump(value)


def _dump(value: object) -> str:
    """Return a parsed value as JSON, its numbers as written."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _Number():
            return str(value)
        case list():
            return "[" + ",".join(map(_dump, value)) + "]"
        case dict():
            return "{" + ",".join(f"{_dump(key)}:{_dump(each)}" for key, each in value.items()) + "}"
        case _:
            return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04X}", json.dumps(value, ensure_ascii=False))


# --- schemas --------------------------------------------------------------------------------------


def _text_schema(columns: Sequence[RecordColumn]) -> str:
    """Return a Spark schema of a record with every value as a string, and `__bad`."""
    fields = [f"{spark_identifier(column.name)} {_string_type(column.type)}" for column in columns] or [
        "`__none` STRING"
    ]
    return ", ".join([*fields, f"{BAD} STRING"])


def _string_type(of: DataType) -> str:
    """Return the Spark type that corresponds to the type, with STRING for all scalars."""
    match of:
        case ArrayType():
            return f"ARRAY<{_string_type(of.element)}>"
        case MapType():
            return f"MAP<STRING, {_string_type(of.value)}>"
        case RowType():
            return (
                "STRUCT<"
                + ", ".join(f"{spark_identifier(part.name)}: {_string_type(part.type)}" for part in of.fields)
                + ">"
            )
        case _:
            return "STRING"


def _invalid_sql(text: str, of: DataType, rules: TextRules, depth: int = 0) -> str | None:
    item = f"y{depth}"
    match of:
        case StringType():
            return None
        case ArrayType() | MapType():
            inner = _invalid_sql(item, of.element if isinstance(of, ArrayType) else of.value, rules, depth + 1)
            values = text if isinstance(of, ArrayType) else f"map_values(map_from_entries(map_entries({text})))"
            return None if inner is None else f"coalesce(exists({values}, {item} -> {inner}), false)"
        case RowType():
            parts = [
                _invalid_sql(f"{text}.{spark_identifier(part.name)}", part.type, rules, depth + 1) for part in of.fields
            ]
            return " OR ".join(f"({part})" for part in parts if part) or None
        case _:
            return f"({text} IS NOT NULL AND ({convert_sql(text, of, rules)}) IS NULL)"
