"""Session options (SET, RESET, `--conf`): which ones exist, what values they take and what they do.

Every option is listed in `OPTIONS`, or its family in `FAMILIES`. An option that Flink has but that
has no effect here is accepted with a note. One that would change results if it were ignored is
rejected. An unknown one is rejected with the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast
from zoneinfo import ZoneInfo

from everfold.errors import Diagnostic, EverfoldError, Span, SqlError, UnsupportedFeature, suggest_name
from everfold.secrets import is_secret, redact_value

Note = Callable[[str], None]
"""Receives a message that the user should see although nothing is wrong."""


# --- values ---------------------------------------------------------------------------------------

_UNITS_NS = {
    "ns": 1, "nano": 1, "nanos": 1, "nanosecond": 1, "nanoseconds": 1,
    "us": 1_000, "µs": 1_000, "micro": 1_000, "micros": 1_000, "microsecond": 1_000, "microseconds": 1_000,
    "ms": 1_000_000, "milli": 1_000_000, "millis": 1_000_000, "millisecond": 1_000_000, "milliseconds": 1_000_000,
    "s": 10**9, "sec": 10**9, "secs": 10**9, "second": 10**9, "seconds": 10**9,
    "m": 60 * 10**9, "min": 60 * 10**9, "minute": 60 * 10**9, "minutes": 60 * 10**9,
    "h": 3600 * 10**9, "hour": 3600 * 10**9, "hours": 3600 * 10**9,
    "d": 86400 * 10**9, "day": 86400 * 10**9, "days": 86400 * 10**9,
}  # fmt: skip
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.I | re.ASCII)
_FIXED_ZONE = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds, from Flink's notation.

    Accepts `5 s`, `10 min`, `1 d`, `500 ms`, `PT5S`; a bare number is milliseconds. Fractions of a
    millisecond are truncated. Raises ValueError with a message that describes the notation.
    """
    text = text.strip()
    if text[:1] in ("P", "p"):
        iso = _ISO.fullmatch(text)
        if iso is not None and any(iso.groups()) and text[-1] not in "Tt":
            days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
            fraction = int((iso.group(5) or "").ljust(3, "0")[:3])
            return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction
    plain = re.fullmatch(r"(\d+)\s*([^\W\d]*)", text)
    if plain is not None and (unit := _UNITS_NS.get(plain.group(2).lower() or "ms")) is not None:
        return int(plain.group(1)) * unit // 1_000_000
    raise ValueError("a duration is a whole number and a unit, such as `5 s`, `10 min`, `1 d`, `500 ms` or `PT5S`")


def parse_zone(text: str) -> str:
    """Return a time zone under the name that the engines use.

    A fixed offset (`GMT+08:00`) becomes its zone in the time zone database (`Etc/GMT-8`). Raises
    ValueError with a message that describes the notation.
    """
    text = text.strip()
    if text in ("default", "Z", "UTC", "GMT"):
        return "UTC"
    fixed = _FIXED_ZONE.fullmatch(text)
    if fixed is not None:
        sign, hours, minutes = fixed.group(1), int(fixed.group(2)), int(fixed.group(3) or 0)
        if minutes or hours > (14 if sign == "+" else 12):
            raise ValueError(
                "a fixed offset is a whole number of hours from -12 to +14; "
                "use a named zone instead, such as `Asia/Kolkata`"
            )
        return f"Etc/GMT{'-' if sign == '+' else '+'}{hours}" if hours else "UTC"
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError(
            "a time zone is a zone name or an offset, such as `Europe/Berlin`, `UTC` or `GMT+08:00`"
        ) from None
    return text


def _whole(text: str) -> int:
    if re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII) is None:
        raise ValueError("it takes a whole number")
    return int(text)


def _positive(text: str) -> int:
    if (value := _whole(text)) == 0:
        raise ValueError("it takes a whole number of at least 1")
    return value


