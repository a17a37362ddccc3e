"""Options of a table (WITH): their declarations and the values of one table.

Options are validated without pyspark, before anything starts. A value can be a secret: messages
name the option and its valid values, and quote the value only if the option cannot hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from everfold.errors import Diagnostic, SqlError, suggest_name
from everfold.plan.nodes import Table
from everfold.secrets import redact_value
from everfold.sql.settings import parse_duration

_MEMORY = re.compile(r"(\d+)\s*([a-z]*)")
_MEMORY_UNITS = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1 << 10, "kb": 1 << 10, "kibibytes": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mebibytes": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gibibytes": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tebibytes": 1 << 40,
}  # fmt: skip
_KINDS = ("string", "int", "bool", "duration", "memory", "char", "regex")


def parse_memory(text: str) -> int:
    """Parse a memory size as in Flink (`128 mb`, `1 gb`; a plain number is bytes) into bytes.

    Raises ValueError for anything else.
    """
    found = _MEMORY.fullmatch(text.strip().lower())
    unit = _MEMORY_UNITS.get(found.group(2)) if found else None
    if found is None or unit is None:
        raise ValueError("it takes a size such as `128 mb`, `1 gb` or a number of bytes")
    return int(found.group(1)) * unit


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connector or format.

    name: one that ends in `*` stands for all options with that prefix. type: "string", "int",
    "bool", "duration" (value in milliseconds), "memory" (in bytes), "char" (one character, or a
    Java escape: `\\t`, `\\u0001`), "regex", or the valid keywords (compared without case).
    default: None means not set. role: where the option applies, "source", "sink" or "both"; as in
    Flink it is accepted on the other side too. note: a message to a user who sets the option, that
    it has no effect. secret: the value is never shown. least: the least valid number.
    """

    name: str
    type: str | tuple[str, ...] = "string"
    default: str | None = None
    required: bool = False
    meaning: str = ""
    role: str = "both"
    note: str | None = None
    secret: bool = False
    least: int | None = None

    def parse(self, text: str) -> object:
        """Parse a value. Raises ValueError that says what the option takes."""
        value = self._parse(text)
        if self.least is not None and isinstance(value, int) and value < self.least:
            raise ValueError(f"it must be at least {self.least}")
        return value

    def _parse(self, text: str) -> object:
        match self.type:
            case "string":
                return text
            case "int":
                if re.fullmatch(r"[+-]?\d{1,18}", text.strip(), re.ASCII) is None:
                    raise ValueError("it takes a whole number")
                return int(text)
            case "bool":
                if text.strip().lower() not in ("true", "false"):
                    raise ValueError("it takes `true` or `false`")
                return text.strip().lower() == "true"
            case "duration":
                return parse_duration(text)
            case "memory":
                return parse_memory(text)
            case "char":
                return _character(text)
            case "regex":
                try:
                    re.compile(text)
                except re.error as wrong:
                    raise ValueError(f"it is not a regular expression: {wrong}") from None
                return text
            case words:
                assert not isinstance(words, str), f"{words} is none of {_KINDS}"
                for word in words:
                    if word.lower() == text.strip().lower():
                        return word
                raise ValueError("it takes " + _enumeration(words))


def _character(text: str) -> str:
    """Parse one character, written as itself or as a Java escape."""
    if "\\" in text and len(text) > 1:
        escapes = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\", "\\b": "\b", "\\f": "\f", "\\0": "\0"}
        unicode = re.fullmatch(r"\\u([0-9a-fA-F]{4})", text)
        text = chr(int(unicode.group(1), 16)) if unicode else escapes.get(text, text)
    if len(text) != 1:
        raise ValueError("it takes a single character")
    return text


