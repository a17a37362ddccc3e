"""Grammar of data types in DDL and CAST, which returns `everfold.types`."""

from __future__ import annotations

from dataclasses import dataclass

from everfold import types
from everfold.errors import EverfoldError, SqlError, UnsupportedFeature, suggest_name
from everfold.sql.dialects.keywords import UNITS
from everfold.sql.dialects.literals import interval_units
from everfold.sql.dialects.token_stream import MAX_NESTING, NAME_TOKENS, TokenStream, too_deep_error
from everfold.sql.dialects.tokens import TokenKind
from everfold.types import DataType

_PLAIN: dict[str, DataType] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.TINYINT,
    "SMALLINT": types.SMALLINT,
    "INT": types.INT,
    "INTEGER": types.INT,
    "BIGINT": types.BIGINT,
    "FLOAT": types.FLOAT,
    "DATE": types.DATE,
    "STRING": types.STRING,
    "BYTES": types.BYTES,
}
_DECIMAL = ("DECIMAL", "DEC", "NUMERIC")
_TEXT = ("CHAR", "CHARACTER", "VARCHAR", "BINARY", "VARBINARY")
_TIMES = ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
_REFUSED = ("RAW", "STRUCTURED", "VARIANT", "NULL", "BITMAP", "GEOMETRY", "GEOGRAPHY")
TYPE_NAMES = (*_PLAIN, *_DECIMAL, *_TEXT, *_TIMES, "DOUBLE", "INTERVAL", "ARRAY", "MULTISET", "MAP", "ROW")

_COMPOSITE_HELP = {
    "ARRAY": "specify the element type: ARRAY<INT>",
    "MULTISET": "specify the element type: MULTISET<STRING>",
    "MAP": "specify the types of keys and values: MAP<STRING, INT>",
    "ROW": "specify the name and type of each field: ROW<id INT, name STRING>",
}
"""The help text for a composite type with missing parts."""

MAX_TIMESTAMP_PRECISION = 6
"""Maximum digits of the fraction of a second; Flink has up to nine."""


@dataclass(frozen=True)
class _Range:
    low: int
    high: int
    what: str


_LENGTH = _Range(1, types.MAX_VARCHAR, "length")
_PRECISION = _Range(1, types.MAX_DECIMAL_PRECISION, "precision")
_FRACTION = _Range(0, 9, "precision")


