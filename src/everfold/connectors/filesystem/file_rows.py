"""Read the rows of files in Python: in workers of Spark and in the memory engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everfold.connectors.contract import KIND, OptionValues, Role
from everfold.connectors.filesystem.lines import LineBlock, LineRules, read_line_blocks
from everfold.connectors.filesystem.paths import display_path, partition_values
from everfold.connectors.formats.csv import CsvFormat
from everfold.connectors.formats.csv_lines import LineJoiner
from everfold.connectors.formats.format import Format, record_columns
from everfold.connectors.formats.record_decoder import BadRecord, Decoded, RecordDecoder, show_record
from everfold.connectors.formats.registry import format_of
from everfold.connectors.formats.text_decode import TextRules, converter, excerpt
from everfold.connectors.metadata import convert_metadata
from everfold.connectors.worker_reader import Piece
from everfold.errors import ConnectorError
from everfold.plan.nodes import Table, TableColumn
from everfold.types import physical_name

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_RULES = TextRules(minutes=True, time_minutes=True, zone="")
"""The syntax of values in names of folders."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file, and what is known about it. path: as people know it."""

    path: str
    size: int
    modified_ms: int

    @classmethod
    def of(cls, path: Path, copy: Path | None = None) -> FileFacts:
        """Look at a local file, or at the copy that is read instead."""
        facts = (copy or path).stat()
        return cls(str(path), facts.st_size, facts.st_mtime_ns // 1_000_000)


@dataclass(frozen=True)
class FileRows:
    """Reads rows of the files of a table.

    root: the path of the table. wanted: the positions of the columns that are needed. as_views:
    whether texts of Parquet files are returned as string views. zone: of the session.
    """

    table: Table
    options: OptionValues
    base_folder: Path
    root: str
    wanted: Sequence[int]
    as_views: bool = False
    zone: str = "UTC"

    def read(self, path: Path, copy: Path | None = None) -> Iterator[Piece]:
        """Yield the rows of a local file, in pieces. copy: is read instead.

        Raises ConnectorError `file-gone`, `no-permission`, `bad-file`, `bad-record` and others.
        """
        if not path.exists():
            raise gone_error(self.table, self.show(path))
        if not os.access(path, os.R_OK):
            raise denied_error(self.table, self.show(path))
        facts, path = FileFacts.of(path, copy), copy or path
        if self.format is not None:
            yield from self.read_lines(read_line_blocks(path, self.base_folder, self.line_rules), facts)
            return
        from everfold.connectors.formats.parquet import read_parquet_local
        from everfold.connectors.formats.parquet_views import read_parquet_views

        columns = [column for column in record_columns(self.table, Role.SOURCE) if column.position in self.wanted]
        read_file = read_parquet_views if self.as_views else read_parquet_local
        for count, values in read_file(path, self.table, columns):
            read = {column.position: array for column, array in zip(columns, values, strict=True)}
            yield Piece(self._add_facts(read, count, facts), origin=facts.path)

    def read_lines(self, lines: Iterator[LineBlock], facts: FileFacts) -> Iterator[Piece]:
        """Yield the rows of the lines of a file, in pieces. Raises ConnectorError `bad-record`."""
        for block in self._join(lines):
            decoded = self.decode(block, facts)
            skipped = len(decoded.flawed)
            example = ("", "")
            if skipped:
                first = decoded.flawed[0]
                example = (self._locate(facts.path, block, first), show_record(block.content[first].as_py()))
            named = dict(zip(decoded.rows.column_names, decoded.rows.columns, strict=True))
            names = {position: physical_name(position) for position in self.wanted}
            columns = {position: named[name] for position, name in names.items() if name in named}
            rows = self._add_facts(columns, decoded.rows.num_rows, facts)
            if KIND in named:
                rows = rows.append_column(KIND, named[KIND])
            yield Piece(rows, origin=facts.path, skipped=skipped, example=example)

    def decode(self, block: LineBlock, facts: FileFacts) -> Decoded:
        """Decode lines of a file. Raises ConnectorError `bad-record`."""
        assert self.format is not None
        try:
            return self._decoder.decode(block.content)
        except BadRecord as bad:
            where = self._locate(f"`{self.show(facts.path)}`", block, bad.index)
            raise self.format.bad_record_error(where, bad.reason, show_record(bad.record)) from None

    def first_line_where_null(self, path: Path, position: int) -> int | None:
        """Return the number of the first line in which a column is NULL."""
        reader = FileRows(self.table, self.options, self.base_folder, self.root, [position])
        facts = FileFacts.of(path)
        for block in reader._join(read_line_blocks(path, self.base_folder, reader.line_rules)):
            decoded = reader.decode(block, facts)
            missing = decoded.rows.column(physical_name(position)).is_null().to_numpy()
            if missing.any():
                return block.numbers[int(decoded.row_records[missing.argmax()])]
        return None

    @cached_property
    def format(self) -> Format | None:
        """The format of records, None for Parquet."""
        name = self.options.string("format")
        return None if name == "parquet" else format_of(name, self.table, self.options, f"{name}.")

    @cached_property
    def line_rules(self) -> LineRules:
        """How the files are divided into lines."""
        is_csv = isinstance(self.format, CsvFormat)
        return LineRules(self._keeps_empty or is_csv, keep_returns=is_csv)

    @cached_property
    def _keeps_empty(self) -> bool:
        """Whether an empty record may have a row."""
        assert self.format is not None
        return not self.format.skips_empty(record_columns(self.table, Role.SOURCE))

    @cached_property
    def _decoder(self) -> RecordDecoder:
        assert self.format is not None
        return RecordDecoder(self.format, record_columns(self.table, Role.SOURCE), self.wanted)

    def _join(self, lines: Iterator[LineBlock]) -> Iterator[LineBlock]:
        """Yield the records of lines: one may have several lines in CSV."""
        if not isinstance(self.format, CsvFormat):
            yield from lines
            return
        for block in self._join_quoted(lines, self.format.line_joiner()):
            yield trim_records(block, keep_empty=self._keeps_empty)

    @staticmethod
    def _join_quoted(lines: Iterator[LineBlock], joiner: LineJoiner | None) -> Iterator[LineBlock]:
        import pyarrow as pa

        if joiner is None:
            yield from lines
            return
        for block in lines:
            yield LineBlock(*joiner.join(block.content, block.numbers))
        rest = list(joiner.end())
        if rest:
            yield LineBlock(pa.array([line for _, line in rest], pa.binary()), [number for number, _ in rest])

    def _locate(self, path: str, block: LineBlock, index: int) -> str:
        return f"{path} line {block.numbers[index]}" if block.numbers else path

    def show(self, path: Path | str) -> str:
        """Return a path as messages show it."""
        return display_path(path, self.base_folder)

    # -- columns that are not in records -----------------------------------------------------------

    def _add_facts(self, columns: dict[int, Any], count: int, facts: FileFacts) -> pa.Table:
        """Add the columns that come from the name and the state of a file."""
        import pyarrow as pa

        keys = self.table.partition_keys
        folders: Mapping[str, str | None] = {}
        if keys:
            values = partition_values(
                Path(facts.path), Path(self.root), keys, self.options.string("partition.default-name")
            )
            if values is None:
                reason = f"it is not in a folder `{keys[0]}=…`"
                raise folder_error(self.format, f"`{self.show(facts.path)}`", reason)
            folders = dict(zip(keys, values, strict=True))
        for position in self.wanted:
            if position not in columns:
                columns[position] = pa.repeat(self._fact(self.table.columns[position], facts, folders), count)
        return pa.table([columns[position] for position in self.wanted], names=list(map(physical_name, self.wanted)))

    def _fact(self, column: TableColumn, facts: FileFacts, folders: Mapping[str, str | None]) -> Any:
        """Return the value of a column as a scalar of Arrow."""
        import pyarrow as pa

        if column.metadata_key is None:
            text = folders[column.name]
            value = None if text is None else self._convert_folder(column, text, facts)
            return pa.scalar(value, column.type.arrow)
        modified = pa.scalar(facts.modified_ms * 1000, pa.timestamp("us", "UTC"))
        metadata = {
            "file.path": facts.path,
            "file.name": facts.path.rpartition("/")[2],
            "file.size": facts.size,
            "file.modification-time": modified,
        }[column.metadata_key]
        return convert_metadata(pa.array([metadata]), column.type, self.zone)[0]

    def _convert_folder(self, column: TableColumn, text: str, facts: FileFacts) -> object:
        """Return the value of a partition key. Raises ConnectorError `bad-record`."""
        try:
            return converter(column.type, PARTITION_RULES)(text)
        except (ValueError, OverflowError):
            reason = f"field `{column.name}` is not a value of {column.type.sql}: `{excerpt(text)}`"
            raise folder_error(self.format, f"`{self.show(facts.path)}`", reason) from None


def trim_records(block: LineBlock, *, keep_empty: bool) -> LineBlock:
    """Return records without `\\r` at their ends. keep_empty: whether to keep empty ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    records, numbers = block
    if pc.any(pc.ends_with(records, b"\r")).as_py():
        records = pa.array([record.rstrip(b"\r") for record in records.to_pylist()], pa.binary())
    if keep_empty or not len(records):
        return LineBlock(records, numbers)
    filled = pc.greater(pc.binary_length(records), 0)
    if pc.all(filled).as_py():
        return LineBlock(records, numbers)
    kept = (
        [number for number, is_filled in zip(numbers, filled.to_pylist(), strict=True) if is_filled] if numbers else []
    )
    return LineBlock(records.filter(filled), kept)


def folder_error(form: Format | None, where: str, reason: str) -> ConnectorError:
    """Return the error for a file that is in a wrong folder. form: None for Parquet."""
    if form is None:
        return ConnectorError.of("bad-record", f"{where}: {reason}", help="move the file")
    return form.bad_record_error(where, reason, "")


def gone_error(table: Table, shown: str) -> ConnectorError:
    """Return the error for a file that no longer exists."""
    return ConnectorError.of(
        "file-gone",
        f"table `{table.name}`: the file `{shown}` went away before it was read",
        help="put it back and start again: nothing is lost",
    )


def denied_error(table: Table, shown: str) -> ConnectorError:
    """Return the error for a file that must not be read."""
    return ConnectorError.of("no-permission", f"table `{table.name}`: no permission to read `{shown}`")
