"""Write files exactly once, for every reader, even if the job is killed at any time.

A batch is written in six steps; a crash can follow each of them:

1. tasks write hidden files (`parts`, in other stores `stored_parts`) and report them;
2. the driver creates the commit record `<records>/<epoch>-<batch>.json`, which commits the batch;
3. the mark `.everfold-<job and sink>` in the table's folder names the batch;
4. the files are copied to their visible names: on a local disk by hard links, elsewhere within the
   store, several at a time;
5. the hidden files are deleted;
6. the record is marked done.

A replayed batch without a record is written from scratch, possibly by other tasks. A replayed batch
with a record is run without writing, after step 5 was completed. Hidden files that no record names
are removed.

The records are in the job directory, so restoring an older copy of that folder restores older
records; the mark stays with the files.

When a job is rewound, the files of batches outside its lineage are withdrawn: renamed, so that no
reader sees them. They get their names back if a later rewind makes their batches part of the
lineage again.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.applied import is_applied
from everfold.connectors.blackhole import CountRows
from everfold.connectors.connector_errors import file_system_error
from everfold.connectors.contract import (
    KIND,
    AppliedBatch,
    BatchId,
    ClusterSink,
    JobLineage,
    OptionValues,
    Role,
    SinkContext,
    WorkerTask,
    as_spark_function,
    columns_of,
)
from everfold.connectors.filesystem.parts import FOLDER, REPORT, PackedPartWriter, PartWriter
from everfold.connectors.filesystem.paths import escape, escape_differently, escape_key, locate
from everfold.connectors.filesystem.stored_parts import StoredPartWriter
from everfold.connectors.filesystem.withdrawn import find_left_files, find_misnamed, identify_sink
from everfold.connectors.formats.format import record_columns
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_encode import string_sql
from everfold.engine_literals import spark_string
from everfold.error_transport import find_reports
from everfold.errors import ConnectorError, StateError
from everfold.files import write_atomically
from everfold.storage import UNFINISHED, Location, run_all
from everfold.types import DataType, TimeType, physical_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_MAX_RECORDS = 50
_IN_PROGRESS = ".inprogress"
_UNFINISHED = (_IN_PROGRESS, *UNFINISHED)
_MARK = ".everfold-"
_MARK_FIELDS = {"job": str, "sink": str, "epoch": int, "batch": int, "digest": str, "query": str, "folder": str}
_EXTENSIONS = {"csv": "csv", "parquet": "parquet", "raw": "txt"}
"""File name extensions by format; all others are JSON."""


class FileSink(ClusterSink):
    """A sink that writes the files of a table."""

    def __init__(self, context: SinkContext, options: OptionValues) -> None:
        super().__init__(context, options)
        self.root = locate(options.string("path"), context.base_folder, context.spark)
        self.records = context.records or self.root / ".everfold" / context.name
        self._swept: set[str] = set()
        self._columns = record_columns(context.table, Role.SINK)

    @property
    def target_folder(self) -> Location:
        """The folder of the table."""
        return self.root

    @property
    def folder(self) -> Path | None:
        """The folder of the table if it is on this machine."""
        return self.root.local_path

    # -- the batch ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create the folder, and publish the files of a batch committed before a crash."""
        path_option = self.options.string("path")
        job = self.context.job_folder
        if job is not None and self.root.is_in(job):
            raise ConnectorError.of(
                "target-in-job",
                f"table `{self.table.name}`: `{path_option}` is in the job's own folder",
                help="use another path",
            )
        if all((self.root / name).exists() for name in ("metadata", "offsets", "commits")):
            message = f"table `{self.table.name}`: `{path_option}` is a Spark checkpoint"
            raise ConnectorError.of("target-in-checkpoint", message)
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            self.records.make_folder()
            for path in self.records.glob("*.json"):
                record = _load_record(path)
                if not record["done"]:
                    self._publish(path, record)
        except OSError as wrong:
            raise self._write_error(wrong) from wrong
        if self.folder is not None and not os.access(self.folder, os.W_OK | os.X_OK):
            raise self._write_error(PermissionError(errno.EACCES, "Permission denied"))

    def last_applied(self, job: str, sink: str) -> AppliedBatch | None:
        """Return the last applied batch, by the mark and the names of visible files.

        The names matter because earlier versions wrote no mark, and a mark can be removed by
        mistake.
        """
        identity = identify_sink(job, sink)
        try:
            marked, newest = self._read_mark(identity), max(self._visible_batches(identity), default=None)
        except OSError as wrong:
            raise self._write_error(wrong) from wrong
        if newest is None or (marked is not None and newest <= (marked.epoch, marked.batch)):
            return marked
        return AppliedBatch(*newest)

    def find_other_job(self, job: str) -> str | None:
        """Return the folder of another job by its mark, if files of that job are visible."""
        for path in self.root.glob(f"{_MARK}*"):
            mark = _load_mark(path)
            is_other = mark["job"] != job and self.context.query != "" and mark["query"] == self.context.query
            if is_other and any(self._visible_batches(path.name.removeprefix(_MARK))):
                return str(mark["folder"])
        return None

    def _visible_batches(self, identity: str) -> Iterator[tuple[int, int]]:
        """Yield the epochs and batches of the visible files of a job's sink."""
        own = re.compile(rf"part-{identity}-(\d+)-(\d+)-\d+\.\w+")
        for file in self.root.walk():
            found = own.fullmatch(file.name)
            if found is not None:
                yield int(found[1]), int(found[2])

    def _read_mark(self, identity: str) -> AppliedBatch | None:
        path = self.root / f"{_MARK}{identity}"
        if not path.exists():
            return None
        mark = _load_mark(path)
        return AppliedBatch(mark["epoch"], mark["batch"], mark["digest"])

    def undo_discarded_batches(self, past: JobLineage) -> None:
        """Withdraw the visible files of batches outside the job's lineage.

        Withdrawn files of batches in the lineage get their names back; those of batches that no
        rollback leads to are deleted.
        """
        if past.rewind_epoch is None:
            return
        sinks = past.sinks.get(self.table.name, frozenset()) | {self.context.name}
        try:
            self._move(find_misnamed(self.root, sinks, past))
            left = find_left_files(self.root, past.job, sinks, past.left_epochs) if past.left_epochs else []
            run_all(Location.delete, [(file,) for file in left], parallel=self.folder is None)
        except OSError as wrong:
            raise self._write_error(wrong) from wrong

    def write(self, frame: DataFrame, batch: BatchId) -> int | None:
        """Write the batch. An applied batch is completed, and the frame is run without writing."""
        try:
            applied = self._complete_applied(batch)
            if applied is not None:
                frame.write.format("noop").mode("overwrite").save()
                return applied
            stem = self._begin(batch)
            files = self._run(frame, stem) if self.folder is not None else self._run_in_store(frame, stem)
            return self._commit(files, batch)
        except OSError as wrong:
            raise self._write_error(wrong) from wrong

    @property
    def takes_packed_rows(self) -> bool:
        """Whether the files are in one local folder; rows of partitions are sorted by Catalyst."""
        return not self.table.partition_keys and self.folder is not None

    def begin_batch(self, batch: BatchId) -> WorkerTask:
        """Return the task that writes hidden files, or drops the rows of an applied batch."""
        try:
            if self._complete_applied(batch) is not None:
                return CountRows()
            return PackedPartWriter(self._part_writer(self._begin(batch)))
        except OSError as wrong:
            raise self._write_error(wrong) from wrong

    def finish_batch(self, reports: Sequence[bytes], batch: BatchId) -> int | None:
        """Commit the files, unless the batch was applied before."""
        try:
            applied = self._complete_applied(batch)
            if applied is not None:
                return applied
            return self._commit([tuple(file) for report in reports for file in json.loads(report)], batch)
        except OSError as wrong:
            raise self._write_error(wrong) from wrong

    def _complete_applied(self, batch: BatchId) -> int | None:
        """Publish the files of an applied batch and return its rows, None for a new batch."""
        path = self._record_path(batch)
        identity = identify_sink(batch.job, batch.sink)
        applied = is_applied(self.table.name, batch, self._read_mark(identity))
        if path.exists():
            record = _load_record(path)
            if record["job"] == batch.job:
                if not record["done"]:
                    self._publish(path, record)
                self.applied = (batch.epoch, batch.batch)
                return int(record["rows"])
        if applied:
            self._check_published(identity, batch)
            self.applied = (batch.epoch, batch.batch)
            return 0
        return None

    def _begin(self, batch: BatchId) -> str:
        """Remove what an earlier attempt left, and return what identifies the batch's files."""
        identity = identify_sink(batch.job, batch.sink)
        self._sweep(identity)
        return f"{identity}-{batch.epoch}-{batch.batch}"

    def _commit(self, files: Sequence[tuple[str, str, int]], batch: BatchId) -> int:
        """Record the hidden files of a batch and publish them. Return the number of rows."""
        self._check_shared(files)
        rows = sum(rows for _, _, rows in files)
        record: dict[str, Any] = {
            "job": batch.job,
            "done": False,
            "rows": rows,
            "files": [each[:2] for each in files],
        }
        if batch.digest:  # the only batch of a batch job is never replayed
            record["mark"] = {
                "job": batch.job,
                "sink": batch.sink,
                "epoch": batch.epoch,
                "batch": batch.batch,
                "digest": batch.digest,
                "query": self.context.query,
                "folder": "" if self.context.job_folder is None else str(self.context.job_folder),
            }
        if files:
            path = self._record_path(batch)
            self._create_record(path, record)
            self._publish(path, record)
            self.applied = (batch.epoch, batch.batch)
            self._prune()
        return rows

    def _check_shared(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Check that tasks have written to the disk that the driver sees.

        Raises ConnectorError `executor-path`.
        """
        for name, _, _ in files if self.folder is not None else ():
            if not (self.root / name).exists():
                raise ConnectorError.of(
                    "executor-path",
                    f"table `{self.table.name}`: the driver does not see a file that an executor wrote to"
                    f" `{self.root}`",
                    help="every machine of the cluster needs the same shared file system at this path",
                )

    def _create_record(self, path: Location, record: dict[str, Any]) -> None:
        """Create the record that commits a batch. Raises StateError `job-taken-over`."""
        content = json.dumps(record)
        if path.create(content):
            return
        if _load_record(path)["job"] == record["job"]:
            raise StateError.of(
                "job-taken-over",
                f"table `{self.table.name}`: another process has written this batch; it runs the job now",
            )
        path.write(content)

    def _record_path(self, batch: BatchId) -> Location:
        return self.records / f"{batch.epoch}-{batch.batch}.json"

    def _part_writer(self, stem: str) -> PartWriter:
        name, root = self.options.string("format"), self.root.path
        if name != "parquet":
            form = format_of(name, self.table, self.options, f"{name}.")
            return PartWriter(root, stem, _EXTENSIONS.get(name, "json"), self._columns, form)
        schema = self._parquet_schema().serialize().to_pybytes()
        compression = self.options.string("parquet.compression").lower()
        return PartWriter(root, stem, _EXTENSIONS[name], self._columns, None, schema, compression)

    def _run_in_store(self, frame: DataFrame, stem: str) -> list[tuple[str, str, int]]:
        """Let Spark write the rows. Return temporary path, final path and rows of each file."""
        writer = StoredPartWriter(self._part_writer(stem), self.root, self.table.partition_keys != ())
        return writer.write(self._select(frame, writer.parts))

    def _run(self, frame: DataFrame, stem: str) -> list[tuple[str, str, int]]:
        """Run the tasks and return temporary path, final path and rows of each written file."""
        writer = self._part_writer(stem)
        frame = self._select(frame, writer)
        try:
            written = frame.mapInArrow(as_spark_function(writer), REPORT).collect()
        except Exception as error:
            known = self.parse_failure(str(error))
            if known is not None:
                raise known from None
            raise
        return [(row["temporary"], row["final"], row["rows"]) for row in written]

    def _select(self, frame: DataFrame, writer: PartWriter) -> DataFrame:
        """Return the columns that are written, with the folder in a table with partitions."""
        columns = [physical_name(column.position) for column in self._columns]
        if writer.form is not None and writer.form.is_changelog:
            columns.append(KIND)
        if self.table.partition_keys:
            columns.append(f"{self._folder()} AS {FOLDER}")
        frame = frame.selectExpr(*columns)
        if self.table.partition_keys:
            # One open file per task: the rows of a folder are adjacent.
            if self.options.flag("sink.shuffle-by-partition.enable"):
                frame = frame.repartition(FOLDER)
            frame = frame.sortWithinPartitions(FOLDER)
        return frame

    def _folder(self) -> str:
        """Return Spark SQL: the folder of a row, such as `dt=2020-04-15/kind=a%2Fb`."""
        parts: list[str] = []
        positions = {column.name: (at, column.type) for at, column in enumerate(columns_of(self.table, Role.SINK))}
        for key in self.table.partition_keys:
            at, of = positions[key]
            text = string_sql(of, physical_name(at))
            for character in _escaped_characters():
                text = f"replace({text}, char({ord(character)}), {spark_string(escape(character))})"
            null_name = self.options.string("partition.default-name")
            dots = f"WHEN rlike({text}, '^[.]+$') THEN replace({text}, '.', '%2E')"
            no_null = f"WHEN {text} = {spark_string(null_name)} THEN {spark_string(escape_differently(null_name))}"
            null = f"WHEN coalesce({text}, '') = '' THEN {spark_string(null_name)}"
            parts.append(f"concat({spark_string(escape_key(key) + '=')}, CASE {null} {no_null} {dots} ELSE {text} END)")
        return f"concat_ws('/', {', '.join(parts)})"

    def _parquet_schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(column.name, _file_type(column.type)) for column in self._columns])

    # -- the record --------------------------------------------------------------------------------

    def _publish(self, path: Location, record: dict[str, Any]) -> None:
        """Give the files of a record their visible names, and mark the record done."""
        self._write_mark(record.get("mark"))
        self._move([(self.root / temporary, self.root / final) for temporary, final in record["files"]])
        for folder in {temporary.partition("/")[0] for temporary, _ in record["files"]}:
            if folder.endswith(_IN_PROGRESS):  # it had the files of the batch; what else Spark left is there
                (self.root / folder).delete()
        path.write(json.dumps({**record, "done": True, "files": []}))

    def _move(self, files: Sequence[tuple[Location, Location]]) -> None:
        """Move files to other names; it can be repeated. Raises StateError `lost-file`."""
        run_all(self._copy_file, files, parallel=self.folder is None)
        for folder in {new.parent.path for _, new in files} if self.folder is not None else ():
            _sync_folder(Path(folder))
        run_all(lambda old, _: old.delete(), files, parallel=self.folder is None)

    def _copy_file(self, old: Location, new: Location) -> None:
        if new.exists():
            return
        try:
            old.copy_to(new)
        except FileExistsError:  # another process that runs the job has published the same batch
            return
        except FileNotFoundError:
            raise StateError.of(
                "lost-file",
                f"table `{self.table.name}`: the file `{new.relative_to(self.root)}` of a finished batch is gone",
                help="somebody removed it between two runs: its rows cannot be written again",
            ) from None

    def _check_published(self, identity: str, batch: BatchId) -> None:
        """Refuse a batch that is marked as written but has no record and still has hidden files.

        Raises StateError `lost-record`.
        """
        for file in self.root.walk():
            if f"/.part-{identity}-{batch.epoch}-{batch.batch}-" in f"/{file.relative_to(self.root)}":
                raise StateError.of(
                    "lost-record",
                    f"table `{self.table.name}`: batch {batch.batch} was being made visible,"
                    f" and its record in `{self.records}` is gone",
                    help="restore the newest copy of the job folder, or resume from the previous batch:"
                    " everfold rollback FOLDER --restored",
                )

    def _write_mark(self, mark: dict[str, Any] | None) -> None:
        """Write the mark of a batch to the table's folder, unless it has one of a later batch.

        mark: None in a record of an earlier version.
        """
        if mark is None:
            return
        identity = identify_sink(mark["job"], mark["sink"])
        last = self._read_mark(identity)
        if last is None or (last.epoch, last.batch) < (mark["epoch"], mark["batch"]):
            name = f"{_MARK}{identity}"
            if self.folder is None:
                (self.root / name).write(json.dumps(mark))
            else:  # other users may read the table, and its marks
                write_atomically(self.folder / name, json.dumps(mark))
                _sync_folder(self.folder)

    def _sweep(self, identity: str) -> None:
        """Remove hidden files that an earlier attempt left.

        Done once per run, as later attempts clean up after themselves.
        """
        if identity in self._swept:
            return
        # In another store, all files of a batch are in one hidden folder at the top.
        hidden = [*self.root.walk(), *(self.root.iterdir() if self.folder is None else ())]
        own = (f".part-{identity}-", f".{_MARK}{identity}.")
        left = [each for each in hidden if each.name.startswith(own) and each.name.endswith(_UNFINISHED)]
        run_all(Location.delete, [(file,) for file in left], parallel=self.folder is None)
        self._swept.add(identity)

    def _prune(self) -> None:
        """Remove old records: only the newest batch can be replayed."""
        found = [(each.modified_ms, each.name) for each in self.records.entries() if each.name.endswith(".json")]
        for _, name in sorted(found)[:-_MAX_RECORDS]:
            (self.records / name).delete()

    # -- failures ----------------------------------------------------------------------------------

    def parse_failure(self, error_text: str) -> ConnectorError | None:
        """Return this sink's error from the text of Spark's error, None without one."""
        self._swept.clear()
        for reason in find_reports(error_text, "write-failed"):
            number = getattr(errno, reason["errno"] or "EIO", errno.EIO)
            return self._write_error(OSError(number, reason["text"]))
        return None

    def _write_error(self, wrong: OSError) -> ConnectorError:
        self._swept.clear()
        where = f"table `{self.table.name}`: cannot write to `{self.options.string('path')}`"
        if wrong.errno == errno.ENAMETOOLONG:
            long = "a value of PARTITIONED BY is too long for a folder name"
            return ConnectorError.of(
                "file-system-error", f"{where}: {long}", self.table.span, "shorten the value: SUBSTRING, or MD5"
            )
        nothing = "nothing of the batch is visible; run the same command again to write it"
        return file_system_error(wrong, where, f"make room: {nothing}" if wrong.errno == errno.ENOSPC else nothing)


def _file_type(of: DataType) -> pa.DataType:
    """Return the Arrow type of a column in a Parquet file."""
    import pyarrow as pa

    return pa.time32("ms") if isinstance(of, TimeType) else of.arrow


def _escaped_characters() -> list[str]:
    """Return the characters that are escaped in a folder name, `%` first."""
    found = [chr(code) for code in range(128) if escape(chr(code)) != chr(code) and chr(code) not in ".%"]
    return ["%", *found]


def _load_record(path: Location) -> dict[str, Any]:
    """Read a commit record. Raises StateError `damaged-record`."""
    record = _load_object(path)
    if record.keys() >= {"job", "done", "rows", "files"}:
        return record
    raise StateError.of(
        "damaged-record",
        f"`{path}` is not a record of a written batch",
        help="restore the job directory from a backup, or start from scratch with another --state folder and `path`",
    )


def _load_mark(path: Location) -> dict[str, Any]:
    """Read a mark. Raises StateError `damaged-record`."""
    mark = _load_object(path)
    if mark.keys() == _MARK_FIELDS.keys() and all(type(mark[name]) is of for name, of in _MARK_FIELDS.items()):
        return mark
    raise StateError.of(
        "damaged-record",
        f"`{path}` does not name the last batch written to the table",
        help="restore it from a backup. If the job directory is as new as the table, move the file to another folder",
    )


def _load_object(path: Location) -> dict[str, Any]:
    """Read a JSON object. Anything else is read as an empty one."""
    with suppress(ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
    return {}


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