def _enumeration(words: Iterable[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + f" or {quoted[-1]}"


@dataclass(frozen=True, slots=True)
class OptionValues:
    """The values of a table's options.

    values: by name; an option that is not set has its default. explicit: names of the options that
    are set. prefixed: by prefix, the options of `<prefix>*`. notes: messages on options without
    effect.
    """

    values: Mapping[str, object]
    explicit: frozenset[str]
    prefixed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def string(self, name: str) -> str:
        """Return the value of a string option that is set or has a default."""
        value = self.values[name]
        assert isinstance(value, str), name
        return value

    def string_or_none(self, name: str) -> str | None:
        """Return the value of a string option, None if it is not set."""
        value = self.values[name]
        assert value is None or isinstance(value, str), name
        return value

    def number(self, name: str) -> int:
        """Return the value of a numeric option (also ms, bytes) that is set or has a default."""
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def number_or_none(self, name: str) -> int | None:
        """Return the value of a numeric option (also ms, bytes), None if it is not set."""
        value = self.values[name]
        assert value is None or isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        """Return the value of a boolean option."""
        return bool(self.values[name])

    def with_prefix(self, prefix: str) -> Mapping[str, str]:
        """Return all options `<prefix>*`, by name without the prefix."""
        return self.prefixed.get(prefix, {})


@dataclass(frozen=True, slots=True)
class OptionSet:
    """The options of a connector or format."""

    options: tuple[Option, ...] = ()

    def __add__(self, other: OptionSet) -> OptionSet:
        return OptionSet((*self.options, *other.options))

    def add_prefix(self, prefix: str) -> OptionSet:
        """Return the same options with a prefix.

        A format's `ignore-parse-errors` is a table's `json.ignore-parse-errors`.
        """
        return OptionSet(tuple(replace(option, name=prefix + option.name) for option in self.options))

    def read(self, table: Table, role: str) -> OptionValues:
        """Return the option values of a table. All errors are raised together.

        Raises SqlError: `unknown-option` with the nearest known name, `missing-option`,
        `wrong-option-value`.
        """
        known = {option.name: option for option in self.options if not option.name.endswith("*")}
        prefixes = [option.name[:-1] for option in self.options if option.name.endswith("*")]
        spans = dict(table.option_spans)
        found: list[Diagnostic] = []
        values: dict[str, object] = {}
        prefixed: dict[str, dict[str, str]] = {prefix: {} for prefix in prefixes}
        notes: list[str] = []
        for name, text in table.options:
            option = known.get(name)
            if option is None:
                prefix = next((each for each in prefixes if name.startswith(each) and len(name) > len(each)), None)
                if prefix is not None:
                    prefixed[prefix][name[len(prefix) :]] = text
                elif name not in COMMON:
                    message = f"table `{table.name}`: the connector `{table.connector}` has no option `{name}`"
                    found.append(Diagnostic("unknown-option", message, spans.get(name), suggest_name(name, known)))
                continue
            try:
                values[name] = option.parse(text)
            except ValueError as wrong:
                value = "" if option.secret else f" is `{_shorten(redact_value(name, text))}`, but"
                message = f"table `{table.name}`: option `{name}`{value or ':'} {wrong}"
                found.append(Diagnostic("wrong-option-value", message, spans.get(name)))
                continue
            if option.note is not None:
                notes.append(f"table `{table.name}`: option `{name}` {option.note}")
        for name, option in known.items():
            if name not in dict(table.options):
                if option.required and option.role in ("both", role):
                    message = f"table `{table.name}` needs option `{name}`"
                    meaning = f"{name} is {option.meaning}" if option.meaning else None
                    found.append(Diagnostic("missing-option", message, spans.get("connector"), meaning))
                values[name] = None if option.default is None else option.parse(option.default)
        if found:
            raise SqlError(*found)
        given = frozenset(name for name, _ in table.options)
        return OptionValues(values, given, prefixed, tuple(notes))


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


COMMON = frozenset({"connector"})
"""Options of every table, which no connector reads."""


def wrong_option_error(table: Table, name: str, message: str, help: str | None = None) -> SqlError:
    """Return the error for an option whose value does not fit the table."""
    return SqlError.of(
        "wrong-option-value",
        f"table `{table.name}`: {message}",
        dict(table.option_spans).get(name, table.span),
        help,
    )


def missing_option_error(table: Table, name: str, given: str) -> SqlError:
    """Return the error for an option that is required because another one is set."""
    message = f"table `{table.name}` needs option `{name}`, as `{given}` is set"
    return SqlError.of("missing-option", message, table.span_of_option(given))