class Types(TokenStream):
    """Grammar of types."""

    def data_type(self) -> DataType:
        """Parse a type with its NOT NULL and with ARRAY or MULTISET after it."""
        with self.nested():
            first = self.at
            found, levels = self._nullable(self._base(first)), 1
            while suffix := self.one_of("ARRAY", "MULTISET"):
                made: DataType = types.ArrayType(element=found) if suffix == "ARRAY" else types.MultisetType(key=found)
                found, levels = self._nullable(made), levels + 1
                if levels > MAX_NESTING:
                    raise too_deep_error(self.span(first), MAX_NESTING)
            return found

    def _nullable(self, found: DataType) -> DataType:
        if self.accept("NOT", "NULL"):
            return found.as_nullable(False)
        if self.key(1) != "ON":  # RETURNING INT NULL ON EMPTY
            self.accept("NULL")
        return found

    def _base(self, first: int) -> DataType:
        if self.kind() not in NAME_TOKENS:
            raise self.expected_error("a data type")
        if self.kind() is TokenKind.QUOTED or self.key(1) == ".":
            raise self._unknown_type(first)
        word = self.key()
        if word in _REFUSED:
            self.at += 1
            raise self.unsupported_error("unsupported-type", f"the type {word}", first)
        if word not in TYPE_NAMES:
            raise self._unknown_type(first)
        self.at += 1
        if word in _PLAIN:
            return _PLAIN[word]
        if word in _DECIMAL:
            return self._decimal()
        if word in _TEXT:
            return self._text(word)
        if word in _TIMES:
            return self._time(word, first)
        match word:
            case "DOUBLE":
                self.accept("PRECISION")
                return types.DOUBLE
            case "INTERVAL":
                return self._interval_type(first)
            case "ROW":
                return self._row()
            case "MAP":
                self._expect_in_type(word, "<")
                key = self.data_type()
                self._expect_in_type(word, ",")
                value = self.data_type()
                self._expect_in_type(word, ">")
                return types.MapType(key=key, value=value)
            case _:
                self._expect_in_type(word, "<")
                element = self.data_type()
                self._expect_in_type(word, ">")
                return types.ArrayType(element=element) if word == "ARRAY" else types.MultisetType(key=element)

    def _expect_in_type(self, word: str, symbol: str) -> None:
        """Consume a symbol within a composite type."""
        if not self.accept(symbol):
            raise self.expected_error(f"`{symbol}`", _COMPOSITE_HELP[word])

    def _unknown_type(self, first: int) -> EverfoldError:
        names = [self.take().text]
        while self.accept("."):
            names.append(self.identifier("the rest of a type's name").name)
        name = ".".join(names)
        return SqlError.of(
            "unknown-type", f"no data type is named `{name}`", self.span(first), suggest_name(name, TYPE_NAMES)
        )

    def _number(self, allowed: _Range) -> int:
        if self.kind() is not TokenKind.NUMBER or not self.tokens[self.at].text.isdecimal():
            raise self.expected_error(f"a {allowed.what}, which is a whole number")
        number = int(self.take().text)
        if not allowed.low <= number <= allowed.high:
            message = f"the {allowed.what} is between {allowed.low} and {allowed.high}, found {number}"
            raise SqlError.of("wrong-type", message, self.span(self.at - 1))
        return number

    def _type_argument(self, allowed: _Range, default: int) -> int:
        if not self.accept("("):
            return default
        number = self._number(allowed)
        self.expect(")")
        return number

    def _decimal(self) -> DataType:
        precision, scale = 10, 0
        if self.accept("("):
            precision = self._number(_PRECISION)
            if self.accept(","):
                scale = self._number(_Range(0, precision, "scale"))
            self.expect(")")
        return types.DecimalType(precision=precision, scale=scale)

    def _text(self, word: str) -> DataType:
        fixed = not self.accept("VARYING") and not word.startswith("VAR")
        length = self._type_argument(_LENGTH, 1)
        made = types.BytesType if "BINARY" in word else types.StringType
        return made(length=length, fixed=fixed)

    def _time(self, word: str, first: int) -> DataType:
        precision = self._type_argument(_FRACTION, 0 if word == "TIME" else 6)
        local = word == "TIMESTAMP_LTZ"
        if self.accept("WITHOUT"):
            self.expect("TIME", "ZONE")
        elif self.key() == "WITH" and self.key(1) in ("TIME", "LOCAL"):
            self.at += 1
            local = self.accept("LOCAL")
            self.expect("TIME", "ZONE")
            if word == "TIME" or not local:
                kind = f"{word} WITH {'LOCAL ' if local else ''}TIME ZONE"
                help_text = "use TIMESTAMP_LTZ: an instant, displayed in the session's time zone"
                raise UnsupportedFeature.of(
                    "unsupported-type", f"the type {kind} is not supported", self.span(first), help_text
                )
        if word == "TIME":
            return types.TimeType(precision=precision)
        if precision > MAX_TIMESTAMP_PRECISION:
            message = f"a precision of {precision} is not supported: everfold keeps microseconds"
            raise UnsupportedFeature.of(
                "timestamp-precision", message, self.span(first), f"write {word}({MAX_TIMESTAMP_PRECISION})"
            )
        return types.TimestampType(precision=precision, local_zone=local)

    def _interval_type(self, first: int) -> DataType:
        unit, last = self.interval_unit(), None
        if self.accept("TO"):
            last = self.interval_unit()
        if not interval_units(unit, last):
            raise SqlError.of("wrong-type", f"there is no INTERVAL {unit} TO {last}", self.span(first))
        return types.IntervalType(months=unit in ("YEAR", "QUARTER", "MONTH"))

    def interval_unit(self) -> str:
        """Parse a unit, singular or plural, with an optional precision.

        The precision is only validated; it has no effect.
        """
        unit = UNITS.get(self.key())
        if unit is None:
            raise self.expected_error("a unit of time (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND)")
        self.at += 1
        if self.accept("("):
            self._number(_FRACTION if unit == "SECOND" else _Range(1, 10, "precision"))
            if self.accept(","):
                self._number(_FRACTION)
            self.expect(")")
        return unit

    def _row(self) -> DataType:
        closing = ")" if self.accept("(") else ">"
        if closing == ">":
            self._expect_in_type("ROW", "<")
        fields: list[types.RowField] = []
        for field, at in self.parse_list(self._field):
            if any(field.name == each.name for each in fields):
                raise SqlError.of("wrong-type", f"the ROW has two fields named `{field.name}`", self.span(at, at))
            fields.append(field)
        self._expect_in_type("ROW", closing)
        return types.RowType(fields=tuple(fields))

    def _field(self) -> tuple[types.RowField, int]:
        at = self.at
        name = self.identifier("a field's name", frozenset()).name
        if self.key() in (",", ">", ")"):
            raise self.expected_error(f"the type of the field `{name}`", _COMPOSITE_HELP["ROW"])
        found = types.RowField(name=name, type=self.data_type())
        if self.kind() is TokenKind.STRING:
            self.at += 1
        return found, at
