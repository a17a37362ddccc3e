"""Parquet files that Polars decodes, texts as views: the same rows as Arrow decodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.formats import parquet_views
from everfold.connectors.formats.format import RecordColumn, record_columns
from everfold.connectors.formats.parquet import read_parquet_local
from everfold.connectors.formats.parquet_views import read_parquet_views
from everfold.errors import ConnectorError
from everfold.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TimestampType

TABLE = table(
    "t", s=STRING, few=STRING, n=BIGINT, i=INT, d=DOUBLE, b=BOOLEAN, day=DATE, at=TimestampType(precision=3)
).with_("filesystem", path="in", format="parquet")
COLUMNS = record_columns(TABLE, Role.SOURCE)
TYPES = pa.schema(
    {
        "s": pa.string(),
        "few": pa.large_string(),
        "n": pa.uint32(),
        "i": pa.int16(),
        "d": pa.float32(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("ms"),
    }
)
ROWS = 45_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Rows with NULL, empty, short and long texts, and negative and missing times."""
    random = Random(7)
    texts = ["", "ä", "twelve bytes", "more than the twelve bytes of a view", "x" * 300, None]
    makers: dict[str, Any] = {
        "s": lambda: random.choice((*texts, str(random.random()))),
        "few": lambda: random.choice(texts),
        "n": lambda: random.choice((None, random.randrange(1 << 32))),
        "i": lambda: random.randrange(-(1 << 15), 1 << 15),
        "d": lambda: random.choice((None, 0.5, -0.0, float("inf"))),
        "b": lambda: random.choice((True, False, None)),
        "day": lambda: date(1960, 1, 1) + timedelta(days=random.randrange(40_000)),
        "at": lambda: random.choice((None, datetime(1960, 1, 1) + timedelta(milliseconds=random.randrange(1 << 42)))),
    }
    return pa.table({name: [make() for _ in range(ROWS)] for name, make in makers.items()}, schema=TYPES)


@pytest.fixture
def decoded_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the number of rows of each part that Polars has decoded."""
    parts: list[int] = []
    decode = parquet_views._decode

    def note(path: Path, names: list[str], begin: int, rows: int) -> pl.DataFrame | None:
        frame = decode(path, names, begin, rows)
        parts.extend([] if frame is None else [frame.height])
        return frame

    monkeypatch.setattr(parquet_views, "_decode", note)
    return parts


def read(path: Path, how: Any, columns: Sequence[RecordColumn] = COLUMNS) -> pa.Table:
    pieces = [
        pa.table({column.name: _plain(each) for column, each in zip(columns, values, strict=True)})
        for count, values in how(path, TABLE, columns)
    ]
    return pa.concat_tables(pieces)


def _plain(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()) if pa.types.is_string_view(values.type) else values


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_rows_are_those_of_arrow(
    rows: pa.Table,
    decoded_parts: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dictionary: bool,
    compression: str,
) -> None:
    path = tmp_path / "[a]*.parquet"  # not a pattern
    pq.write_table(rows, path, row_group_size=7_000, use_dictionary=dictionary, compression=compression)
    monkeypatch.setattr(parquet_views, "PIECE_ROWS", 21_000)
    assert read(path, read_parquet_views).equals(read(path, read_parquet_local))
    # Three row groups are decoded at once; those at the end are too small.
    assert decoded_parts == [21_000, 21_000]


def test_a_part_has_few_bytes_of_the_needed_columns(
    rows: pa.Table, decoded_parts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path, row_group_size=22_500, use_dictionary=False, compression="none")
    monkeypatch.setattr(parquet_views, "_MAX_BYTES", 22_500 * 9)
    list(read_parquet_views(path, TABLE, COLUMNS[4:5]))
    list(read_parquet_views(path, TABLE, COLUMNS[:1]))
    assert decoded_parts == [45_000]


def test_numbers_are_those_of_arrow(rows: pa.Table, decoded_parts: list[int], tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path)
    numbers = COLUMNS[2:]
    assert read(path, read_parquet_views, numbers).equals(read(path, read_parquet_local, numbers))
    assert decoded_parts == [ROWS]


def test_all_texts_of_a_table_are_views(rows: pa.Table, tmp_path: Path) -> None:
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=30_000)
    pq.write_table(rows.slice(0, 10), tmp_path / "small.parquet")
    for name in ("f", "small"):
        for _, values in read_parquet_views(tmp_path / f"{name}.parquet", TABLE, COLUMNS):
            assert [each.type for each in values[:2]] == [pa.string_view()] * 2


def test_a_damaged_file_is_reported(rows: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path)
    content = bytearray(path.read_bytes())
    content[2_000:400_000] = b"\xee" * 398_000
    path.write_bytes(content)
    with pytest.raises(ConnectorError) as caught:
        read(path, read_parquet_views)
    assert caught.value.code == "bad-file"


def test_bytes_that_are_no_text_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    wrong = pa.array([b"a"] * ROWS + [b"\xff"])
    for values in (wrong, wrong.view(pa.string()), wrong[-2:], wrong[-2:].view(pa.string())):
        pq.write_table(pa.table({"s": values}), path)
        for reader in (read_parquet_views, read_parquet_local):
            with pytest.raises(
                ConnectorError, match=r"column `s` of `.*f\.parquet` row [\d,]+: it is not UTF-8"
            ) as caught:
                read(path, reader, COLUMNS[:1])
            assert caught.value.code == "bad-file"
