"""Format `json`: one JSON object per record.

Decoding follows Flink 2.3's parser. A missing field is NULL unless `fail-on-missing-field` is set.
Numbers may be written as strings. Unreadable data fails the job; with `ignore-parse-errors` an
unreadable field is NULL, and a record that is not JSON is skipped. A record that is an array has a
row per element; if an element is not an object, the entire record is unreadable. (With
`ignore-parse-errors` Flink emits some of the other elements, depending on its parser.) Characters
after the object are ignored. Of a repeated field the last value is used. (Flink loses other fields
in this case.) An object or array in a STRING column is kept as written. A string of more than
20,000,000 characters makes a record unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Self

from everfold.connectors.formats.format import DecodeBlock, Format, NoteFlaw, RecordColumn
from everfold.connectors.formats.json_columns import MAX_CHARACTERS, JsonBlocks, are_decodable
from everfold.connectors.formats.text_decode import BadValue, TextRules, converter, excerpt
from everfold.connectors.formats.text_encode import map_values, string_encoder, to_strings
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
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

_SPECIAL = r'[\x00-\x1f"\\]'
"""Characters that are escaped in strings."""
_SURROGATE = re.compile("[\ud800-\udfff]")
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

    def skips_empty(self, columns: Sequence[RecordColumn]) -> bool:
        """Return True."""
        return True

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Refuse a MAP whose keys are not STRING: JSON has no other keys."""
        for column in columns:
            check_json_field(table, column.type, column.name)

    # -- decoding ----------------------------------------------------------------------------------

    def block_decoder(self, columns: Sequence[RecordColumn], needed: Sequence[RecordColumn]) -> DecodeBlock | None:
        """Return a function that decodes many records, None if a column needs another decoder."""
        if not are_decodable(columns):
            return None
        return JsonBlocks(columns, self.rules, self.fail_on_missing)

    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its rows: one, unless the record is an array."""
        read = self.object_reader(columns, note=note)

        def decode(record: bytes) -> Iterator[list[object]]:
            for row, written in objects_of(record):
                yield read(row, written)

        return refuse_deep_nesting(decode)

    def object_reader(
        self, columns: Sequence[RecordColumn], *, shape: bool = False, note: NoteFlaw | None = None
    ) -> ObjectReader:
        """Return a function from an object, parsed and as written, to the values of its row.

        The function raises BadValue. shape: return strings for everything that is not an ARRAY, MAP
        or ROW. note: as for `decoder`.
        """
        refuse = self.refuse(note)
        readers, others = _readers(((column.name, column.type) for column in columns), self.rules, "", refuse, shape)
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
            if len(written) > MAX_CHARACTERS:
                _refuse_long_strings(values)
            return [read(value) for value, read in zip(values, readers.values(), strict=True)]

        return read_object

    def reader_of_row(
        self, columns: Sequence[RecordColumn], path: str, note: NoteFlaw | None = None
    ) -> Callable[[Mapping[str, object]], list[object]]:
        """Return a function from a parsed object at `path` to a row, which raises BadValue."""
        refuse = self.refuse(note)
        fields = [(column.name, _reader(column.type, self.rules, path + column.name, refuse)) for column in columns]
        return lambda row: [read(row.get(name)) for name, read in fields]

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


FORMAT = JsonFormat


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
    """Raise BadValue for a string that is too long."""
    match value:
        case str() if len(value) > MAX_CHARACTERS:
            raise BadValue(f"it has a string of {len(value):,} characters: at most {MAX_CHARACTERS:,} are allowed")
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
    of: DataType, rules: TextRules, path: str, refuse: NoteFlaw, *, shape: bool = False
) -> Callable[[object], object]:
    """Return a function from a parsed value to a value that Arrow accepts.

    An invalid value is None, if `refuse` does not raise. shape: check only whether values are an
    ARRAY, MAP or ROW, and return strings for the others.
    """
    inner = _strict_reader(of, rules, path, refuse, shape)

    def read(value: object) -> object:
        if value is None:
            return None
        try:
            return inner(value)
        except BadValue as wrong:
            refuse(wrong)
        except (ValueError, OverflowError):
            shown = value if isinstance(value, str) else _kind(value)
            refuse(BadValue(f"field `{path}` is not {with_article(of)}: `{excerpt(shown)}`", path))
        return None

    return read


_Readers = dict[str, Callable[[object], object]]


def _readers(
    fields: Iterable[tuple[str, DataType]], rules: TextRules, path: str, refuse: NoteFlaw, shape: bool
) -> tuple[_Readers, _Readers]:
    """Return the readers of an object's members, and those of its overridden repeated members.

    The latter check only the shape.
    """
    fields = list(fields)
    readers = {name: _reader(of, rules, path + name, refuse, shape=shape) for name, of in fields}
    if shape:
        return readers, readers
    return readers, {name: _reader(of, rules, path + name, refuse, shape=True) for name, of in fields}


def _strict_reader(
    of: DataType, rules: TextRules, path: str, refuse: NoteFlaw, shape: bool
) -> Callable[[object], object]:
    match of:
        case ArrayType():
            element = _reader(of.element, rules, path + "[]", refuse, shape=shape)

            def array(value: object) -> object:
                if not isinstance(value, list):
                    raise ValueError
                return [element(each) for each in value]

            return array
        case MapType():
            entries, others = _readers([("{}", of.value)], rules, path, refuse, shape)

            def mapping(value: object) -> object:
                if not isinstance(value, dict):
                    raise ValueError
                if isinstance(value, _Repeating):
                    _check_overridden(value, dict.fromkeys(value, others["{}"]))
                members = {_SURROGATE.sub("?", key): entries["{}"](each) for key, each in value.items()}
                return list(members.items())

            return mapping
        case RowType():
            parts, others = _readers(((each.name, each.type) for each in of.fields), rules, path + ".", refuse, shape)

            def row(value: object) -> object:
                if not isinstance(value, dict):
                    raise ValueError
                _check_overridden(value, others)
                return {name: read(value.get(name)) for name, read in parts.items()}

            return row
        case _ if shape and not isinstance(of, StringType):
            return text_of
        case StringType():
            return lambda value: _SURROGATE.sub("?", text_of(value))  # a lone surrogate, as in Java
        case _:
            convert = converter(of, rules)

            def scalar(value: object) -> object:
                return convert(text_of(value))

            return scalar


def text_of(value: object) -> str:
    """Return a parsed value as a STRING: a string itself, others as written."""
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
