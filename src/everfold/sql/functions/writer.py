"""Write parts of SQL for an engine: Spark SQL (ANSI off, session zone UTC) or DuckDB SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from everfold.engine_literals import duckdb_literal, duckdb_string, spark_literal, spark_string
from everfold.error_transport import raise_in_duckdb, raise_in_spark, write_message
from everfold.errors import Span, UnsupportedFeature
from everfold.plan.expressions import Call
from everfold.types import DataType

MAX_REPEATED_CHARS = 160
"""An argument that a template uses several times is repeated while that takes at most this many
characters; otherwise it is bound to a variable."""

MAX_MESSAGE_CHARS = 60
"""Maximum characters of an expression or a value in an error message."""

_CLOCK_SHIFT_MINUTES = (60, 30, 120)
"""How far clocks go back at the end of daylight saving time: one hour; 30 minutes on Lord Howe
Island and two hours at the Troll station."""

_WHITESPACE = re.compile(r"[\s\x00-\x1f]+")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?")


def is_utc(zone: str) -> bool:
    """Return whether a zone is UTC, by any of its names."""
    return zone.upper() in ("UTC", "Z", "GMT", "UT", "ETC/UTC") or fixed_offset_minutes(zone) == 0


def fixed_offset_minutes(zone: str) -> int | None:
    """Return the offset of a zone such as ``+08:00`` or ``GMT+8``; None for any other."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = int(match.group(2)) * 60 + int(match.group(3) or 0)
    return minutes if match.group(1) == "+" else -minutes


@dataclass(frozen=True)
class RenderContext:
    """The session state that the SQL of an expression depends on.

    `zone` is the session's time zone (`table.local-time-zone`). `now` is the time of the statement
    or micro-batch, as the engine's SQL of an instant (in DuckDB a TIMESTAMP in UTC). None means
    `current_timestamp()` in Spark and `now()` in DuckDB.
    """

    zone: str = "UTC"
    now: str | None = None


