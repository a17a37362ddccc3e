"""Read the files of a table: with Spark as a batch or stream, without it for the memory engine.

A stream reads whole files, oldest first, as many per batch as `scan.max-bytes-per-batch` allows. A
file is read once, by its path. A file must be complete when it gets its name: write it elsewhere,
or under a name with a leading dot, and rename it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.checkpoint.file_log import (
    decode_uri,
    list_read_files,
    list_read_places,
    move_files,
    parse_number,
    read_batches,
)
from everfold.checkpoint.logs import Position, read_position
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.contract import KIND, SPLIT, History, OptionValues, ReadSize, Role, Source, SourceContext
from everfold.connectors.decoded_rows import DecodedRows
from everfold.connectors.file_order import FILE, file_order_sql, file_path_sql
from everfold.connectors.filesystem.file_rows import PARTITION_RULES, FileRows, denied_error, folder_error, gone_error
from everfold.connectors.filesystem.known_files import find_changed_files, record_of_files
from everfold.connectors.filesystem.lines import bad_file_error
from everfold.connectors.filesystem.paths import (
    ListedFolders,
    check_names,
    colon_in_name_error,
    display_path,
    escape_key,
    is_hidden,
    list_files,
    locate,
    normalize_path,
    require_readable,
    resolve,
    unescape_in_spark,
)
from everfold.connectors.filesystem.read_again import copies_folder, restore_read_files
from everfold.connectors.filesystem.worker_files import FileReader, StoredReader, stored_handle_sql
from everfold.connectors.formats.format import (
    RecordLocation,
    find_bad_record,
    raise_bad_record,
    record_columns,
)
from everfold.connectors.formats.registry import changelog_of
from everfold.connectors.formats.text_decode import convert_sql, excerpt
from everfold.connectors.null_rowtime import LOCATION, NullRowtime, find_null_rowtime
from everfold.connectors.skipped_rows import BAD_RECORD, EXAMPLE_CHARACTERS, SkippedRow, SkippedRows
from everfold.connectors.worker_reader import HANDLE, WorkerInput
from everfold.engine_literals import spark_string
from everfold.errors import ConnectorError, UnsupportedFeature
from everfold.local_paths import is_remote
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table, TableColumn
from everfold.storage import Location, run_all
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from everfold.connectors.formats.parquet_catalyst import FileTypes

_MAX_NAMES = 5
_MEASURED_FILES = 10_000
_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_NEVER = "36500d"
"""Spark forgets files that are older than the newest one by this, and would skip them."""
_FilesByTypes = dict[tuple[tuple[str, str], ...] | None, list[str]]
"""Patterns of files by the items of their `FileTypes`; by None, those that workers decode."""


class FileSource(Source):
    """A source that reads the files of a folder."""

    reads_files = True

    def __init__(self, table: Table, options: OptionValues) -> None:
        self.table = table
        self.options = options
        self.columns = record_columns(table, Role.SOURCE)
        self._base_folder = Path.cwd()
        self._listed: ListedFolders = {}
        self._root: Location | None = None
        self._copies: Path | None = None
        self._stream_types: FileTypes | None = None

    @property
    def format_name(self) -> str:
        """The name of the files' format."""
        return self.options.string("format")

    @property
    def poll_ms(self) -> int | None:
        """The interval at which the folder is checked for new files, None without watching."""
        return self.options.number_or_none("source.monitor-interval")

    def is_bounded(self) -> bool:
        """Return whether the folder is not watched."""
        return self.poll_ms is None

    def size(self, base_folder: Path, enough: int) -> int | None:
        """Return the total size of the current files."""
        if not self.is_bounded() or self._is_remote:
            return None
        total = 0
        try:
            for file in list_files(resolve(self.options.string("path"), base_folder)):
                total += file.stat().st_size
                if total >= enough:
                    break
        except OSError:  # reported when the file is read
            return None
        return total

    def location(self, base_folder: Path) -> str:
        """Return the real path of the folder or file, or its URI in another store."""
        return normalize_path(self.options.string("path"), base_folder)

    @property
    def _is_remote(self) -> bool:
        """Whether the files are in another store than the local disk."""
        return is_remote(self.options.string("path"))

    def move(self, checkpoint: Location, name: str, old: str, new: str) -> None:
        """Rewrite the paths in the source's log, as a file is read once, by its path."""
        move_files(checkpoint / "sources" / name, old, new)

    def find_changes(self, context: SourceContext, log: Location) -> list[str]:
        """Report files that have changed or were renamed since they were read; only local ones."""
        if self._is_remote or context.start_folder is None or not log.is_dir():
            return []
        root = resolve(self.options.string("path"), context.base_folder)
        with suppress(OSError, ValueError, KeyError, TypeError):  # damage is reported on use
            position = read_position(log.parent.parent, context.name)
            reached = -1 if position is None else parse_number(position.line)
            found = find_changed_files(log, record_of_files(context), root, reached)
            moved = [f"{self._display_path(new)} ({self._display_path(old)} before)" for new, old in found.moved]
            changes = [
                (
                    "changed since they were read; what was added to them is not read",
                    list(map(self._display_path, found.changed)),
                ),
                ("were read under another name and are read again", moved),
            ]
            return [
                f"table `{self.table.name}`: files that {what}: {_join_names(names)}"
                for what, names in changes
                if names
            ]
        return []

    def resolve_path(self, base_folder: Path, *, for_spark: bool = False) -> Path:
        """Return the path of the files. for_spark: whether Spark has to open them.

        Raises ConnectorError `no-such-path`, `bad-file-name`.
        """
        path = self.options.string("path")
        root = resolve(path, base_folder)
        require_readable(self.table, root, path)
        check_names(self.table, root, base_folder, for_spark=for_spark, listed=self._listed)
        return root

    def check_arrivals(self, base_folder: Path) -> None:
        """Refuse new files that Spark does not see. Raises ConnectorError `bad-file-name`."""
        if not self._is_remote:
            root = resolve(self.options.string("path"), base_folder)
            check_names(self.table, root, base_folder, for_spark=True, listed=self._listed)

    def has_passed(self, now: Position, then: Position) -> bool:
        """Return whether all files read up to `then` are read, in any batches."""
        return set(list_read_places(then)) <= set(list_read_places(now))

    def describe_lost(self, then: Position) -> str | None:
        """Return how many files no longer exist."""
        read = list_read_places(then)
        there = self._find_present(read)
        gone = [each for each in read if each not in there]
        return f"{len(gone):,} of the {len(read):,} files that were read" if gone else None

    def _path_outside_job(self, context: SourceContext) -> Location:
        """Return the path of the files, which must not contain the job directory.

        Raises ConnectorError `job-in-source`, and those of `resolve_path`.
        """
        self._base_folder = context.base_folder
        path, job = self.options.string("path"), context.job_folder
        root = self._root = locate(path, context.base_folder, context.spark)
        if self._is_remote:
            self._require_remote(root)
        else:
            self.resolve_path(context.base_folder, for_spark=True)
        if job is not None and job.is_in(root) and not any(map(is_hidden, job.relative_to(root).split("/"))):
            raise ConnectorError.of(
                "job-in-source",
                f"table `{self.table.name}`: the job directory `{job}` lies in `{self.options.string('path')}`,"
                " which the table reads",
                self.table.span_of_option("path"),
                "name a job directory outside of it: --state FOLDER",
            )
        return root

    def _require_remote(self, root: Location) -> None:
        """Raise ConnectorError `no-such-path` or `file-system-error` if there is no such path."""
        where = f"table `{self.table.name}`: "
        try:
            if root.exists():
                return
        except OSError as wrong:
            message = f"{where}cannot read `{root}`"
            raise file_system_error(wrong, message, "mend that and run the same command again") from wrong
        raise ConnectorError.of(
            "no-such-path", f"{where}there is no file or folder `{root}`", self.table.span_of_option("path")
        )

    def _list(self, root: Location) -> Iterator[Path | Location]:
        """Yield the files of the table, oldest first, as Spark does."""
        folder = root.local_path
        if folder is not None:
            yield from list_files(folder)
        elif root.is_file():
            yield root
        else:
            found = (each for each in root.store.walk(root.path) if not any(map(is_hidden, each.name.split("/"))))
            yield from (root / each.name for each in sorted(found, key=lambda each: (each.modified_ms, each.name)))

    def _find_present(self, places: Iterable[str]) -> set[str]:
        """Return those of some files that exist."""
        if self._root is None or self._root.local_path is not None:
            return {each for each in places if Path(each).is_file()}
        present = {str(each) for each in self._list(self._root)}
        return {each for each in places if each in present}

    # -- Spark -------------------------------------------------------------------------------------

    def stream(self, context: SourceContext) -> DataFrame:
        """Return the rows of the files as a stream."""
        if self.format_name != "parquet" or not self._is_remote:
            return self._decode(self.stream_in_worker(context, range(len(self.table.columns))), context)
        from everfold.connectors.formats.parquet_catalyst import declared_types

        root = self._path_outside_job(context)
        reader = self._stream_reader(context)
        first = self._read_first_types(root)
        self._stream_types = (first and first[1]) or declared_types(self.columns)
        return self._parquet_frame(reader, context, root, root.pattern, self._stream_types)

    def reason_not_in_worker(self, columns: Sequence[int]) -> str | None:
        """Return why tasks cannot decode files, None if they can: local ones."""
        return "files in another store" if self._is_remote else None

    def stream_in_worker(self, context: SourceContext, columns: Sequence[int]) -> WorkerInput:
        """Return a stream of the paths of files, or of the lines of files in another store."""
        root = self._path_outside_job(context)
        if self.format_name == "parquet":
            self._read_first_types(root)
        return self._handles(self._stream_reader(context), context, root, root.pattern, columns)

    def _handles(
        self, reader: Any, context: SourceContext, root: Location, paths: str | list[str], columns: Sequence[int]
    ) -> WorkerInput:
        """Return what workers decode. columns: the positions of those that are needed."""
        base_folder, path = self._base_folder.absolute(), str(root) if self._is_remote else root.path
        rows = FileRows(self.table, self.options, base_folder, path, tuple(columns), True, context.zone)
        path, changed = file_path_sql(self._copies), "_metadata.file_modification_time"
        reader = reader.option("recursiveFileLookup", "true")
        if self._is_remote:
            has_whole_files = rows.format is not None and rows.format.has_long_records
            lines = reader.format("text").option("lineSep", "\n").option("wholetext", str(has_whole_files).lower())
            frame = lines.load(paths).selectExpr(
                "value", "_metadata.file_size AS __size", f"{path} AS __path", f"{changed} AS __changed"
            )
            handle = stored_handle_sql(file_order_sql("__changed", "__path"), "__size", "value")
            frame = self._matching(frame).selectExpr(f"{handle} AS {HANDLE}")
            return WorkerInput(frame, StoredReader(rows, has_whole_files))
        frame = reader.format("binaryFile").schema(_FILE_SCHEMA).load(paths)
        frame = self._matching(frame.selectExpr(f"{path} AS __path", f"{changed} AS __changed"))
        frame = frame.selectExpr(f"CAST({file_order_sql('__changed', '__path')} AS BINARY) AS {HANDLE}")
        return WorkerInput(frame, FileReader(rows, self._copies))

    def _stream_reader(self, context: SourceContext) -> Any:
        reader = context.spark.readStream.name(context.name).option("maxFileAge", _NEVER)
        count = self.options.number_or_none("scan.max-files-per-batch")
        if count is not None:
            return reader.option("maxFilesPerTrigger", str(count))
        return reader.option("maxBytesPerTrigger", str(self.options.number("scan.max-bytes-per-batch")))

    @property
    def has_checked_batches(self) -> bool:
        """Whether Spark reads the files of a stream, all in the types of the first one."""
        return self._stream_types is not None

    def check_batch(self, since: Position | None, until: Position) -> None:
        """Check the Parquet files of a batch.

        Raises ConnectorError `missing-column`, `wrong-column-type`, `bad-file`, `no-permission`.
        """
        from everfold.connectors.formats.parquet_catalyst import check_units

        assert self._stream_types is not None
        before = -1 if since is None else parse_number(since.line)
        read = [each.place for each in read_batches(until.log, before, parse_number(until.line))]
        for file, types in self._read_types(self._locate_all(filter(self._is_wanted, read))):
            assert types is not None  # the files are in another store
            check_units(file, types, self._stream_types, self.table, self.columns)

    def _read_first_types(self, root: Location) -> tuple[Path | Location, FileTypes | None] | None:
        """Return the oldest Parquet file and its types, None if there is no file."""
        read = (self._read_types([file]) for file in self._list(root) if self._is_wanted(file))
        return next((found[0] for found in read if found), None)

    def _read_types(self, files: Iterable[Path | Location]) -> list[tuple[Path | Location, FileTypes | None]]:
        """Return the types of Parquet files, those that still exist.

        None for a file that workers decode.
        """
        from everfold.connectors.formats.parquet_catalyst import read_types, require_spark_types

        found: dict[int, FileTypes | None] = {}

        def read(at: int, file: Path | Location) -> None:
            try:
                types, is_alike = read_types(file, self.table, self.columns)
                if self._is_remote:
                    found[at] = require_spark_types(file, types, self.table)
                else:
                    found[at] = types if is_alike else None
            except FileNotFoundError:
                return
            except PermissionError:
                raise denied_error(self.table, self._display_path(str(file))) from None

        files = list(files)
        run_all(read, list(enumerate(files)), parallel=self._is_remote)
        return [(files[at], found[at]) for at in sorted(found)]

    def batch(self, context: SourceContext) -> DataFrame:
        """Return the rows of the current files."""
        root = self._path_outside_job(context)
        if self.format_name == "parquet":
            return self._parquet_folder(context, root)
        if next(self._list(root), None) is None:
            return self._empty(context)
        return self._decoded_frame(context, root, root.pattern)

    def history(self, context: SourceContext, position: Position | None) -> History:
        """Return the rows of the files that the job has read, without files deleted since."""
        root = self._path_outside_job(context)
        read = {} if position is None else {file.place: file for file in list_read_files(position)}
        there = self._find_present(read)
        found = [each for each in read if each in there]
        if not found:
            return History(self._empty(context))
        places = found
        if root.local_path is not None:
            self._copies = copies_folder(context)
            places = restore_read_files(context, {place: read[place] for place in found}, root.local_path)
        chosen = self._locate_all(places)
        if self.format_name == "parquet":
            frame = self._unite(context, root, self._group_by_types(root, chosen))
        else:
            frame = self._decoded_frame(context, root, [each.pattern for each in chosen])
        return History(frame, {place: at for at, place in enumerate(found)})

    def measure_read(self, base_folder: Path, position: Position) -> ReadSize:
        """Return the number of files and, of local ones, their size."""
        places = list_read_places(position)
        if self._is_remote:
            return ReadSize(files=len(places))
        # Looking at every file of a large table takes time: the size is estimated from some.
        step = max(1, len(places) // _MEASURED_FILES)
        sizes = [size for size in map(_find_size, places[::step]) if size is not None]
        files = len(sizes) * step if step > 1 else len(sizes)
        return ReadSize(size_bytes=sum(sizes) * step, files=files)

    def _locate_all(self, places: Iterable[str]) -> list[Location]:
        assert self._root is not None
        return [Location(each, self._root.store) for each in places]

    def _empty(self, context: SourceContext) -> DataFrame:
        fields = [f"{physical_name(at)} {column.type.spark}" for at, column in enumerate(self.table.columns)]
        fields += [f"{KIND} TINYINT"] * (changelog_of(self.format_name) is not ChangelogMode.INSERT_ONLY)
        hidden = [f"{name} STRING" for name in (SPLIT, LOCATION, FILE)]
        return context.spark.createDataFrame([], ", ".join([*fields, *hidden]))

    def _parquet_folder(self, context: SourceContext, root: Location) -> DataFrame:
        """Return the rows of the current Parquet files, each read in its own types."""
        first = self._read_first_types(root)
        if first is None:
            return self._empty(context)
        _, types = first
        # Spark lists the files now, so all of them are in the second list. It takes three times as
        # long if it is given each file.
        frame = None if types is None else self._parquet_frame(context.spark.read, context, root, root.pattern, types)
        groups = self._group_by_types(root, self._list(root))
        has_all_files = self.options.string_or_none("source.path.regex-pattern") is None
        is_uniform = types is not None and list(groups) == [tuple(types.items())]
        return frame if frame is not None and has_all_files and is_uniform else self._unite(context, root, groups)

    def _group_by_types(self, root: Location, files: Iterable[Path | Location]) -> _FilesByTypes:
        """Group Parquet files by the types in which Spark reads them."""
        groups: _FilesByTypes = {}
        for file, types in self._read_types(filter(self._is_wanted, files)):
            place = file if isinstance(file, Location) else Location(str(file), root.store)
            groups.setdefault(None if types is None else tuple(types.items()), []).append(place.pattern)
        return groups

    def _unite(self, context: SourceContext, root: Location, groups: _FilesByTypes) -> DataFrame:
        """Return the rows of Parquet files."""
        frames = [
            self._decoded_frame(context, root, paths)
            if types is None
            else self._parquet_frame(context.spark.read, context, root, paths, dict(types))
            for types, paths in groups.items()
        ]
        return reduce(lambda left, right: left.unionAll(right), frames) if frames else self._empty(context)

    def _parquet_frame(
        self, reader: Any, context: SourceContext, root: Location, paths: str | list[str], types: FileTypes
    ) -> DataFrame:
        """Return the rows of Parquet files with these types."""
        from everfold.connectors.formats.parquet_catalyst import read_parquet

        context.spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        frame, values = read_parquet(
            reader.option("recursiveFileLookup", "true"),
            paths,
            types,
            self.table,
            self.columns,
            file_path_sql(self._copies),
        )
        return self._with_columns(frame, values, root)

    def _decoded_frame(self, context: SourceContext, root: Location, paths: str | list[str]) -> DataFrame:
        """Return the rows of files that workers decode, as a batch."""
        columns = range(len(self.table.columns))
        return self._decode(self._handles(context.spark.read, context, root, paths, columns), context)

    def _decode(self, handles: WorkerInput, context: SourceContext) -> DataFrame:
        decoded = DecodedRows(
            handles,
            [column.type for column in self.table.columns],
            self.table.name,
            context.name,
            self.table.identity,
            has_changes=changelog_of(self.format_name) is not ChangelogMode.INSERT_ONLY,
            has_files=True,
        )
        return decoded.to_frame()

    def _with_columns(self, frame: DataFrame, values: dict[int, str], root: Location) -> DataFrame:
        """Return the table's columns. values: Spark SQL for those of the records, by position."""
        out = [
            f"{self._column(at, column, values, root)} AS {physical_name(at)}"
            for at, column in enumerate(self.table.columns)
        ]
        frame = self._matching(frame)
        kind = [KIND] if KIND in frame.columns else []
        split = f"{spark_string(self.table.identity)} AS {SPLIT}"
        return frame.selectExpr(
            *out, split, f"__path AS {LOCATION}", f"{file_order_sql('__changed', '__path')} AS {FILE}", *kind
        )

    def _is_wanted(self, file: Path | Location | str) -> bool:
        """Whether the path of a file matches the table's pattern, if it has one."""
        pattern = self.options.string_or_none("source.path.regex-pattern")
        return pattern is None or re.fullmatch(pattern, str(file).removeprefix(str(self._copies or ""))) is not None

    def _matching(self, frame: DataFrame) -> DataFrame:
        """Return the rows of files whose path matches the table's pattern, if it has one."""
        pattern = self.options.string_or_none("source.path.regex-pattern")
        if pattern is None:
            return frame
        return frame.where(f"rlike(__path, {spark_string(chr(92) + 'A(?:' + pattern + ')' + chr(92) + 'z')})")

    def _column(self, at: int, column: TableColumn, values: dict[int, str], root: Location) -> str:
        if at in values:
            return values[at]
        if column.metadata_key is None:
            return self._partition(column, root)
        plain = {
            "file.path": "__path",
            "file.name": "substring_index(__path, '/', -1)",
            "file.size": "__size",
            "file.modification-time": "__changed",
        }[column.metadata_key]
        return f"CAST({plain} AS {column.type.spark})"

    def _partition(self, column: TableColumn, root: Location) -> str:
        keys = "|".join(map(re.escape, dict.fromkeys((escape_key(column.name), column.name))))
        folder = f"(?s).*/(?:{keys})=([^/]*)/"
        within = f"substring(__path, {len(str(root)) + 1})"
        name = f"regexp_extract({within}, {spark_string(folder)}, 1)"
        text = unescape_in_spark(name)
        value = convert_sql(text, column.type, PARTITION_RULES)
        where = RecordLocation(self.table.name, (("path", "__path"),))
        return (
            f"CASE WHEN NOT rlike({within}, {spark_string(folder)}) THEN {raise_bad_record(where, column.name, name)}"
            f" WHEN {name} = {spark_string(self.options.string('partition.default-name'))} THEN NULL"
            f" ELSE coalesce({value}, {raise_bad_record(where, column.name, text)}) END"
        )

    # -- failures ----------------------------------------------------------------------------------

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return the error for a bad record, or for a file that was deleted or is unreadable."""
        report = find_bad_record(error_text, self.table.name)
        if report is not None:
            return self._wrong_folder(report)
        timeless = find_null_rowtime(error_text)
        if timeless is not None and timeless.table == self.table.name:
            return timeless.error(self._timeless_line(timeless))
        gone = self._own_file(r"(?:FILE_NOT_EXIST|FileNotFoundException)[^\n]*?(\w+:/[^\s,'\"]+)", error_text)
        if gone is not None:
            return gone_error(self.table, self._display_path(gone))
        denied = self._own_file(r"(/[^\s(),:'\"]+)[^\n]*Permission denied", error_text)
        if denied is not None:
            return denied_error(self.table, self._display_path(denied))
        unread = self._own_file(r"(?:FAILED_READ_FILE|CANNOT_READ_FILE)[^\n]*?(\w+:/[^\s,]+)", error_text)
        if self.format_name == "parquet":
            return None if unread is None else self._bad_parquet(unread)
        if unread is not None and ":" in unread.rpartition("/")[2]:
            return colon_in_name_error(self.table, self._display_path(unread))
        if unread is not None:
            causes = re.findall(r"Caused by: [\w.$]+: ([^\n]+)", error_text)
            return bad_file_error(
                self._display_path(unread), excerpt(causes[-1], 160) if causes else "it cannot be read"
            )
        return None

    def _bad_parquet(self, path: str) -> ConnectorError:
        """Return the error for a Parquet file that Catalyst could not read."""
        from everfold.connectors.formats.parquet import find_bad_value

        found = None if self._is_remote else find_bad_value(Path(path), self.table, self.columns)
        what = f"table `{self.table.name}`: `{path}` is not a readable Parquet file"
        return found or ConnectorError.of("bad-file", what)

    def _own_file(self, pattern: str, error_text: str) -> str | None:
        """Return the file of this table that the pattern's first group (a path or URI) names."""
        root = self.location(self._base_folder)
        for found in re.finditer(pattern, error_text):
            name = found.group(1).rstrip(".")
            place = name if name.startswith("/") else decode_uri(name)
            if place == root or place.startswith(f"{root}/"):
                return place
        return None

    def _wrong_folder(self, report: dict[str, object]) -> ConnectorError:
        """Return the error for a file whose folder has no value of a partition key."""
        column, text = report.get("column"), str(report.get("text", ""))
        if self.format_name == "parquet" and column not in self.table.partition_keys:
            return self._bad_parquet(str(report.get("path")))
        of = next(each.type for each in self.table.columns if each.name == column)
        reason = f"field `{column}` is not a value of {of.sql}: `{excerpt(text)}`"
        return folder_error(None, f"`{self._display_path(str(report.get('path')))}`", reason)

    def _timeless_line(self, timeless: NullRowtime) -> str | None:
        """Return file and line of the first record whose time is NULL.

        Only the file if the time is computed, or the format is not a text format.
        """
        path = Path(timeless.location or "")
        if not path.is_file():
            return f"`{timeless.location}`" if is_remote(timeless.location or "") else None
        position = next((each.position for each in self.columns if each.name == timeless.column), None)
        line = None
        if position is not None and self.format_name != "parquet":
            rows = FileRows(self.table, self.options, self._base_folder, "", [position])
            line = rows.first_line_where_null(path, position)
        return f"`{self._display_path(path)}`" + (f" line {line}" if line is not None else "")

    def _display_path(self, path: Path | str) -> str:
        return display_path(path, self._base_folder)

    # -- without Spark -----------------------------------------------------------------------------

    def read_local(self, base_folder: Path, skipped: SkippedRows | None = None) -> Iterator[pa.Table]:
        """Yield the rows file by file, in pieces of some ten thousand.

        Raises UnsupportedFeature `file-system` for files in another store.
        """
        if self._is_remote:
            raise UnsupportedFeature.of(
                "file-system",
                f"table `{self.table.name}`: files in another store are read only by Spark",
                self.table.span_of_option("path"),
                "everfold run --engine spark",
            )
        self._base_folder = base_folder
        root = self.resolve_path(base_folder)
        rows = FileRows(self.table, self.options, base_folder, str(root), range(len(self.table.columns)))
        for path in filter(self._is_wanted, list_files(root)):
            for piece in rows.read(path):
                if piece.skipped and skipped is not None:
                    place, record = piece.example
                    location = f"`{self._display_path(path)}`{place.removeprefix(str(path))}"
                    row = SkippedRow.at(location, BAD_RECORD, self.table.name, record[:EXAMPLE_CHARACTERS])
                    skipped.add(row, piece.skipped)
                yield piece.rows


def _join_names(names: Sequence[str]) -> str:
    """Join the first few names."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _find_size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:  # it was deleted
        return None
