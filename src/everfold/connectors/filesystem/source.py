"""Reads the files of a table: through Spark, a batch or a stream, and without it for the memory engine.

A stream takes whole files, oldest first, as many as `scan.max-bytes-per-batch` allows; a file counts once, by its path. A file must be
complete when it gets its name: write it elsewhere, or under a name with a leading dot, and rename it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from everfold.connectors.connector_errors import trouble
from everfold.connectors.contract import KIND, SPLIT, History, OptionValues, Position, Role, Source, SourceContext
from everfold.connectors.filesystem.connector import record_columns
from everfold.connectors.filesystem.known_files import find_changed_files
from everfold.connectors.filesystem.paths import (
    Listed,
    check_names,
    colon_in_name,
    escape_key,
    files,
    is_hidden,
    partition_values,
    require,
    resolve,
    shown_path,
    unescape_in_spark,
)
from everfold.connectors.filesystem.source_log import files_read, move_files
from everfold.connectors.formats.format import BAD, Format, Place, RecordColumn, find_bad, raise_bad
from everfold.connectors.formats.json import SESSION as JSON_SESSION
from everfold.connectors.formats.registry import changelog_of, format_of
from everfold.connectors.formats.text_decode import (
    BadValue,
    TextRules,
    catalyst,
    converter,
    excerpt,
    identifier,
    quoted,
)
from everfold.connectors.null_rowtime import PLACE, Timeless, find_timeless
from everfold.connectors.skipped_rows import count_bad
from everfold.errors import ConnectorError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table, TableColumn
from everfold.types import TINYINT, DataType, physical

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_CHUNK_ROWS = 50_000
_MOST_NAMED = 5
_SHOWN_BYTES = 4_000
_NEVER = "36500d"
"""Spark forgets files older than this beside the newest one, and would then leave them out."""
_PARTITION_RULES = TextRules(minutes=True, time_minutes=True, zone="")
_GLOB = re.compile(r"([\\*?\[\]{}])")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


class FileSource(Source):
    """The rows of a folder's files."""

    reads_files = True

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self.columns = record_columns(table, Role.SOURCE)
        self._base_folder = Path.cwd()
        self._listed: Listed = {}

    @property
    def format_name(self) -> str:
        """The format of the files."""
        return self.options.text("format")

    @property
    def format(self) -> Format:
        """The format of the files, which is one of text records."""
        return format_of(self.format_name, self.table, self.options, f"{self.format_name}.")

    @property
    def poll_ms(self) -> int | None:
        """How often a watched folder is looked at."""
        return self.options.number_or_none("source.monitor-interval")

    def bounded(self) -> bool:
        """Unless the folder is watched."""
        return self.poll_ms is None

    def size(self, base_folder: Path, enough: int) -> int | None:
        """The sizes of the files that are there now."""
        if not self.bounded():
            return None
        total = 0
        try:
            for file in files(resolve(self.options.text("path"), base_folder)):
                total += file.stat().st_size
                if total >= enough:
                    break
        except OSError:  # what cannot be read is said when it is
            return None
        return total

    def location(self, base_folder: Path) -> str:
        """The real path of the folder or file."""
        return str(resolve(self.options.text("path"), base_folder))

    def move(self, checkpoint: Path, name: str, old: str, new: str) -> None:
        """Rewrite the paths in the source's log: a file counts once, by its path."""
        move_files(checkpoint / "sources" / name, Path(old), Path(new))

    def find_changes(self, context: SourceContext, log: Path) -> list[str]:
        """Files that have changed since they were read, and files that were read under another name."""
        if context.kept is None or not log.is_dir():
            return []
        place = resolve(self.options.text("path"), context.base_folder)
        with suppress(OSError, ValueError, KeyError, TypeError):  # what is damaged is reported when it is used
            found = find_changed_files(log, context.kept / f"{context.name}.files.json", place)
            moved = [f"{self._shown(new)} ({self._shown(old)} before)" for new, old in found.moved]
            said = [
                (
                    "changed since they were read; what was added to them is not read",
                    list(map(self._shown, found.changed)),
                ),
                ("were read under another name and are read again", moved),
            ]
            return [f"table `{self.table.name}`: files that {what}: {_first(names)}" for what, names in said if names]
        return []

    def place(self, base_folder: Path, *, for_spark: bool = False) -> Path:
        """Where the files lie. for_spark: whether Spark has to open them. Raises ConnectorError `no-such-path`, `bad-file-name`."""
        said = self.options.text("path")
        place = resolve(said, base_folder)
        require(self.table, place, said)
        check_names(self.table, place, base_folder, for_spark=for_spark, listed=self._listed)
        return place

    def check_arrivals(self, base_folder: Path) -> None:
        """Refuse files that have come since and that Spark does not see. Raises ConnectorError `bad-file-name`."""
        place = resolve(self.options.text("path"), base_folder)
        check_names(self.table, place, base_folder, for_spark=True, listed=self._listed)

    def has_passed(self, now: Position, then: Position) -> bool:
        """When all files of then have been read, in whatever batches."""
        return set(files_read(then)) <= set(files_read(now))

    def lost(self, then: Position) -> str | None:
        """Files that are not there any more."""
        read = files_read(then)
        gone = [each for each in read if not each.exists()]
        return f"{len(gone):,} of the {len(read):,} files that were read" if gone else None

    def _place_apart(self, context: SourceContext) -> Path:
        """The same, when the job does not keep its own files there. Raises ConnectorError `job-in-source`."""
        place = self.place(context.base_folder, for_spark=True)
        job = None if context.job_folder is None else context.job_folder.resolve()
        if job is not None and job.is_relative_to(place) and not any(map(is_hidden, job.relative_to(place).parts)):
            raise trouble(
                "job-in-source",
                f"table `{self.table.name}`: the job's folder `{job}` lies in `{self.options.text('path')}`, which the table reads",
                dict(self.table.option_spans).get("path"),
                "remove it, and name another one with --state",
            )
        return place

    # -- Spark -------------------------------------------------------------------------------------

    def stream(self, context: SourceContext) -> DataFrame:
        """The files as a stream."""
        self._base_folder = context.base_folder
        place = self._place_apart(context)
        reader = context.spark.readStream.name(context.name).option("maxFileAge", _NEVER)
        count = self.options.number_or_none("scan.max-files-per-batch")
        if count is not None:
            reader = reader.option("maxFilesPerTrigger", str(count))
        else:
            reader = reader.option("maxBytesPerTrigger", str(self.options.number("scan.max-bytes-per-batch")))
        return self._frame(reader, context, place)

    def batch(self, context: SourceContext) -> DataFrame:
        """The files as they are now."""
        self._base_folder = context.base_folder
        place = self._place_apart(context)
        if next(files(place), None) is None:
            return self._empty(context)
        return self._frame(context.spark.read, context, place)

    def history(self, context: SourceContext, position: Position | None) -> History:
        """The files that the job has read, in that order, without those that went away since."""
        self._base_folder = context.base_folder
        place = self._place_apart(context)
        there = [] if position is None else [each for each in files_read(position) if each.is_file()]
        if not there:
            return History(self._empty(context))
        frame = self._frame(context.spark.read, context, place, there)
        return History(frame, {str(path): at for at, path in enumerate(there)})

    def _empty(self, context: SourceContext) -> DataFrame:
        fields = [f"{physical(at)} {column.type.spark}" for at, column in enumerate(self.table.columns)]
        fields += [f"{KIND} TINYINT"] * (changelog_of(self.format_name) is not ChangelogMode.INSERT_ONLY)
        return context.spark.createDataFrame([], ", ".join([*fields, f"{SPLIT} STRING", f"{PLACE} STRING"]))

    def _frame(
        self, reader: Any, context: SourceContext, place: Path, chosen: Sequence[Path] | None = None
    ) -> DataFrame:
        """The rows of the files at a place, or of some of them."""
        reader = reader.option("recursiveFileLookup", "true")
        path: str | list[str] = _GLOB.sub(r"\\\1", str(place))
        if chosen is not None:
            path = [_GLOB.sub(r"\\\1", str(each)) for each in chosen]
        if self.format_name == "parquet":
            from everfold.connectors.formats.parquet import read_parquet

            context.spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
            found = files(place) if chosen is None else iter(chosen)
            frame, values = read_parquet(reader, path, found, self.table, self.columns)
        else:
            frame, values = self._text_frame(reader, context, path)
        out = [
            f"{self._column(at, column, values, place)} AS {physical(at)}"
            for at, column in enumerate(self.table.columns)
        ]
        pattern = self.options.text_or_none("source.path.regex-pattern")
        if pattern is not None:
            frame = frame.where(f"rlike(__path, {quoted(chr(92) + 'A(?:' + pattern + ')' + chr(92) + 'z')})")
        kind = [KIND] if KIND in frame.columns else []
        return frame.selectExpr(*out, f"{quoted(self.table.name)} AS {SPLIT}", f"__path AS {PLACE}", *kind)

    def _text_frame(
        self, reader: Any, context: SourceContext, path: str | list[str]
    ) -> tuple[DataFrame, dict[int, str]]:
        """The checked frame with the fields and the file of each record, and Spark SQL for the values of the record's columns."""
        form = self.format
        for key, value in {"spark.sql.json.filterPushdown.enabled": "false", **JSON_SESSION}.items():
            context.spark.conf.set(key, value)
        if form.reader is not None:
            reader = (
                reader.format(form.reader).options(**form.reader_options()).schema(form.reader_schema(self.columns))
            )
        else:
            reader = reader.format("text").option("lineSep", "\n")
        frame = reader.load(path).selectExpr(
            "*",
            f"{_plain('_metadata.file_path')} AS __path",
            "_metadata.file_size AS __size",
            "_metadata.file_modification_time AS __changed",
        )
        if form.reader is None:
            frame = frame.selectExpr("rtrim('\\r', value) AS __raw", "__path", "__size", "__changed")
            frame = form.from_text(frame, self.columns, "__raw")
        place = Place(self.table.name, (("path", "__path"),))
        fields = {column.position: identifier(column.name) for column in self.columns}
        first = next(iter(fields.values()), "__none" if BAD in frame.columns else "NULL")
        if form.ignore_errors:
            frame = self._counted(frame, form, fields, context.name)
        else:
            # The first field is named so that Spark never reads the record alone, which it refuses.
            text = f"coalesce({BAD}, CAST({first} AS STRING))"
            frame = frame.where(f"CASE WHEN {BAD} IS NULL THEN true ELSE {raise_bad(place, None, text)} END")
        return frame, {column.position: form.value(column, fields[column.position], place) for column in self.columns}

    def _counted(self, frame: DataFrame, form: Format, fields: dict[int, str], name: str) -> DataFrame:
        """The readable records; how many are not, or not in full, is observed."""
        from pyspark.sql.functions import expr

        partly = [sql for column in self.columns if (sql := form.is_bad(column, fields[column.position]))]
        lost = form.lost(self.columns)
        frame = frame.withColumn("__lost", expr(lost))
        frame = count_bad(frame, " OR ".join(["__lost", f"{BAD} IS NOT NULL", *partly]), name)
        return frame.where("NOT __lost").drop("__lost")

    def _column(self, at: int, column: TableColumn, values: dict[int, str], place: Path) -> str:
        if at in values:
            return values[at]
        if column.metadata_key is None:
            return self._partition(column, place)
        plain = {
            "file.path": "__path",
            "file.name": "substring_index(__path, '/', -1)",
            "file.size": "__size",
            "file.modification-time": "__changed",
        }[column.metadata_key]
        return f"CAST({plain} AS {column.type.spark})"

    def _partition(self, column: TableColumn, place: Path) -> str:
        keys = "|".join(map(re.escape, dict.fromkeys((escape_key(column.name), column.name))))
        folder = f"(?s).*/(?:{keys})=([^/]*)/"
        within = f"substring(__path, {len(str(place)) + 1})"
        name = f"regexp_extract({within}, {quoted(folder)}, 1)"
        text = unescape_in_spark(name)
        value = catalyst(text, column.type, _PARTITION_RULES)
        where = Place(self.table.name, (("path", "__path"),))
        return (
            f"CASE WHEN NOT rlike({within}, {quoted(folder)}) THEN {raise_bad(where, column.name, name)}"
            f" WHEN {name} = {quoted(self.options.text('partition.default-name'))} THEN NULL"
            f" ELSE coalesce({value}, {raise_bad(where, column.name, text)}) END"
        )

    # -- failures ----------------------------------------------------------------------------------

    def failure(self, error_text: str) -> ConnectorError | None:
        """A bad record, found again in its file; a file that went away or cannot be read."""
        said = find_bad(error_text, self.table.name)
        if said is not None:
            return self._bad_record(said)
        timeless = find_timeless(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error(self._timeless_line(timeless))
        gone = self._own_file(r"(?:FILE_NOT_EXIST|FileNotFoundException)[^\n]*?(file:[^\s,'\"]+)", error_text)
        if gone is not None:
            return trouble(
                "file-gone",
                f"table `{self.table.name}`: the file `{self._shown(gone)}` went away before it was read",
                help="put it back and start again: nothing is lost",
            )
        denied = self._own_file(r"(/[^\s(),:'\"]+)[^\n]*Permission denied", error_text)
        if denied is not None:
            return trouble("no-permission", f"table `{self.table.name}`: no permission to read `{self._shown(denied)}`")
        if self.format_name == "parquet":
            from everfold.connectors.formats.parquet import parquet_failure

            return parquet_failure(self.table, error_text)
        unread = self._own_file(r"(?:FAILED_READ_FILE|CANNOT_READ_FILE)[^\n]*?(file:[^\s,]+)", error_text)
        if unread is not None and ":" in unread.name:
            return colon_in_name(self.table, self._shown(unread))
        if unread is not None:
            causes = re.findall(r"Caused by: [\w.$]+: ([^\n]+)", error_text)
            return _bad_file(self._shown(unread), excerpt(causes[-1], 160) if causes else "it cannot be read")
        return None

    def _own_file(self, pattern: str, error_text: str) -> Path | None:
        """The file that the pattern's first group names, a path or a URI, if it is one of the table's."""
        place = resolve(self.options.text("path"), self._base_folder)
        for found in re.finditer(pattern, error_text):
            named = found.group(1)
            path = Path((unquote(urlsplit(named).path) if named.startswith("file:") else named).rstrip("."))
            if path.is_relative_to(place):
                return path
        return None

    def _bad_record(self, said: dict[str, object]) -> ConnectorError:
        path = Path(str(said.get("path")))
        column, text = said.get("column"), str(said.get("text", ""))
        found = _find_in_file(path, self.format, self.columns) if path.is_file() else None
        if found is not None:
            line, reason, record = found
            where = f"`{self._shown(path)}` line {line}"
        else:
            where = f"`{self._shown(path)}`"
            reason, record = "it cannot be read", text
            if column is not None:
                of = next(
                    each.type
                    for each in self.table.columns
                    if each.name == str(column).split("[")[0].split(".")[0].split("{")[0]
                )
                reason, record = f"field `{column}` is not a value of {of.sql}: `{excerpt(text)}`", ""
        return bad_record(where, reason, record, self.format)

    def _timeless_line(self, timeless: Timeless) -> str | None:
        """File and line of the first record whose time is NULL; the file alone where the time is computed, or is not in lines of text."""
        path = Path(timeless.place or "")
        if not path.is_file():
            return None
        at = next((at for at, column in enumerate(self.columns) if column.name == timeless.column), None)
        line = None
        if at is not None and self.format_name != "parquet":
            line = _first_line_where(path, self.format, self.columns, lambda row: row[at] is None)
        return f"`{self._shown(path)}`" + (f" line {line}" if line is not None else "")

    def _shown(self, path: Path) -> str:
        return shown_path(path, self._base_folder)

    # -- without Spark -----------------------------------------------------------------------------

    def local(self, base_folder: Path) -> Iterator[pa.Table]:
        """The rows in pieces of some ten thousand, file by file."""
        self._base_folder = base_folder
        place = self.place(base_folder)
        pattern = self.options.text_or_none("source.path.regex-pattern")
        for path in files(place):
            if pattern is not None and re.fullmatch(pattern, str(path)) is None:
                continue
            yield from self._local_file(path, place, base_folder)

    def _local_file(self, path: Path, place: Path, base_folder: Path) -> Iterator[pa.Table]:
        if self.format_name == "parquet":
            from everfold.connectors.formats.parquet import local_parquet

            for piece in local_parquet(path, self.table, self.columns):
                yield self._assembled(piece, piece[0].__len__() if piece else 0, path, place)
            return
        form = self.format
        for rows in _decoded(path, form, self.columns, base_folder):
            columns = list(zip(*rows, strict=True)) if self.columns else []
            kinds = columns.pop() if form.changes else None
            piece = self._assembled(
                [_arrow(list(values), column.type) for values, column in zip(columns, self.columns, strict=True)],
                len(rows),
                path,
                place,
            )
            yield piece if kinds is None else piece.append_column(KIND, _arrow(list(kinds), TINYINT))

    def _assembled(self, columns: Sequence[Any], count: int, path: Path, place: Path) -> pa.Table:
        """A table of the record's columns, and what the file's name and state add."""
        import pyarrow as pa

        made: dict[int, Any] = {column.position: values for column, values in zip(self.columns, columns, strict=True)}
        keys = self.table.partition_keys
        said = partition_values(path, place, keys, self.options.text("partition.default-name")) if keys else []
        if said is None:
            raise bad_record(f"`{self._shown(path)}`", f"it is in no folder `{keys[0]}=…`", "", self.format)
        state = path.stat()
        for at, column in enumerate(self.table.columns):
            if at in made:
                continue
            value: object
            match column.metadata_key:
                case "file.path":
                    value = str(path)
                case "file.name":
                    value = path.name
                case "file.size":
                    value = state.st_size
                case "file.modification-time":
                    value = datetime.fromtimestamp(state.st_mtime_ns // 1_000_000 / 1000, UTC)
                case _:
                    text = said[keys.index(column.name)]
                    value = None if text is None else converter(column.type, _PARTITION_RULES)(text)
            made[at] = _arrow([value] * count, column.type)
        return pa.table(
            [made[at] for at in range(len(self.table.columns))],
            names=[physical(at) for at in range(len(self.table.columns))],
        )


def bad_record(where: str, reason: str, record: str, form: Format, *, lasting: bool = False) -> ConnectorError:
    """The error of a record that cannot be read: `where` says which it is. `lasting`: nobody can mend it where it lies."""
    message = f"{where}: {reason}" + (f"\n  | {excerpt(record, 160)}" if record else "")
    ways = [] if lasting else ["mend the record"]
    if form.ignore_option:
        ways.append(f"set '{form.ignore_option}' = 'true' to go on and count such records")
    return trouble("bad-record", message, help=", or ".join(ways) or None)


def _first(names: Sequence[str]) -> str:
    """Some of the names."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _plain(file_path: str) -> str:
    """Spark SQL: the path of a file as the file system knows it, from the URI that Spark gives."""
    return f"regexp_replace(url_decode(replace({file_path}, '+', '%2B')), '^file:/+', '/')"


def _arrow(values: list[Any], of: DataType) -> Any:
    import pyarrow as pa

    return pa.array(values, of.arrow)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, which may be compressed as its name says, with their numbers; `\\n` or `\\r\\n` ends a line."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            yield number, line.rstrip(b"\r\n")


def _opened(path: Path) -> IO[bytes]:
    if path.suffix not in _COMPRESSED:
        return open(path, "rb")
    import pyarrow as pa

    return io.BufferedReader(cast(io.RawIOBase, pa.input_stream(str(path), compression="detect")))


def _decoded(
    path: Path, form: Format, columns: Sequence[RecordColumn], base_folder: Path
) -> Iterator[list[list[object]]]:
    """The rows of a file, in pieces. Raises ConnectorError `bad-record` with the line."""
    decode = form.decoder(columns)
    rows: list[list[object]] = []
    for number, line in _readable_lines(path, base_folder):
        try:
            rows.extend(list(decode(line)))
        except BadValue as wrong:
            if form.ignore_errors:
                continue
            text = line[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise bad_record(f"`{shown_path(path, base_folder)}` line {number}", wrong.reason, text, form) from None
        if len(rows) >= _CHUNK_ROWS:
            yield rows
            rows = []
    if rows:
        yield rows


def _readable_lines(path: Path, base_folder: Path) -> Iterator[tuple[int, bytes]]:
    """The lines. Raises ConnectorError `bad-file`."""
    try:
        yield from _lines(path)
    except OSError as wrong:
        raise _bad_file(shown_path(path, base_folder), wrong.strerror or str(wrong)) from None


def _first_line_where(
    path: Path, form: Format, columns: Sequence[RecordColumn], holds: Callable[[list[object]], bool]
) -> int | None:
    """The first line with a row for which `holds`."""
    decode = form.decoder(columns)
    for number, line in _lines(path):
        try:
            if any(holds(row) for row in decode(line)):
                return number
        except BadValue:
            continue
    return None


def _find_in_file(path: Path, form: Format, columns: Sequence[RecordColumn]) -> tuple[int, str, str] | None:
    """The first record of a file that cannot be read: its line, why, and its text."""
    decode = form.decoder(columns)
    try:
        for number, line in _lines(path):
            try:
                for _ in decode(line):
                    pass
            except BadValue as wrong:
                return number, wrong.reason, line[:_SHOWN_BYTES].decode("utf-8", "replace")
    except OSError:
        return None
    return None


def _bad_file(shown: str, reason: str) -> ConnectorError:
    """The error of a file that cannot be read as what its name says it is."""
    return trouble("bad-file", f"`{shown}`: {reason}", help="mend the file, or take it away, and start again")
