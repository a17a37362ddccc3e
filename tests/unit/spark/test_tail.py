"""Rows of an operator are unpacked, filtered, projected and written without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everfold.connectors.blackhole import CountRows
from everfold.connectors.filesystem.parts import PackedPartWriter, PartWriter
from everfold.connectors.formats.format import RecordColumn
from everfold.operators.protocol import Meta, to_milliseconds
from everfold.plan.changelog import KIND, ORDER
from everfold.plan.expressions import InputRef, Literal, column_references
from everfold.spark.delivery import empty_rows, find_failed_sink
from everfold.spark.exchange import to_ipc
from everfold.spark.output_rows import OutputRows, decode_rows, read_payloads
from everfold.spark.tail import OperatorRows
from everfold.spark.task_input import (
    COMMAND,
    CONTROL,
    FORWARDED,
    HASH,
    META,
    NOW,
    ROWS,
    STATS,
    WATERMARK,
    CatalystRows,
)
from everfold.sql.functions import build
from everfold.types import BIGINT, STRING, DataType, Field, Schema, TimestampType

SCHEMA = Schema(
    (
        Field(name="k", type=STRING),
        Field(name="n", type=BIGINT),
        Field(name="window_start", type=TimestampType(precision=3)),
        Field(name="window_end", type=TimestampType(precision=3)),
        Field(name="window_time", type=TimestampType(precision=3)),
    )
)


def output_rows(*, has_row_kinds: bool = False) -> OutputRows:
    columns = column_references(SCHEMA)
    return OutputRows(schema=SCHEMA, is_timed=True, has_row_kinds=has_row_kinds, expressions=columns)


def payload() -> pa.Buffer:
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_500), datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1)]
    columns = {"c0": ["a", None, "c"], "c1": [1, 2, None], "c2": times, "c3": times, "c4": times}
    return to_ipc(pl.DataFrame(columns))


def table() -> pa.Table:
    return decode_rows(payload())


def column(position: int) -> InputRef:
    return InputRef(type=SCHEMA[position].type, position=position)


def number(value: int, of: DataType = BIGINT) -> Literal:
    return Literal(value=value, type=of)


def test_rows_are_returned_in_the_types_of_the_schema() -> None:
    rows = output_rows().read(table(), (ORDER,))
    assert rows.schema.types == [*SCHEMA.arrow.types, pa.int64()]
    assert rows[ORDER].to_pylist() == [-1, 1_577_836_800_000, 1_577_836_801_000]
    assert output_rows().count(table()) == 3


@pytest.mark.parametrize("columns", [(), (1,), (2, 1)])
def test_constants_with_any_other_columns(columns: tuple[int, ...]) -> None:
    rows = output_rows().project([number(7), *map(column, columns)])
    assert rows is not None
    assert rows.read(table())["c0"].to_pylist() == [7, 7, 7]
    kept = rows.filter(build(">", (InputRef(type=BIGINT, position=0), number(6))))
    assert kept is not None
    assert kept.read(table(), (ORDER,))["c0"].to_pylist() == [7, 7, 7]
    assert kept.count(table()) == 3


def test_conditions_and_projections_are_combined() -> None:
    rows = output_rows().project([build("+", (column(1), number(1))), column(0), column(0)])
    assert rows is not None
    kept = rows.filter(build(">", (InputRef(type=BIGINT, position=0), number(1))))
    assert kept is not None
    last = kept.filter(build("IS NULL", (InputRef(type=STRING, position=2),)))
    assert last is not None
    assert last.read(table()).to_pydict() == {"c0": [3], "c1": [None], "c2": [None]}
    assert (rows.count(table()), kept.count(table()), last.count(table())) == (3, 2, 1)


def test_a_condition_needs_no_projected_column() -> None:
    only = output_rows().project([column(0)])
    assert only is not None
    assert only.read(table()).to_pydict() == {"c0": ["a", None, "c"]}


def test_what_workers_must_not_evaluate_is_left_to_catalyst() -> None:
    assert output_rows().project([build("UPPER", (column(0),))]) is None
    assert output_rows().filter(build("=", (build("/", (column(1), column(1))), number(1)))) is None
    wide = output_rows()
    for _ in range(6):
        found = wide.project([column(0), build("+", (build("+", (column(1), column(1))), column(1)))])
        if found is None:
            return
        wide = found
    pytest.fail("nested projections grow without a limit")


def test_payloads_are_read_at_any_address() -> None:
    blob = payload().to_pybytes()
    for shift in range(8):
        batch = pa.array([b"x" * shift, ROWS + blob, META + b"{}"], pa.binary())
        _, (kind, rows), (other, meta) = list(read_payloads(batch[0:3]))
        assert (kind, other, meta.to_pybytes()) == (ROWS, META, META + b"{}")
        assert decode_rows(rows).num_rows == 3


def test_of_an_operators_tasks_only_that_of_its_first_bucket_says_the_time() -> None:
    """Tasks that read control files know of them alone."""
    rows, meta, stats = OperatorRows(output_rows(), (), (), ()), META + Meta(7, {"w1": 3}).encode(), STATS + b"{}"

    def read(*payloads: bytes) -> Meta | None:
        columns = {"payload": pa.array(payloads, pa.binary()), NOW: pa.array([7] * len(payloads), pa.int64())}
        (chunk,) = rows.read([pa.record_batch(columns)])
        assert chunk.reports == [each for each in payloads if each == stats]
        return chunk.meta

    assert read(stats, stats) is None
    assert read(meta, stats) == Meta(7, {"w1": 3})
    assert read(COMMAND + b"flush") == Meta(7, {}, flush=True)
    assert list(rows.read([])) == []


def test_of_an_operators_rows_in_catalyst_only_those_with_something_to_say_have_a_meta_row() -> None:
    meta, stats = META + Meta(7, {"w1": 3}).encode(), STATS + b"{}"

    def read(forwarded: bytes | None, watermark: int | None = None, control: str | None = None) -> Meta | None:
        columns = {
            HASH: pa.array([0, 0], pa.int64()),
            FORWARDED: pa.array([forwarded, None], pa.binary()),
            WATERMARK: pa.array([None, watermark], pa.int64()),
            CONTROL: pa.array([None, control], pa.string()),
            NOW: pa.array([7, 7], pa.int64()),
        }
        (chunk,) = CatalystRows("t").read([pa.record_batch(columns)])
        return chunk.meta

    assert read(stats) is None
    assert read(meta) == Meta(7, {"w1": 3})
    assert read(stats, watermark=5) == Meta(7, {"t": 5})
    assert read(stats, control="tick") == Meta(7)
    assert read(None) == Meta(7)


def test_milliseconds_are_rounded_down() -> None:
    times = pa.chunked_array([pa.array([-1001, -1000, -1, 0, 999, 1000, None], pa.timestamp("us"))])
    assert to_milliseconds(times).to_pylist() == [-2, -1, -1, 0, 0, 1, None]
    assert to_milliseconds(times[:6]).to_pylist() == [-2, -1, -1, 0, 0, 1]
    assert to_milliseconds(pa.chunked_array([], pa.timestamp("us"))).to_pylist() == []


def test_an_empty_batch_has_the_columns_of_a_sink() -> None:
    assert empty_rows(output_rows()).column_names == ["c0", "c1", "c2", "c3", "c4", ORDER, KIND]
    assert empty_rows(output_rows(has_row_kinds=True)).num_rows == 0


def test_the_failed_sink_is_found_in_the_text_of_an_error() -> None:
    assert find_failed_sink("PythonException: RuntimeError: sink 12: everfold[write-failed]: {}") == 12
    assert find_failed_sink("PythonException: RuntimeError: sink") is None


@dataclass
class Packed:
    """Packed rows as a sink's task receives them."""

    rows: OutputRows

    def count(self) -> int:
        return self.rows.count(table())

    def read(self, *, ordered: bool = False) -> pa.Table:
        return self.rows.read(table())


def test_rows_are_counted_or_written_to_a_hidden_file(tmp_path: Path) -> None:
    counter = CountRows().open(0, None)
    counter.write(Packed(output_rows()))
    counter.write(Packed(output_rows()))
    assert counter.close() == b"6"
    schema = pa.schema([("n", pa.int64()), ("k", pa.string())]).serialize().to_pybytes()
    columns = (RecordColumn("n", 1, BIGINT), RecordColumn("k", 0, STRING))
    parts = PackedPartWriter(PartWriter(str(tmp_path), "x-0-1", "parquet", columns, None, schema))
    writer = parts.open(0, None)
    writer.write(Packed(output_rows()))
    [[temporary, final, rows]] = json.loads(writer.close())
    assert (final, rows) == ("part-x-0-1-00000.parquet", 3)
    assert pq.read_table(tmp_path / temporary).to_pydict() == {"n": [1, 2, None], "k": ["a", None, "c"]}
    failed = parts.open(0, None)
    failed.write(Packed(output_rows()))
    failed.abort()
    assert len(list(tmp_path.iterdir())) == 1
