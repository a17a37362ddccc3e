"""Format `csv`: one record per line, fields by position, no header.

Decoding follows Flink 2.3: a record with too few or too many fields is an error, except for one
additional empty field; a quote within an unquoted field is a plain character; the null literal is
NULL even in quotes; an empty field is the empty string, and an error for other types. With
`ignore-parse-errors`, unreadable and missing fields are NULL, and a record with too many fields is
skipped. An empty line is not a record if the table has more than one field. A quoted field cannot
contain a line break in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from everfold.connectors.formats.csv_columns import CsvBlocks
from everfold.connectors.formats.csv_lines import LineJoiner, OpenQuotes
from everfold.connectors.formats.format import DecodeBlock, Format, NoteFlaw, RecordColumn
from everfold.connectors.formats.text_columns import is_convertible
from everfold.connectors.formats.text_decode import BadValue, TextRules, converter, excerpt
from everfold.connectors.formats.text_encode import map_values, string_encoder, to_strings
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.types import (
    ArrayType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    RowType,
    physical_name,
    with_article,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

OPTIONS = OptionSet(
    (
        Option("field-delimiter", "char", ",", meaning="separator of fields"),
        Option("disable-quote-character", "bool", "false", meaning="treat quotes as plain characters"),
        Option("quote-character", "char", '"', meaning="character that encloses a field"),
        Option("allow-comments", "bool", "false", meaning="ignore lines that start with #"),
        Option("ignore-parse-errors", "bool", "false", meaning="skip and count unreadable records instead of failing"),
        Option("array-element-delimiter", "string", ";", meaning="separator of the elements of an ARRAY or ROW"),
        Option("escape-character", "char", None, meaning="character that escapes the next one"),
        Option("null-literal", "string", None, meaning="string that is read and written as NULL"),
        Option("write-bigdecimal-in-scientific-notation", "bool", "true", note="has no meaning here: decimals are written plainly"),
    )
)  # fmt: skip

RULES = TextRules(time_minutes=True, loose_dates=True)
_LONG_STRING = 24
"""Longer strings are written in quotes."""
_FIELD = re.compile(r"field `(?P<name>[^`]+)` is not an? [^`]*: `(?P<value>[^`]*)`")
"""The reason of a bad record: a column, and the string that is not a value of its type."""
_ESCAPES = (("n", "\n"), ("r", "\r"), ("t", "\t"))


@dataclass(frozen=True, slots=True)
class CsvFormat(Format):
    """CSV with a table's options. quote, escape: None if disabled."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None
    element_delimiter: str = ";"
    comments: bool = False

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> Self:
        no_quotes = options.flag(f"{prefix}disable-quote-character")
        if no_quotes and f"{prefix}quote-character" in options.explicit:
            message = f"`{prefix}quote-character` has no meaning when `{prefix}disable-quote-character` is true"
            raise wrong_option_error(table, f"{prefix}quote-character", message)
        found = cls(
            ignore_errors=options.flag(f"{prefix}ignore-parse-errors"),
            ignore_option=f"{prefix}ignore-parse-errors",
            delimiter=options.string(f"{prefix}field-delimiter"),
            quote=None if no_quotes else options.string(f"{prefix}quote-character"),
            escape=options.string_or_none(f"{prefix}escape-character"),
            null_literal=options.string_or_none(f"{prefix}null-literal"),
            element_delimiter=options.string(f"{prefix}array-element-delimiter"),
            comments=options.flag(f"{prefix}allow-comments"),
        )
        special = [each for each in (found.delimiter, found.quote, found.escape) if each is not None]
        if len(set(special)) < len(special):
            raise wrong_option_error(
                table, f"{prefix}field-delimiter", "delimiter, quote and escape character of a CSV must differ"
            )
        if not found.element_delimiter:
            raise wrong_option_error(
                table, f"{prefix}array-element-delimiter", "the delimiter of array elements is empty"
            )
        return found

    @property
    def has_long_records(self) -> bool:
        """Whether fields may be in quotes."""
        return self.quote is not None

    def skips_empty(self, columns: Sequence[RecordColumn]) -> bool:
        """Return whether a record has several fields."""
        return len(columns) > 1

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Refuse MAP and nested collections, which CSV cannot represent."""
        for column in columns:
            inner: tuple[DataType, ...] = ()
            if isinstance(column.type, ArrayType):
                inner = (column.type.element,)
            elif isinstance(column.type, RowType):
                inner = tuple(part.type for part in column.type.fields)
            for part in (column.type, *inner):
                if isinstance(part, MapType) or (part is not column.type and isinstance(part, ArrayType | RowType)):
                    raise UnsupportedFeature.of(
                        "csv-type",
                        f"table `{table.name}`: CSV cannot hold column `{column.name}`,"
                        f" which is {with_article(column.type)}",
                        table.span_of(column.name),
                        "use json or parquet",
                    )

    def bad_record_error(self, where: str, reason: str, record: str, *, lasting: bool = False) -> ConnectorError:
        found = _FIELD.match(reason)
        if found is None or found["name"].casefold() != found["value"].strip().casefold():
            return Format.bad_record_error(self, where, reason, record, lasting=lasting)
        message = f"{where}: this is a header, the names of the columns\n  | {excerpt(record, 160)}"
        help_text = f"remove the line, or set '{self.ignore_option}' = 'true' to skip and count such records"
        return ConnectorError.of("bad-record", message, help=help_text)

    # -- fields ------------------------------------------------------------------------------------

    @property
    def names_fields(self) -> bool:
        """Always False: fields have positions."""
        return False

    @property
    def _plain(self) -> str:
        """A regular expression for a field that does not begin with a quote."""
        if self.escape is None:
            return f"[^{_literal(self.delimiter)}]*+"
        escape = _literal(self.escape)
        return f"(?:[^{_literal(self.delimiter)}{escape}]|{escape}[\\s\\S])*+"

    @property
    def _in_quotes(self) -> str:
        """A regular expression for what is between the quotes around a field."""
        assert self.quote is not None
        quote = _literal(self.quote)
        escape = "" if self.escape is None else _literal(self.escape)
        other = f"|{escape}[\\s\\S]" if escape else ""
        return f"[^{quote}{escape}]*+(?:(?:{quote}{quote}{other})[^{quote}{escape}]*+)*+"

    def field_pattern(self) -> str:
        """Return a regular expression for a delimiter and the field after it.

        In a well-formed record with a delimiter prepended, the fields joined by the delimiter are
        the record again.
        """
        delimiter = _literal(self.delimiter)
        ends = f"(?={delimiter}|\\Z)"
        if self.quote is None:
            return f"{delimiter}({self._plain}){ends}"
        quote = _literal(self.quote)
        return f"{delimiter}({quote}{self._in_quotes}{quote}{ends}|(?!{quote}){self._plain}{ends})"

    def line_joiner(self) -> LineJoiner | None:
        """Return what joins the lines of a file to records, None if each line is a record."""
        if self.quote is None:
            return None
        quote, delimiter = _literal(self.quote), _literal(self.delimiter)
        closed = f"{self._in_quotes}{quote}"
        dangling = "" if self.escape is None else f"{_literal(self.escape)}?"
        opened = f"(?:(?:{quote}{closed}|(?!{quote}){self._plain}){delimiter})*+{quote}{self._in_quotes}{dangling}\\Z"
        quotes = OpenQuotes(re.compile(opened), re.compile(closed), self.delimiter)
        escape = None if self.escape is None else self.escape.encode()
        return LineJoiner(quotes, _byte(self.delimiter) or 0, self.quote.encode(), escape, self.comments)

    # -- encoding ----------------------------------------------------------------------------------

    def _must_quote(self) -> str:
        """Return a regular expression for strings that are written in quotes, as in Jackson.

        These are strings with characters that may be special. Long strings are quoted too.
        """
        special = [self.delimiter, self.quote or "", self.escape or "", "\r", "\n"]
        highest = max(ord(each) for each in special if each)
        return (
            f"[\\x00-{_literal(chr(highest))}]"
            if highest < 128
            else "[" + "".join(_literal(each) for each in special if each) + "\\s#]"
        )

    def encode(self, rows: pa.Table, columns: Sequence[RecordColumn]) -> pa.Array:
        """Return a line for each row. Raises ConnectorError `csv-needs-quotes`."""
        import polars as pl

        fields = [self._write_field(rows.column(physical_name(each.position)), each.type) for each in columns]
        return pl.select(pl.concat_str(fields, separator=self.delimiter)).to_series().to_arrow()

    def _write_field(self, values: pa.ChunkedArray, of: DataType) -> pl.Series:
        nested = isinstance(of, ArrayType | RowType)
        found = map_values(values, self._text_writer(of)) if nested else to_strings(values, of)
        quoted = found if isinstance(of, BooleanType | NumericType) else self._quote(found)
        return quoted.fill_null(self.null_literal or "")

    def _quote(self, texts: pl.Series) -> pl.Series:
        """Put strings in quotes, or escape their special characters."""
        import polars as pl

        if self.quote is not None:
            special = (texts.str.len_chars() > _LONG_STRING) | texts.str.contains(self._must_quote())
            body = texts
            if self.escape is not None:
                body = body.str.replace_all(self.escape, self.escape * 2, literal=True)
            body = body.str.replace_all(self.quote, self.quote * 2, literal=True)
            return pl.select(pl.when(special).then(self.quote + body + self.quote).otherwise(texts)).to_series()
        if self.escape is not None:
            for each in (self.escape, self.delimiter):
                texts = texts.str.replace_all(each, self.escape + each, literal=True)
            for letter, means in _ESCAPES[:2]:
                texts = texts.str.replace_all(means, self.escape + letter, literal=True)
            return texts
        bare = texts.filter(texts.str.contains(f"[{_literal(self.delimiter)}\r\n]").fill_null(value=False))
        if len(bare):
            raise needs_quotes_error(bare[0])
        return texts

    def _text_writer(self, of: DataType) -> Callable[[object], str]:
        match of:
            case ArrayType(element=element):
                each = string_encoder(element)
                return lambda value: self.element_delimiter.join(
                    "" if part is None else each(part) for part in (value if isinstance(value, list) else [])
                )
            case RowType(fields=fields):
                parts = [(part.name, string_encoder(part.type)) for part in fields]
                return lambda value: self.element_delimiter.join(
                    "" if not isinstance(value, dict) or value[name] is None else one(value[name])
                    for name, one in parts
                )
            case _:
                return string_encoder(of)

    # -- decoding ----------------------------------------------------------------------------------

    def block_decoder(self, columns: Sequence[RecordColumn], needed: Sequence[RecordColumn]) -> DecodeBlock | None:
        """Return a function that decodes many records, None if a column needs another decoder."""
        delimiter, quote, escape = (_byte(each) for each in (self.delimiter, self.quote, self.escape))
        if delimiter is None or (self.quote and quote is None) or (self.escape and escape is None):
            return None
        if self.ignore_errors:
            needed = columns
        if not needed or not all(is_convertible(column.type) for column in needed):
            return None
        return CsvBlocks(columns, needed, RULES, delimiter, quote, escape, self.null_literal, self.comments)

    def decoder(
        self, columns: Sequence[RecordColumn], note: NoteFlaw | None = None
    ) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a record to its row."""
        pattern = re.compile(self.field_pattern())
        refuse = self.refuse(note)
        readers = [self._reader(column, refuse) for column in columns]

        def decode(record: bytes) -> Iterator[list[object]]:
            if self.comments and record.removeprefix(b"\xef\xbb\xbf").startswith(b"#"):
                return
            try:
                line = record.decode("utf-8").removeprefix("\ufeff")
            except UnicodeDecodeError as wrong:
                raise BadValue(f"it is not UTF-8: byte {wrong.start + 1} is 0x{record[wrong.start]:02x}") from None
            line = line.rstrip("\r\n")
            if not line and len(columns) > 1:
                return
            tokens = pattern.findall(self.delimiter + line)
            if self.delimiter.join(tokens) != line:
                raise BadValue("a quote is not closed, or characters follow it")
            if any("\n" in token and not self._is_quoted(token) for token in tokens):
                raise BadValue("it has several lines")
            if len(tokens) == len(columns) + 1 and not tokens[-1]:
                tokens.pop()
            if len(tokens) != len(columns):
                wrong_count = BadValue(f"it has {_fields(len(tokens))}, the table has {len(columns)}")
                if len(tokens) > len(columns):
                    raise wrong_count
                refuse(wrong_count)
            texts: list[str | None] = [self._field_value(token) for token in tokens]
            texts += [None] * (len(columns) - len(texts))
            yield [None if text is None else read(text) for text, read in zip(texts, readers, strict=True)]

        return decode

    def _is_quoted(self, token: str) -> bool:
        return self.quote is not None and token.startswith(self.quote)

    def _field_value(self, token: str) -> str | None:
        text = self._unescape(token)
        return None if text == self.null_literal else text

    def _unescape(self, token: str) -> str:
        in_quotes = self._is_quoted(token)
        body = token[1:-1] if in_quotes else token
        if self.escape is None:
            return body.replace(self.quote * 2, self.quote) if in_quotes and self.quote else body
        means = dict(_ESCAPES)
        pieces = re.escape(self.escape) + r"([\s\S])"
        if in_quotes and self.quote:
            pieces += "|" + re.escape(self.quote) * 2
        return re.sub(
            pieces,
            lambda found: means.get(found.group(1), found.group(1)) if found.group(1) else self.quote or "",
            body,
        )

    def _reader(self, column: RecordColumn, refuse: NoteFlaw) -> Callable[[str], object]:
        match column.type:
            case ArrayType(element=element):
                each = _scalar(element, f"{column.name}[]", refuse)
                return lambda text: [each(part) for part in text.split(self.element_delimiter)] if text else []
            case RowType(fields=fields):
                parts = [(part.name, _scalar(part.type, f"{column.name}.{part.name}", refuse)) for part in fields]

                def row(text: str) -> object:
                    values: list[str | None] = list(text.split(self.element_delimiter))
                    if len(values) != len(parts):
                        reason = f"field `{column.name}` has {_fields(len(values))}, the type {len(parts)}"
                        refuse(BadValue(reason, column.name))
                    values += [None] * (len(parts) - len(values))
                    return {
                        name: None if value is None else read(value)
                        for (name, read), value in zip(parts, values, strict=False)
                    }

                return row
            case of:
                return _scalar(of, column.name, refuse)