def _boolean(text: str) -> bool:
    if text.strip().lower() not in _BOOLEANS:
        raise ValueError("it takes `true` or `false`")
    return _BOOLEANS[text.strip().lower()]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Reads one of some keywords, which are compared without case."""

    values: tuple[str, ...]

    def __call__(self, text: str) -> str:
        for value in self.values:
            if value.lower() == text.strip().lower():
                return value
        raise ValueError("it takes " + " or ".join(f"`{value}`" for value in self.values))


def _choice(*values: str) -> _Choice:
    return _Choice(values)


NULL_ROWTIME_HELP = "fix the record, or SET 'everfold.null-rowtime' = 'drop' to skip and count such rows"
"""What to do about a row whose time attribute is NULL."""


# --- the table of options -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: the parser of its value, its default and its meaning.

    If `meaning` is None, the option is accepted with a note, and `why` names the replacement.
    `only` is the one value that everfold supports; any other is rejected with `why`.
    """

    key: str
    read: Callable[[str], object] = str
    default: str | None = None
    meaning: str | None = None
    why: str = "it is accepted and has no effect"
    only: object = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that the option takes, if they are keywords."""
        if self.read is _boolean:
            return tuple(_BOOLEANS)
        return self.read.values if isinstance(self.read, _Choice) else ()


_COMMITS = "everfold commits every micro-batch"
_PLAN = "everfold plans aggregates differently"
_CLIENT = "results have only one display format"

OPTIONS: Mapping[str, Option] = MappingProxyType({
    option.key: option
    for option in (
        Option(key="execution.runtime-mode", read=_choice("streaming", "batch"), default="streaming",
               meaning="whether queries run continuously over streams, or once over bounded input"),
        Option(key="table.local-time-zone", read=parse_zone, default="UTC",
               meaning="the session time zone: TIMESTAMP_LTZ is shown in it, and windows over it are aligned to it"),
        Option(key="table.exec.source.idle-timeout", read=parse_duration, default="0 ms",
               meaning="how long a split may be idle before the watermark advances without it; 0 waits forever"),
        Option(key="table.exec.state.ttl", read=parse_duration, default="0 ms",
               meaning="how long the state of an unbounded aggregate is kept after its last change; "
                       "windows do not need it"),
        Option(key="pipeline.name", meaning="the name of the job"),
        Option(key="parallelism.default", read=_positive,
               meaning="how many tasks run in parallel"),
        Option(key="everfold.engine", read=_choice("spark", "memory"),
               meaning="which engine runs queries in the shell and in `everfold run`, unless `--engine` names one"),
        Option(key="everfold.null-rowtime", read=_choice("error", "drop"), default="error",
               meaning="what to do with a row whose time attribute is NULL: stop the job, or drop and count the row"),
        Option(key="everfold.scan", read=_choice("auto", "catalyst"), default="auto",
               meaning="which part of Spark computes the input of an aggregation: "
                       "its Python workers where that is known to give the same result, or always Catalyst"),
        Option(key="everfold.compat.ignore-filter", read=_boolean, default="false",
               meaning="whether state stays compatible when the WHERE below an aggregate changes: "
                       "rows that the old condition selected stay in the state"),
        Option(key="everfold.compat.rules", read=_choice("reference", "extended"), default="reference",
               meaning="which rules judge the compatibility of a changed query: "
                       "those of Realtime Compute for Apache Flink, or everfold's own, which keep more state"),
        Option(key="everfold.dialect", read=_choice("flink", "lenses"), default="flink",
               meaning="the SQL dialect of the statements after it"),
        Option(key="everfold.lenses.exact-tables", read=_boolean, default="false",
               meaning="whether all aggregates of Lenses SQL work on tables: "
                       "MAXK and similar ones then keep all values, so that a value can be retracted"),
        Option(key="defaults.topic.autocreate", read=_boolean, default="false",
               meaning="whether an INSERT of Lenses SQL creates the topic that it writes to"),
        Option(key="table.sql-dialect", read=_choice("default"), default="default", meaning="Flink's own dialect"),
        Option(key="table.exec.emit.early-fire.enabled", read=_boolean, default="false",
               meaning="whether windows emit early results before they are complete, and updates of them"),
        Option(key="table.exec.emit.early-fire.delay", read=parse_duration,
               meaning="how long a change of an open window is held back; 0 emits the changes of every batch"),
        Option(key="table.exec.emit.late-fire.enabled", read=_boolean, default="false",
               meaning="whether windows that have ended accept late rows and emit the changes"),
        Option(key="table.exec.emit.late-fire.delay", read=parse_duration, default="0 ms",
               meaning="how long a change caused by late rows is held back"),
        Option(key="table.exec.emit.allow-lateness", read=parse_duration, default="0 ms",
               meaning="how long after their end windows accept late rows, if late-fire is enabled"),
        Option(key="table.exec.mini-batch.enabled", read=_boolean, default="false",
               meaning="whether the next two options have an effect; everfold always works in micro-batches"),
        Option(key="table.exec.mini-batch.allow-latency", read=parse_duration, default="0 ms",
               meaning="how long a batch of unbounded input collects rows; "
                       "0 starts a batch with the available rows as soon as the previous one is done"),
        Option(key="table.exec.mini-batch.size", read=_whole,
               meaning="how many rows one batch reads from a Kafka table, unless the table has its own limit"),
        Option(key="table.optimizer.agg-phase-strategy", read=_choice("AUTO", "ONE_PHASE", "TWO_PHASE"), why=_PLAN),
        Option(key="table.optimizer.distinct-agg.split.enabled", read=_boolean, why=_PLAN),
        Option(key="table.optimizer.distinct-agg.split.bucket-num", read=_positive, why=_PLAN),
        Option(key="table.optimizer.incremental-agg-enabled", read=_boolean, why=_PLAN),
        Option(key="table.exec.resource.default-parallelism", read=_whole,
               why="`parallelism.default` sets the number of tasks"),
        Option(key="table.exec.sink.not-null-enforcer", read=_choice("ERROR", "DROP"), only="ERROR",
               why="everfold fails on a NULL in a NOT NULL column"),
        Option(key="table.exec.sink.type-length-enforcer", read=_choice("IGNORE", "TRIM_PAD", "ERROR"), only="IGNORE",
               why="everfold writes strings unchanged"),
        Option(key="table.dml-sync", read=_boolean, default="false",
               meaning="whether the shell waits for the job of an INSERT; a script waits for its jobs in any case"),
        Option(key="execution.attached", read=_boolean, why="a script waits for its jobs anyway"),
        Option(key="execution.target", why="everfold runs on Spark"),
        Option(key="execution.checkpointing.interval", read=parse_duration, why=_COMMITS),
        Option(key="execution.checkpointing.mode", read=_choice("EXACTLY_ONCE", "AT_LEAST_ONCE"), why=_COMMITS),
        Option(key="execution.checkpointing.timeout", read=parse_duration, why=_COMMITS),
        Option(key="execution.checkpointing.min-pause", read=parse_duration, why=_COMMITS),
        Option(key="pipeline.auto-watermark-interval", read=parse_duration,
               why="watermarks advance with every micro-batch"),
        Option(key="pipeline.object-reuse", read=_boolean),
        Option(key="pipeline.operator-chaining", read=_boolean),
        Option(key="pipeline.operator-chaining.enabled", read=_boolean),
        Option(key="pipeline.max-parallelism", read=_whole),
        Option(key="sql-client.execution.result-mode", read=_choice("table", "changelog", "tableau"),
               meaning="how a changing result is shown on a terminal: `table` (the default) shows its current state, "
                       "the others every change"),
        Option(key="sql-client.execution.max-table-result.rows", read=_whole, why=_CLIENT),
        Option(key="sql-client.display.max-column-width", read=_whole, meaning="maximum width of a displayed column"),
        Option(key="sql-client.display.print-time-cost", read=_boolean, why=_CLIENT),
        Option(key="sql-client.display.color-schema", why=_CLIENT),
        Option(key="sql-client.display.show-line-numbers", read=_boolean, why=_CLIENT),
        Option(key="sql-client.verbose", read=_boolean, why=_CLIENT),
        Option(key="sql-client.prompt", why=_CLIENT),
        Option(key="table.display.max-column-width", read=_whole, why=_CLIENT),
    )
})  # fmt: skip

TOPIC_PROPERTIES: Mapping[str, Option] = MappingProxyType({
    option.key: option
    for option in (
        Option(key="partitions", read=_positive, meaning="number of partitions of a new topic"),
        Option(key="replication", read=_positive, meaning="replication factor of a new topic"),
        Option(key="cleanup.policy", read=_choice("compact", "delete", "compact,delete"),
               meaning="what happens to old records of the topic"),
        Option(key="retention.ms", read=_whole, meaning="how long the topic keeps records"),
        Option(key="retention.bytes", read=_whole, meaning="how many bytes of a partition the topic keeps"),
        Option(key="properties.*",
               meaning="options of the Kafka client; `properties.bootstrap.servers` lists the brokers"),
        Option(key="scan.*", meaning="where reading starts and ends; the options of the connector `topic`"),
        Option(key="sink.*", meaning="how records are written; the options of the connector `topic`"),
    )
})  # fmt: skip
"""Properties of topics in Lenses SQL.

