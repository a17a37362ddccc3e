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

from everfold.connectors.formats.format import BAD, Format, RecordColumn, RecordLocation, raise_bad_record
from everfold.connectors.formats.text_decode import BadValue, TextRules, convert_sql, converter, excerpt
from everfold.connectors.formats.text_encode import map_values, string_encoder, to_strings
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option_error
from everfold.engine_literals import spark_identifier, spark_string
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.types import (
    ArrayType,
    BooleanType,
    DataType,
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
_STAND_IN = "\U0010ffff"
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

    # -- tokens ------------------------------------------------------------------------------------

    def token_pattern(self) -> str:
        """Return a regular expression (for Java and Python) for a delimiter and the field after it.

        In a well-formed line with a delimiter prepended, the fields joined by the delimiter are the
        line again. (Java continues one character after an empty match, so a match must not be
        empty.)
        """
        delimiter = _literal(self.delimiter)
        ends = f"(?={delimiter}|\\z)"
        escaped = "" if self.escape is None else f"|{_literal(self.escape)}[\\s\\S]"
        stop = "" if self.escape is None else _literal(self.escape)
        plain = f"(?:[^{_literal(self.delimiter)}{stop}]{escaped})*+" if escaped else f"[^{_literal(self.delimiter)}]*+"
        if self.quote is None:
            return f"{delimiter}({plain}){ends}"
        quote, not_quote = _literal(self.quote), f"[^{_literal(self.quote)}{stop}]*+"
        quoted_field = f"{quote}{not_quote}(?:(?:{quote}{quote}{escaped}){not_quote})*+{quote}"
        return f"{delimiter}({quoted_field}{ends}|(?!{quote}){plain}{ends})"

    def _tokens(self, text: str) -> str:
        """Return Spark SQL: the raw fields of a line, NULL if it is not well formed."""
        special = [each for each in (self.quote, self.escape) if each is not None]
        split = f"split({text}, {spark_string(_literal(self.delimiter))}, -1)"
        if not special:
            return split
        pattern = spark_string(self.token_pattern())
        tokens = f"regexp_extract_all(concat({spark_string(self.delimiter)}, {text}), {pattern}, 1)"
        checked = f"IF(array_join({tokens}, {spark_string(self.delimiter)}) = {text}, {tokens}, NULL)"
        none = " AND ".join(f"NOT contains({text}, {spark_string(each)})" for each in special)
        return f"CASE WHEN {none} THEN {split} ELSE {checked} END"

    def _unquote_sql(self, token: str) -> str:
        """Return Spark SQL: the string value of a raw field, without quotes and escapes."""
        text = token
        if self.quote is not None:
            inner = f"substring({token}, 2, length({token}) - 2)"
            text = (
                f"IF(startswith({token}, {spark_string(self.quote)}),"
                f" {self._unescape_sql(inner, in_quotes=True)}, {self._unescape_sql(token)})"
            )
        elif self.escape is not None:
            text = self._unescape_sql(token)
        return text if self.null_literal is None else f"nullif({text}, {spark_string(self.null_literal)})"

    def _unescape_sql(self, body: str, *, in_quotes: bool = False) -> str:
        """Return Spark SQL: a field without its escapes.

        Escaped escape characters are first replaced by a character that no string contains.
        """
        pairs: list[tuple[str, str]] = []
        if self.escape is not None:
            pairs += [
                (self.escape * 2, _STAND_IN),
                *((self.escape + letter, means) for letter, means in _ESCAPES),
                (self.escape, ""),
                (_STAND_IN, self.escape),
            ]
        if in_quotes and self.quote is not None:
            pairs.append((self.quote * 2, self.quote))
        for written, means in pairs:
            body = f"replace({body}, {spark_string(written)}, {spark_string(means)})"
        return body

    # -- decoding in Catalyst ----------------------------------------------------------------------

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """Split a line into its fields by position."""
        own = list(frame.columns)
        text = f"CAST({raw} AS STRING)"
        frame = frame.selectExpr(
            *(spark_identifier(name) for name in own),
            f"IF(startswith({text}, '\\uFEFF'), substring({text}, 2), {text}) AS __line",
        )
        if not keep_empty:
            frame = frame.where("__line <> ''" if len(columns) > 1 else "__line IS NOT NULL")
        if self.comments:
            frame = frame.where("NOT coalesce(startswith(__line, '#'), false)")
        # The barrier keeps Catalyst from splitting the line again for every filter above.
        frame = frame.selectExpr("*", f"{self._tokens('__line')} AS __tokens", "spark_partition_id() AS __barrier")
        count = len(columns)
        fits = f"(size(__tokens) = {count} OR (size(__tokens) = {count + 1} AND element_at(__tokens, -1) = ''))"
        bad = f"IF(__tokens IS NOT NULL AND is_valid_utf8(__line) AND {fits}, NULL, __line)"
        if keep_empty:
            bad = f"IF(coalesce(__line, '') = '', NULL, {bad})"
        fields = [
            f"{self._unquote_sql(f'get(__tokens, {at})')} AS {spark_identifier(column.name)}"
            for at, column in enumerate(columns)
        ]
        return frame.where("__barrier >= 0").selectExpr(
            *(spark_identifier(name) for name in own), *fields, f"{bad} AS {BAD}"
        )

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Return Spark SQL: whether a line is empty and the table has several fields."""
        return f"CAST({raw} AS STRING) = ''" if len(columns) > 1 else "false"

    def value(self, column: RecordColumn, field: str, location: RecordLocation) -> str:
        """Return Spark SQL for the value of a column from its string."""
        match column.type:
            case ArrayType(element=element):
                parts = f"IF({field} = '', array(), {self._elements(field)})"
                inner = self.convert_or_raise("x", element, RULES, f"{column.name}[]", location)
                return f"IF({field} IS NULL, NULL, transform(CAST({parts} AS ARRAY<STRING>), x -> {inner}))"
            case RowType(fields=fields):
                parts = ", ".join(
                    f"{spark_string(part.name)}, "
                    + self.convert_or_raise(
                        f"get({self._elements(field)}, {at})", part.type, RULES, f"{column.name}.{part.name}", location
                    )
                    for at, part in enumerate(fields)
                )
                struct = f"named_struct({parts})"
                if not self.ignore_errors:
                    wrong = raise_bad_record(location, column.name, field)
                    struct = f"IF(size({self._elements(field)}) = {len(fields)}, {struct}, {wrong})"
                return f"IF({field} IS NULL, NULL, {struct})"
            case of:
                return self.convert_or_raise(field, of, RULES, column.name, location)

    def _elements(self, field: str) -> str:
        return f"split({field}, {spark_string(_literal(self.element_delimiter))}, -1)"

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Return Spark SQL: whether a field is invalid for its type, None if none can be."""
        match column.type:
            case StringType():
                return None
            case ArrayType(element=element):
                if isinstance(element, StringType):
                    return None
                inner = convert_sql("y", element, RULES)
                return f"coalesce({field} <> '' AND exists({self._elements(field)}, y -> ({inner}) IS NULL), false)"
            case RowType(fields=fields):
                wrong = [
                    f"({convert_sql(f'get({self._elements(field)}, {at})', part.type, RULES)}) IS NULL"
                    for at, part in enumerate(fields)
                    if not isinstance(part.type, StringType)
                ]
                return (
                    f"({field} IS NOT NULL AND ("
                    + " OR ".join([*wrong, f"size({self._elements(field)}) <> {len(fields)}"])
                    + "))"
                )
            case of:
                return f"({field} IS NOT NULL AND ({convert_sql(field, of, RULES)}) IS NULL)"

    def is_unreadable(self, columns: Sequence[RecordColumn]) -> str:
        """Return Spark SQL: whether a line is not well formed or has too many fields.

        With too few fields the others are NULL.
        """
        few = f"is_valid_utf8({BAD}) AND size({self._tokens(BAD)}) BETWEEN 0 AND {len(columns)}"
        return f"({BAD} IS NOT NULL AND NOT coalesce({few}, false))"

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

    # -- decoding in Python ------------------------------------------------------------------------

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """Return a function from a line to its row."""
        pattern = re.compile(self.token_pattern().replace("\\z", "\\Z"))
        readers = [self._reader(column) for column in columns]

        def decode(record: bytes) -> Iterator[list[object]]:
            if self.comments and record.removeprefix(b"\xef\xbb\xbf").startswith(b"#"):
                return
            try:
                line = record.decode("utf-8").removeprefix("\ufeff")
            except UnicodeDecodeError as wrong:
                raise BadValue(f"it is not UTF-8: byte {wrong.start + 1} is 0x{record[wrong.start]:02x}") from None
            if not line and len(columns) > 1:
                return
            tokens = pattern.findall(self.delimiter + line)
            if self.delimiter.join(tokens) != line:
                raise BadValue("a quote is not closed, or characters follow it")
            if len(tokens) == len(columns) + 1 and not tokens[-1]:
                tokens.pop()
            if len(tokens) > len(columns) or (len(tokens) < len(columns) and not self.ignore_errors):
                raise BadValue(f"it has {_fields(len(tokens))}, the table has {len(columns)}")
            texts: list[str | None] = [self._field_value(token) for token in tokens]
            texts += [None] * (len(columns) - len(texts))
            yield [None if text is None else read(text) for text, read in zip(texts, readers, strict=True)]

        return decode

    def _field_value(self, token: str) -> str | None:
        text = self._unescape(token)
        return None if text == self.null_literal else text

    def _unescape(self, token: str) -> str:
        in_quotes = self.quote is not None and token.startswith(self.quote)
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

    def _reader(self, column: RecordColumn) -> Callable[[str], object]:
        match column.type:
            case ArrayType(element=element):
                each = self._scalar(element, f"{column.name}[]")
                return lambda text: [each(part) for part in text.split(self.element_delimiter)] if text else []
            case RowType(fields=fields):
                parts = [(part.name, self._scalar(part.type, f"{column.name}.{part.name}")) for part in fields]

                def row(text: str) -> object:
                    values: list[str | None] = list(text.split(self.element_delimiter))
                    if len(values) != len(parts) and not self.ignore_errors:
                        raise BadValue(
                            f"field `{column.name}` has {_fields(len(values))}, the type {len(parts)}", column.name
                        )
                    values += [None] * (len(parts) - len(values))
                    return {
                        name: None if value is None else read(value)
                        for (name, read), value in zip(parts, values, strict=False)
                    }

                return row
            case of:
                return self._scalar(of, column.name)

    def _scalar(self, of: DataType, path: str) -> Callable[[str], object]:
        convert = converter(of, RULES)

        def read(text: str) -> object:
            try:
                return convert(text)
            except (ValueError, OverflowError):
                if self.ignore_errors:
                    return None
                raise BadValue(f"field `{path}` is not {with_article(of)}: `{excerpt(text)}`", path) from None

        return read


FORMAT = CsvFormat


def needs_quotes_error(text: str) -> ConnectorError:
    """Return the error for a string that a CSV without quotes and escapes cannot hold."""
    return ConnectorError.of(
        "csv-needs-quotes",
        "a string contains the field delimiter or a line break, and the table has no quote character:"
        f" `{excerpt(text)}`",
        help="set 'csv.escape-character', or leave out 'csv.disable-quote-character'",
    )


def _fields(count: int) -> str:
    return f"{count} field" + ("" if count == 1 else "s")


def _literal(text: str) -> str:
    """Return a string as a literal in regular expressions of Java and of Polars."""
    return "".join(
        each if each.isalnum() or each in " _" else f"\\x{ord(each):02x}" if ord(each) < 256 else each for each in text
    )