@dataclass
class Writer:
    """Writes parts of an expression for one engine: types, literals, errors, times and variables.

    Entries that a template cannot express call it. `Renderer` renders whole expressions.

    `call_span` is the span in the script of the call that is being rendered.
    """

    engine: str
    columns: Sequence[str]
    context: RenderContext
    call_span: Span | None = None
    _variable_count: int = field(default=0)

    @property
    def spark(self) -> bool:
        """Whether the engine is Spark."""
        return self.engine == "Spark"

    def type(self, type: DataType) -> str:
        """Return the engine's name of a type."""
        return type.spark if self.spark else type.duckdb

    def text(self, value: str) -> str:
        """Return a string literal."""
        return spark_string(value) if self.spark else duckdb_string(value)

    def literal(self, value: object, type: DataType) -> str:
        """Return a literal of a type."""
        return spark_literal(value, type) if self.spark else duckdb_literal(value, type)

    def fail(self, words: str) -> str:
        """Return an expression that fails the job when it is evaluated.

        `words` start with an error code: ``cast-failed: …``. The position in the script of the call
        that is being rendered is appended to the message.
        """
        code, _, rest = words.partition(": ")
        return (raise_in_spark if self.spark else raise_in_duckdb)(code, rest + self.describe_position())

    def fail_with_value(self, code: str, value: str, words: str) -> str:
        """Like `fail`, with a quoted string value before the words, shortened and on one line."""
        shown = f"replace(left({value}, {MAX_MESSAGE_CHARS}), chr(10), ' ')"
        parts = [self.text(write_message(code, "'")), shown, self.text(f"' {words}{self.describe_position()}")]
        return f"{'raise_error' if self.spark else 'error'}(concat({', '.join(parts)}))"

    def describe_position(self) -> str:
        """Return the position of the expression: `` in `a / b` at q.sql:3:8``."""
        of = self.call_span
        if of is None or not of.text:
            return ""
        written = _WHITESPACE.sub(" ", of.text[of.start : of.end])
        if len(written) > MAX_MESSAGE_CHARS:
            written = written[: MAX_MESSAGE_CHARS - 1] + "…"
        return f" in `{written}` at {of.source}:{of.line}:{of.column}"

    def now(self) -> str:
        """Return the time of the statement or micro-batch, an instant."""
        if self.context.now is not None:
            return self.context.now
        return "current_timestamp()" if self.spark else "timezone('UTC', now())"

    def new_variable(self) -> str:
        """Return the name of a new variable."""
        self._variable_count += 1
        return f"v{self._variable_count}_"

    def local(self, instant: str) -> str:
        """Return the wall-clock time of an instant in the session's zone, as a TIMESTAMP."""
        zone = self.context.zone
        if self.spark:
            wall = f"CAST({instant} AS TIMESTAMP_NTZ)"
            return wall if is_utc(zone) else f"convert_timezone('UTC', {self.text(zone)}, {wall})"
        if is_utc(zone):
            return instant
        offset = fixed_offset_minutes(zone)
        if offset is not None:
            return f"({instant} + to_minutes({offset}))"
        return f"timezone({self.text(zone)}, timezone('UTC', {instant}))"

    def instant(self, local: str) -> str:
        """Return the instant of a wall-clock time (a TIMESTAMP) in the session's zone.

        Of the two instants when clocks go back, the earlier one.
        """
        zone = self.context.zone
        if self.spark:
            wall = local if is_utc(zone) else f"convert_timezone({self.text(zone)}, 'UTC', {local})"
            return f"CAST({wall} AS TIMESTAMP)"
        if is_utc(zone):
            return local
        offset = fixed_offset_minutes(zone)
        if offset is not None:
            return f"({local} - to_minutes({offset}))"
        # DuckDB returns the later one.
        later = self.new_variable()
        earlier = " ".join(
            f"WHEN {self.local(f'({later} - to_minutes({minutes}))')} = \x03 THEN {later} - to_minutes({minutes})"
            for minutes in _CLOCK_SHIFT_MINUTES
        )
        found = self.let(
            later, f"timezone('UTC', timezone({self.text(zone)}, \x03))", f"CASE {earlier} ELSE {later} END"
        )
        return self.bind_once(local, found)

    def unsupported(self, call: Call, why: str) -> UnsupportedFeature:
        """Return the error for a function, or a form of it, that the engine does not support."""
        message = f"`{call.function}` is not supported on {self.engine}: {why}"
        elsewhere = "run without --engine memory: Spark supports it" if why.startswith("DuckDB") else None
        return UnsupportedFeature.of("unsupported-function", message, self.call_span, elsewhere)

    def let_all(self, values: dict[str, str], body: str) -> str:
        """Bind each name to the value of its SQL in a body.

        The values are bound side by side, not nested: DuckDB binds a body twice, so nesting would
        double the cost per level.
        """
        if len(values) < 2:
            return self.let(*next(iter(values.items())), body) if values else body
        whole = self.new_variable()
        for name in values:
            body = re.sub(rf"\b{name}\b", f"{whole}.{name}", body)
        if self.spark:
            made = "struct(" + ", ".join(f"{text} AS {name}" for name, text in values.items()) + ")"
        else:
            made = "struct_pack(" + ", ".join(f"{name} := {text}" for name, text in values.items()) + ")"
        return self.let(whole, made, body)

    def let(self, name: str, text: str, body: str) -> str:
        """Bind `name` to the value of `text` in a body, so that it is computed once."""
        if self.spark:
            return f"element_at(transform(array({text}), {name} -> {body}), 1)"
        return f"list_transform([{text}], lambda {name}: {body})[1]"

    def bind_once(self, text: str, body: str) -> str:
        """Replace each ``\\x03`` in a body by `text`, or by a variable if that would be long."""
        if len(text) * body.count("\x03") <= MAX_REPEATED_CHARS or body.count("\x03") <= 1:
            return body.replace("\x03", text)
        name = self.new_variable()
        return self.let(name, text, body.replace("\x03", name))
