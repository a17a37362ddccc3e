"""Format `csv`: one line a record, fields by position, no header.

Decoding follows Flink 2.3: a record with too few or too many fields is wrong (one empty field too many is not); a quote within an
unquoted field is a plain character; the null literal is NULL also in quotes; an empty field is the empty text, and no number. With
`ignore-parse-errors` a field that cannot be read and one that is not there are NULL, and a record with too many is left out.
An empty line is no record where the table has more than one field. A quoted field cannot go over a line break in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everfold.connectors.connector_errors import trouble
from everfold.connectors.formats.format import BAD, Format, Place, RecordColumn, raise_bad
from everfold.connectors.formats.text_decode import (
    BadValue,
    TextRules,
    catalyst,
    converter,
    excerpt,
    identifier,
    quoted,
)
from everfold.connectors.formats.text_encode import sql_plain, text_of
from everfold.connectors.options import Option, OptionSet, OptionValues, wrong_option
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.plan.nodes import Table
from everfold.types import (
    ArrayType,
    BooleanType,
    BytesType,
    DataType,
    DateType,
    MapType,
    NumericType,
    RowType,
    StringType,
    TimestampType,
    TimeType,
    article,
    physical,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPTIONS = OptionSet(
    (
        Option("field-delimiter", "char", ",", meaning="what stands between fields"),
        Option("disable-quote-character", "bool", "false", meaning="whether quotes are plain characters"),
        Option("quote-character", "char", '"', meaning="what encloses a field"),
        Option("allow-comments", "bool", "false", meaning="whether lines that begin with # are left out"),
        Option(
            "ignore-parse-errors", "bool", "false", meaning="whether to go on, and count, when a record cannot be read"
        ),
        Option("array-element-delimiter", "string", ";", meaning="what stands between the elements of an ARRAY or ROW"),
        Option("escape-character", "char", None, meaning="what makes the next character plain"),
        Option("null-literal", "string", None, meaning="the text that is NULL"),
        Option(
            "write-bigdecimal-in-scientific-notation",
            "bool",
            "true",
            note="has no meaning here: decimals are written plainly",
        ),
    )
)

RULES = TextRules(time_minutes=True, loose_dates=True)
MARK_WRITE = "everfold[csv-needs-quotes]: "
_LONG = 24
"""Longer texts are written in quotes."""
_ASIDE = "\U0010ffff"
_ESCAPES = (("n", "\n"), ("r", "\r"), ("t", "\t"))


@dataclass(frozen=True, slots=True)
class CsvFormat(Format):
    """CSV with a table's options; `quote` and `escape` are None where there is none."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_literal: str | None = None
    element_delimiter: str = ";"
    comments: bool = False

    @classmethod
    def of(cls, table: Table, options: OptionValues, prefix: str) -> CsvFormat:
        """The format as the table's options `<prefix>…` say."""
        no_quotes = options.flag(f"{prefix}disable-quote-character")
        if no_quotes and f"{prefix}quote-character" in options.given:
            message = f"`{prefix}quote-character` has no meaning when `{prefix}disable-quote-character` is true"
            raise wrong_option(table, f"{prefix}quote-character", message)
        made = cls(
            ignore_errors=options.flag(f"{prefix}ignore-parse-errors"),
            ignore_option=f"{prefix}ignore-parse-errors",
            delimiter=options.text(f"{prefix}field-delimiter"),
            quote=None if no_quotes else options.text(f"{prefix}quote-character"),
            escape=options.text_or_none(f"{prefix}escape-character"),
            null_literal=options.text_or_none(f"{prefix}null-literal"),
            element_delimiter=options.text(f"{prefix}array-element-delimiter"),
            comments=options.flag(f"{prefix}allow-comments"),
        )
        special = [each for each in (made.delimiter, made.quote, made.escape) if each is not None]
        if len(set(special)) < len(special):
            raise wrong_option(
                table, f"{prefix}field-delimiter", "delimiter, quote and escape character of a CSV must differ"
            )
        if not made.element_delimiter:
            raise wrong_option(table, f"{prefix}array-element-delimiter", "the delimiter of array elements is empty")
        return made

    def check(self, table: Table, columns: Sequence[RecordColumn]) -> None:
        """Refuses MAP, and collections within collections: CSV has no way to write them."""
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
                        f"table `{table.name}`: CSV cannot hold column `{column.name}`, which is {article(column.type)}",
                        table.place_of(column.name),
                        "take json or parquet",
                    )

    # -- tokens ------------------------------------------------------------------------------------

    def token_pattern(self) -> str:
        """A regular expression (of Java and of Python) for a delimiter and the field after it.

        The fields of a line that begins with a delimiter, joined by the delimiter, are the line without that if it is well formed. (Java goes on one character
        after an empty match, so each match has to hold something.)
        """
        delimiter = _literal(self.delimiter)
        ends = f"(?={delimiter}|\\z)"
        escaped = "" if self.escape is None else f"|{_literal(self.escape)}[\\s\\S]"
        stop = "" if self.escape is None else _in_class(self.escape)
        plain = (
            f"(?:[^{_in_class(self.delimiter)}{stop}]{escaped})*+" if escaped else f"[^{_in_class(self.delimiter)}]*+"
        )
        if self.quote is None:
            return f"{delimiter}({plain}){ends}"
        quote, not_quote = _literal(self.quote), f"[^{_in_class(self.quote)}{stop}]*+"
        quoted_field = f"{quote}{not_quote}(?:(?:{quote}{quote}{escaped}){not_quote})*+{quote}"
        return f"{delimiter}({quoted_field}{ends}|(?!{quote}){plain}{ends})"

    def _tokens(self, text: str) -> str:
        """Spark SQL: the fields of a line as they are written, NULL when it is not well formed."""
        special = [each for each in (self.quote, self.escape) if each is not None]
        split = f"split({text}, {quoted(_literal(self.delimiter))}, -1)"
        if not special:
            return split
        pattern = quoted(self.token_pattern())
        tokens = f"regexp_extract_all(concat({quoted(self.delimiter)}, {text}), {pattern}, 1)"
        checked = f"IF(array_join({tokens}, {quoted(self.delimiter)}) = {text}, {tokens}, NULL)"
        none = " AND ".join(f"NOT contains({text}, {quoted(each)})" for each in special)
        return f"CASE WHEN {none} THEN {split} ELSE {checked} END"

    def _plain(self, token: str) -> str:
        """Spark SQL: the text that a token means."""
        text = token
        if self.quote is not None:
            inner = f"substring({token}, 2, length({token}) - 2)"
            text = f"IF(startswith({token}, {quoted(self.quote)}), {self._unescaped(inner, in_quotes=True)}, {self._unescaped(token)})"
        elif self.escape is not None:
            text = self._unescaped(token)
        return text if self.null_literal is None else f"nullif({text}, {quoted(self.null_literal)})"

    def _unescaped(self, body: str, *, in_quotes: bool = False) -> str:
        """Spark SQL: a field's text without its escapes. Pairs are first set aside as a character that text cannot hold."""
        pairs: list[tuple[str, str]] = []
        if self.escape is not None:
            pairs += [
                (self.escape * 2, _ASIDE),
                *((self.escape + letter, means) for letter, means in _ESCAPES),
                (self.escape, ""),
                (_ASIDE, self.escape),
            ]
        if in_quotes and self.quote is not None:
            pairs.append((self.quote * 2, self.quote))
        for written, means in pairs:
            body = f"replace({body}, {quoted(written)}, {quoted(means)})"
        return body

    # -- decoding in Catalyst ----------------------------------------------------------------------

    @property
    def reader(self) -> str | None:
        """Lines of text."""
        return None

    def reader_options(self) -> dict[str, str]:
        """None: there is no reader."""
        raise AssertionError("CSV is read as lines")

    def reader_schema(self, columns: Sequence[RecordColumn]) -> str:
        """None: there is no reader."""
        raise AssertionError("CSV is read as lines")

    def from_text(
        self, frame: DataFrame, columns: Sequence[RecordColumn], raw: str, *, keep_empty: bool = False
    ) -> DataFrame:
        """The fields of a line by position."""
        kept = list(frame.columns)
        text = f"CAST({raw} AS STRING)"
        frame = frame.selectExpr(
            *(identifier(name) for name in kept),
            f"IF(startswith({text}, '\\uFEFF'), substring({text}, 2), {text}) AS __line",
        )
        if not keep_empty:
            frame = frame.where("__line <> ''" if len(columns) > 1 else "__line IS NOT NULL")
        if self.comments:
            frame = frame.where("NOT coalesce(startswith(__line, '#'), false)")
        # The barrier keeps Catalyst from splitting the line once more for every filter above.
        frame = frame.selectExpr("*", f"{self._tokens('__line')} AS __tokens", "spark_partition_id() AS __barrier")
        count = len(columns)
        fits = f"(size(__tokens) = {count} OR (size(__tokens) = {count + 1} AND element_at(__tokens, -1) = ''))"
        bad = f"IF(__tokens IS NOT NULL AND is_valid_utf8(__line) AND {fits}, NULL, __line)"
        if keep_empty:
            bad = f"IF(coalesce(__line, '') = '', NULL, {bad})"
        fields = [
            f"{self._plain(f'get(__tokens, {at})')} AS {identifier(column.name)}" for at, column in enumerate(columns)
        ]
        return frame.where("__barrier >= 0").selectExpr(
            *(identifier(name) for name in kept), *fields, f"{bad} AS {BAD}"
        )

    def is_empty(self, columns: Sequence[RecordColumn], raw: str) -> str:
        """Nothing at all, where that is not the one field."""
        return f"CAST({raw} AS STRING) = ''" if len(columns) > 1 else "false"

    def value(self, column: RecordColumn, field: str, place: Place) -> str:
        """Spark SQL for the value of a column from its text."""
        match column.type:
            case ArrayType(element=element):
                parts = f"IF({field} = '', array(), {self._elements(field)})"
                inner = self._one("x", element, f"{column.name}[]", place)
                return f"IF({field} IS NULL, NULL, transform(CAST({parts} AS ARRAY<STRING>), x -> {inner}))"
            case RowType(fields=fields):
                parts = ", ".join(
                    f"{quoted(part.name)}, {self._one(f'get({self._elements(field)}, {at})', part.type, f'{column.name}.{part.name}', place)}"
                    for at, part in enumerate(fields)
                )
                made = f"named_struct({parts})"
                if not self.ignore_errors:
                    wrong = raise_bad(place, column.name, field)
                    made = f"IF(size({self._elements(field)}) = {len(fields)}, {made}, {wrong})"
                return f"IF({field} IS NULL, NULL, {made})"
            case of:
                return self._one(field, of, column.name, place)

    def _elements(self, field: str) -> str:
        return f"split({field}, {quoted(_literal(self.element_delimiter))}, -1)"

    def _one(self, text: str, of: DataType, path: str, place: Place) -> str:
        if isinstance(of, StringType):
            return text
        value = catalyst(text, of, RULES)
        return (
            value
            if self.ignore_errors
            else f"coalesce({value}, IF({text} IS NULL, NULL, {raise_bad(place, path, text)}))"
        )

    def is_bad(self, column: RecordColumn, field: str) -> str | None:
        """Spark SQL: whether a field holds something that is no value of its type."""
        match column.type:
            case StringType():
                return None
            case ArrayType(element=element):
                if isinstance(element, StringType):
                    return None
                inner = catalyst("y", element, RULES)
                return f"coalesce({field} <> '' AND exists({self._elements(field)}, y -> ({inner}) IS NULL), false)"
            case RowType(fields=fields):
                wrong = [
                    f"({catalyst(f'get({self._elements(field)}, {at})', part.type, RULES)}) IS NULL"
                    for at, part in enumerate(fields)
                    if not isinstance(part.type, StringType)
                ]
                return (
                    f"({field} IS NOT NULL AND ("
                    + " OR ".join([*wrong, f"size({self._elements(field)}) <> {len(fields)}"])
                    + "))"
                )
            case of:
                return f"({field} IS NOT NULL AND ({catalyst(field, of, RULES)}) IS NULL)"

    def lost(self, columns: Sequence[RecordColumn]) -> str:
        """Not well formed, or too many fields. With too few, the others are NULL."""
        few = f"is_valid_utf8({BAD}) AND size({self._tokens(BAD)}) BETWEEN 0 AND {len(columns)}"
        return f"({BAD} IS NOT NULL AND NOT coalesce({few}, false))"

    # -- encoding ----------------------------------------------------------------------------------

    def _must_quote(self) -> str:
        """A regular expression for texts that are written in quotes: those that hold what could be special, and long ones (as Jackson)."""
        special = [self.delimiter, self.quote or "", self.escape or "", "\r", "\n"]
        highest = max(ord(each) for each in special if each)
        return (
            f"[\\x00-{_literal(chr(highest))}]"
            if highest < 128
            else "[" + "".join(_literal(each) for each in special if each) + "\\s#]"
        )

    def line(self, columns: Sequence[RecordColumn]) -> str:
        """Spark SQL: the line of a row."""
        return f"concat_ws({quoted(self.delimiter)}, {', '.join(self._field(column) for column in columns)})"

    def _field(self, column: RecordColumn) -> str:
        value = physical(column.position)
        match column.type:
            case ArrayType(element=element):
                parts = f"transform({value}, x -> coalesce({sql_plain(element, 'x')}, ''))"
                text = f"array_join({parts}, {quoted(self.element_delimiter)})"
            case RowType(fields=fields):
                parts = ", ".join(
                    f"coalesce({sql_plain(part.type, f'{value}.{identifier(part.name)}')}, '')" for part in fields
                )
                text = f"IF({value} IS NULL, NULL, array_join(array({parts}), {quoted(self.element_delimiter)}))"
            case of:
                text = sql_plain(of, value)
        if isinstance(column.type, StringType | TimestampType | ArrayType | RowType | BytesType | DateType | TimeType):
            text = self._quoted(text)
        return f"coalesce({text}, {quoted(self.null_literal or '')})"

    def _quoted(self, text: str) -> str:
        if self.quote is not None:
            body = text
            if self.escape is not None:
                body = f"replace({body}, {quoted(self.escape)}, {quoted(self.escape * 2)})"
            body = f"replace({body}, {quoted(self.quote)}, {quoted(self.quote * 2)})"
            inside = f"concat({quoted(self.quote)}, {body}, {quoted(self.quote)})"
            return f"IF(length({text}) > {_LONG} OR rlike({text}, {quoted(self._must_quote())}), {inside}, {text})"
        body = text
        if self.escape is not None:
            for special in (self.escape, self.delimiter):
                body = f"replace({body}, {quoted(special)}, {quoted(self.escape + special)})"
            for letter, means in _ESCAPES[:2]:
                body = f"replace({body}, {quoted(means)}, {quoted(self.escape + letter)})"
            return body
        stop = f"raise_error(concat({quoted(MARK_WRITE)}, {text}))"
        return f"IF(rlike({text}, {quoted('[' + _literal(self.delimiter) + chr(92) + 'r' + chr(92) + 'n]')}), {stop}, {text})"

    def encoder(self, columns: Sequence[RecordColumn]) -> Callable[[Sequence[object]], bytes | None]:
        """From the values of a row to its line."""
        writers = [self._writer(column) for column in columns]
        return lambda values: self.delimiter.join(
            write(value) for write, value in zip(writers, values, strict=True)
        ).encode()

    def _writer(self, column: RecordColumn) -> Callable[[object], str]:
        must_quote = re.compile(self._must_quote())
        always_bare = isinstance(column.type, BooleanType | NumericType)
        text = self._plain_text(column.type)

        def write(value: object) -> str:
            if value is None:
                return self.null_literal or ""
            written = text(value)
            if always_bare:
                return written
            if self.quote is not None:
                if len(written) <= _LONG and must_quote.search(written) is None:
                    return written
                body = written if self.escape is None else written.replace(self.escape, self.escape * 2)
                return self.quote + body.replace(self.quote, self.quote * 2) + self.quote
            if self.escape is not None:
                for special in (self.escape, self.delimiter):
                    written = written.replace(special, self.escape + special)
                return written.replace("\n", self.escape + "n").replace("\r", self.escape + "r")
            if any(each in written for each in (self.delimiter, "\r", "\n")):
                raise needs_quotes(written)
            return written

        return write

    def _plain_text(self, of: DataType) -> Callable[[object], str]:
        match of:
            case ArrayType(element=element):
                each = text_of(element)
                return lambda value: self.element_delimiter.join(
                    "" if part is None else each(part) for part in (value if isinstance(value, list) else [])
                )
            case RowType(fields=fields):
                parts = [(part.name, text_of(part.type)) for part in fields]
                return lambda value: self.element_delimiter.join(
                    "" if not isinstance(value, dict) or value[name] is None else one(value[name])
                    for name, one in parts
                )
            case _:
                return text_of(of)

    # -- decoding in Python ------------------------------------------------------------------------

    def decoder(self, columns: Sequence[RecordColumn]) -> Callable[[bytes], Iterator[list[object]]]:
        """From one line to its row."""
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
                raise BadValue("a quote is not closed, or something follows it")
            if len(tokens) == len(columns) + 1 and not tokens[-1]:
                tokens.pop()
            if len(tokens) > len(columns) or (len(tokens) < len(columns) and not self.ignore_errors):
                raise BadValue(f"it has {_fields(len(tokens))}, the table has {len(columns)}")
            texts: list[str | None] = [self._meaning(token) for token in tokens]
            texts += [None] * (len(columns) - len(texts))
            yield [None if text is None else read(text) for text, read in zip(texts, readers, strict=True)]

        return decode

    def _meaning(self, token: str) -> str | None:
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
                raise BadValue(f"field `{path}` is not {article(of)}: `{excerpt(text)}`", path) from None

        return read


def needs_quotes(text: str) -> ConnectorError:
    """The error of a text that a CSV without quotes and escapes cannot hold."""
    return trouble(
        "csv-needs-quotes",
        f"a text holds the field delimiter or a line break, and the table has no quote character: `{excerpt(text)}`",
        help="set 'csv.escape-character', or leave out 'csv.disable-quote-character'",
    )


def _fields(count: int) -> str:
    return f"{count} field" + ("" if count == 1 else "s")


def _literal(text: str) -> str:
    """A text as a regular expression that Java and Python read alike."""
    return "".join(
        each if each.isalnum() or each in " _" else f"\\x{ord(each):02x}" if ord(each) < 256 else each for each in text
    )


def _in_class(character: str) -> str:
    return _literal(character)