`defaults.topic.<property>` sets one for all topics, `topic.<name>.<property>` for one topic. A name
that ends in `*` stands for all table options with that prefix.
"""
_ALL_TOPICS = "defaults.topic."


def _topic_property(key: str) -> Option | None:
    """Return the property that a key sets, or None.

    Keys are `defaults.topic.<property>` and `topic.<name>.<property>`.
    """
    if key.startswith(_ALL_TOPICS):
        return next((each for each in TOPIC_PROPERTIES.values() if _matches(key.removeprefix(_ALL_TOPICS), each)), None)
    if not key.startswith("topic."):
        return None
    for option in TOPIC_PROPERTIES.values():
        if f".{option.key[:-1]}" in key if option.key.endswith("*") else key.endswith(f".{option.key}"):
            return option
    return None


def _matches(key: str, option: Option) -> bool:
    """Return whether a key names an option, or starts with its prefix if the option ends in `*`."""
    return key.startswith(option.key[:-1]) if option.key.endswith("*") else key == option.key


FAMILIES: Mapping[str, str] = MappingProxyType({
    "execution.checkpointing.": _COMMITS,
    "state.": "everfold keeps state in the job directory",
    "restart-strategy": "run the same command again to restart a failed job",
    "taskmanager.": "everfold has no such process",
    "jobmanager.": "everfold has no such process",
    "rest.": "everfold has no such process",
    "web.": "everfold has no such process",
    "metrics.": "everfold reports its progress itself",
    "heartbeat.": "everfold has no such process",
    "high-availability": "everfold has no such process",
    "kubernetes.": "everfold runs on Spark",
    "yarn.": "everfold runs on Spark",
    "classloader.": "everfold runs on Spark",
    "env.java.": "everfold runs on Spark",
    "table.optimizer.": _PLAN,
    "table.catalog-store.": "everfold has one catalog in memory",
})  # fmt: skip
"""Options that only tune Flink, by prefix, with the reason why they have no effect."""


def check_option(key: str, value: str, span: Span | None = None, value_span: Span | None = None) -> str | None:
    """Check the key and value of an option; return a note if the option has no effect here.

    Raises SqlError `unknown-option`, `wrong-option-value`; UnsupportedFeature `unsupported-option`.
    """
    option = OPTIONS.get(key) or _topic_property(key)
    if option is None:
        for family, why in FAMILIES.items():
            if key.startswith(family):
                return f"`{key}` has no effect: {why}"
        raise SqlError(Diagnostic("unknown-option", f"no option is named `{key}`", span, suggest_name(key, OPTIONS)))
    try:
        read = option.read(value)
    except ValueError as wrong:
        shown = "" if is_secret(key) else f" `{redact_value(key, value)}`"
        raise SqlError(
            Diagnostic("wrong-option-value", f"option `{key}` cannot be{shown}: {wrong}", value_span or span)
        ) from None
    if option.only is not None and read != option.only:
        raise UnsupportedFeature(
            Diagnostic(
                "unsupported-option",
                f"`{key}` = `{redact_value(key, value)}` is not supported: {option.why}",
                value_span or span,
            )
        )
    return None if option.meaning or option.only is not None else f"`{key}` has no effect: {option.why}"


@dataclass(frozen=True)
class Settings:
    """The options of a session, typed.

    `options` holds those that were set; all are already checked.
    """

    options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str] | None = None, note: Note | None = None) -> Settings:
        """Build settings from unchecked options; all errors are raised together."""
        checked: dict[str, str] = {}
        wrong: list[EverfoldError] = []
        for key, value in (options or {}).items():
            try:
                notice = check_option(key, value)
            except EverfoldError as error:
                wrong.append(error)
                continue
            checked[key] = value
            if notice and note:
                note(notice)
        if wrong:
            raise SqlError(*(found for error in wrong for found in error.diagnostics))
        return cls(MappingProxyType(checked))

    def with_option(self, key: str, value: str) -> Settings:
        """Return the settings after SET."""
        return Settings(MappingProxyType({**self.options, key: value}))

    def without(self, key: str | None = None) -> Settings:
        """Return the settings after RESET of one option, or of all."""
        left = {each: value for each, value in self.options.items() if key is not None and each != key}
        return Settings(MappingProxyType(left))

    def value_of(self, key: str) -> str | None:
        """Return an option's value as a string, or its default."""
        return self.options.get(key, OPTIONS[key].default)

    def _read(self, key: str) -> object:
        text = self.value_of(key)
        return None if text is None else OPTIONS[key].read(text)

    @property
    def runtime_mode(self) -> str:
        """`streaming` or `batch`."""
        return str(self._read("execution.runtime-mode"))

    @property
    def streaming(self) -> bool:
        """Whether queries run in streaming mode."""
        return self.runtime_mode == "streaming"

    @property
    def local_time_zone(self) -> str:
        """The session time zone, as a name of the time zone database."""
        return str(self._read("table.local-time-zone"))

    @property
    def idle_timeout_ms(self) -> int | None:
        """How long a split may be idle before the watermark ignores it; None: no limit."""
        return self._duration("table.exec.source.idle-timeout")

    @property
    def state_ttl_ms(self) -> int | None:
        """How long the state of unbounded operators is kept; None: forever."""
        return self._duration("table.exec.state.ttl")

    @property
    def early_fire(self) -> bool:
        """Whether windows emit results before they are complete."""
        return bool(self._read("table.exec.emit.early-fire.enabled"))

    @property
    def early_delay_ms(self) -> int | None:
        """How long a change of an open window is held back; None if not set."""
        value = self._read("table.exec.emit.early-fire.delay")
        return value if isinstance(value, int) else None

    @property
    def late_fire(self) -> bool:
        """Whether windows that have ended accept late rows."""
        return bool(self._read("table.exec.emit.late-fire.enabled"))

    @property
    def late_delay_ms(self) -> int:
        """How long a change caused by late rows is held back."""
        return self._duration("table.exec.emit.late-fire.delay") or 0

    @property
    def lateness_ms(self) -> int:
        """How long after their end windows accept late rows."""
        return self._duration("table.exec.emit.allow-lateness") or 0

    @property
    def batch_latency_ms(self) -> int | None:
        """How long a micro-batch of unbounded input collects rows; None: as short as possible."""
        return (
            self._duration("table.exec.mini-batch.allow-latency")
            if self._read("table.exec.mini-batch.enabled")
            else None
        )

    @property
    def batch_rows(self) -> int | None:
        """How many rows a table may contribute to one micro-batch; None: the table's own limit."""
        value = self._read("table.exec.mini-batch.size") if self._read("table.exec.mini-batch.enabled") else None
        return value if isinstance(value, int) and value > 0 else None

    @property
    def engine(self) -> Literal["spark", "memory"] | None:
        """The engine that runs queries; None if not set."""
        return cast(Literal["spark", "memory"] | None, self._read("everfold.engine"))

    @property
    def waits_for_jobs(self) -> bool:
        """Whether the shell waits for the job of an INSERT."""
        return bool(self._read("table.dml-sync"))

    @property
    def null_rowtime(self) -> str:
        """`error` or `drop`."""
        return str(self._read("everfold.null-rowtime"))

    @property
    def scan(self) -> str:
        """`auto` or `catalyst`."""
        return str(self._read("everfold.scan"))

    @property
    def ignore_filter(self) -> bool:
        """Whether state stays compatible when the WHERE below its operator changes."""
        return bool(self._read("everfold.compat.ignore-filter"))

    @property
    def extended_rules(self) -> bool:
        """Whether the extended rules judge changed queries, instead of Flink's reference rules."""
        return self._read("everfold.compat.rules") == "extended"

    @property
    def lenses_exact_tables(self) -> bool:
        """Whether all aggregates of Lenses SQL work on tables."""
        return bool(self._read("everfold.lenses.exact-tables"))

    @property
    def topic_autocreate(self) -> bool:
        """Whether an INSERT of Lenses SQL creates its topic."""
        return bool(self._read("defaults.topic.autocreate"))

    def topic_options(self, name: str) -> dict[str, str]:
        """Return the properties set for a topic as options of its table.

        Those for its creation get the prefix `create.`.
        """
        found: dict[str, str] = {}
        for prefix in (_ALL_TOPICS, f"topic.{name}."):
            for key, value in self.options.items():
                suffix = key.removeprefix(prefix)
                option = next((each for each in TOPIC_PROPERTIES.values() if _matches(suffix, each)), None)
                if suffix != key and option is not None:
                    found[suffix if option.key.endswith("*") else f"create.{suffix}"] = value
        return found

    @property
    def dialect(self) -> str:
        """The SQL dialect."""
        return str(self._read("everfold.dialect"))

    @property
    def parallelism(self) -> int | None:
        """How many tasks run in parallel; None if not set."""
        value = self._read("parallelism.default")
        return value if isinstance(value, int) else None

    @property
    def pipeline_name(self) -> str | None:
        """The job name; None if not set."""
        return self.value_of("pipeline.name")

    def _duration(self, key: str) -> int | None:
        value = self._read(key)
        assert value is None or isinstance(value, int)
        return value or None
