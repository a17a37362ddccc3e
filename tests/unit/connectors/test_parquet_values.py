"""Parquet files without Spark: every kind of column, extreme values, and files that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.connectors.parquet_files import BAD_FILES, OTHER_KINDS, PLAIN_KINDS, BadFile, Kind, int96, write
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import record_columns
from everfold.connectors.formats.parquet import read_parquet_local
from everfold.connectors.formats.parquet_views import read_parquet_views
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.types import BIGINT, INT, TIMESTAMP_LTZ3, DataType, TimestampType

Reader = Callable[..., Iterator[tuple[int, list[pa.Array]]]]
KINDS = {**PLAIN_KINDS, **OTHER_KINDS}
READERS = pytest.mark.parametrize("reader", [read_parquet_local, read_parquet_views])


def read(path: Path, of: DataType, reader: Reader = read_parquet_local) -> pa.ChunkedArray:
    declared = table("t", x=of).with_("filesystem", path="in", format="parquet")
    pieces = [values[0] for _, values in reader(path, declared, record_columns(declared, Role.SOURCE))]
    return pa.chunked_array(pieces).cast(of.arrow)


@READERS
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_values_of_every_kind(tmp_path: Path, kind: Kind, reader: Reader) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"x": kind.values}), path, row_group_size=3)
    rows = kind.rows
    if isinstance(kind.type, TimestampType):
        values = kind.values.cast(pa.timestamp("us", kind.values.type.tz)).cast(pa.int64())
        rows = values.view(kind.type.arrow).to_pylist()
    assert read(path, kind.type, reader).to_pylist() == (kind.values.to_pylist() if rows is None else rows)


@READERS
@pytest.mark.parametrize("bad", BAD_FILES.values(), ids=BAD_FILES.keys())
def test_files_that_are_refused(tmp_path: Path, bad: BadFile, reader: Reader) -> None:
    path = tmp_path / "1.parquet"
    path.write_bytes(bad.content())
    with pytest.raises(ConnectorError) as caught:
        read(path, bad.type, reader)
    assert caught.value.code == "bad-file"
    assert bad.error in str(caught.value).splitlines()[0]


@READERS
def test_old_timestamps_have_all_years(tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "1.parquet"
    days = {
        1_721_426: "0001-01-01",
        2_440_587: "1969-12-31",
        2_547_340: "2262-04-12",
        2_816_788: "3000-01-01",
        5_373_484: "9999-12-31",
    }
    path.write_bytes(int96(*((day, 86_399_999_999_999) for day in days)))
    for of in (TimestampType(precision=6), TIMESTAMP_LTZ3):
        found = read(path, of, reader).cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        assert found == [f"{day} 23:59:59.999999" for day in days.values()]


def test_files_without_rows_and_folders_without_files(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.int64()})
    declared = table("t", x=BIGINT).with_("filesystem", path="in", format="parquet")
    source = check_table(declared, Role.SOURCE).source()
    (tmp_path / "in").mkdir()
    assert list(source.read_local(tmp_path)) == []
    pq.ParquetWriter(tmp_path / "in" / "1.parquet", schema).close()
    pq.write_table(schema.empty_table(), tmp_path / "in" / "2.parquet")
    assert sum(piece.num_rows for piece in source.read_local(tmp_path)) == 0


@READERS
def test_a_column_chunk_without_its_values_is_refused(tmp_path: Path, reader: Reader) -> None:
    path = tmp_path / "1.parquet"
    path.write_bytes(write(pa.array(range(1000)), compression="none", use_dictionary=False, write_statistics=False))
    content = path.read_bytes()
    values = content.rindex(b"\x16\xd0\x0f", 0, content.rindex(b"x"))  # of the last column chunk
    path.write_bytes(content)
    assert len(read(path, BIGINT, reader)) == 1000
    damaged = [number for number in range(len(content)) if content.startswith(b"\x16\xd0\x0f", number)]
    assert values in damaged
    refused = 0
    for number in damaged:
        path.write_bytes(content[:number] + b"\x16\x80\x00" + content[number + 3 :])
        with pytest.raises(ConnectorError) as caught:
            read(path, BIGINT, reader)
        refused += "column `x` has 0 values in a row group of 1,000 rows" in str(caught.value)
    assert refused == 1


def test_a_lossy_conversion_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    kinds = (pa.array(["1"]), PLAIN_KINDS["a_uint32"].values, OTHER_KINDS["a_uuid"].values)
    for values in kinds:
        pq.write_table(pa.table({"x": values}), path)
        with pytest.raises(ConnectorError) as caught:
            read(path, INT)
        assert caught.value.code == "wrong-column-type"