FORMAT = CsvFormat


def needs_quotes_error(text: str) -> ConnectorError:
    """Return the error for a string that a CSV without quotes and escapes cannot hold."""
    return ConnectorError.of(
        "csv-needs-quotes",
        "a string contains the field delimiter or a line break, and the table has no quote character:"
        f" `{excerpt(text)}`",
        help="set 'csv.escape-character', or leave out 'csv.disable-quote-character'",
    )


def _scalar(of: DataType, path: str, refuse: NoteFlaw) -> Callable[[str], object]:
    convert = converter(of, RULES)

    def read(text: str) -> object:
        try:
            return convert(text)
        except (ValueError, OverflowError):
            refuse(BadValue(f"field `{path}` is not {with_article(of)}: `{excerpt(text)}`", path))
            return None

    return read


def _byte(character: str | None) -> int | None:
    """Return the byte of an ASCII character, None for others."""
    return ord(character) if character is not None and character.isascii() else None


def _fields(count: int) -> str:
    return f"{count} field" + ("" if count == 1 else "s")


def _literal(text: str) -> str:
    """Return a string as a literal in regular expressions of Python and of Polars."""
    return "".join(
        each if each.isalnum() or each in " _" else f"\\x{ord(each):02x}" if ord(each) < 256 else each for each in text
    )
