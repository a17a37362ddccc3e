"""Records that a format writes are read back with the same values, whole columns at once."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from unit.connectors.mutations import fields_of, value_for
from unit.connectors.tables import encode_rows

from everfold.connectors.formats.avro import AvroFormat
from everfold.connectors.formats.canal import CanalFormat
from everfold.connectors.formats.csv import CsvFormat
from everfold.connectors.formats.debezium import DebeziumFormat
from everfold.connectors.formats.format import Format, RecordColumn
from everfold.connectors.formats.json import JsonFormat
from everfold.plan.changelog import RowKind
from everfold.types import ArrayType, RowType

FORMS: list[tuple[str, Format]] = [
    ("avro", AvroFormat()),
    ("json", JsonFormat()),
    ("json", JsonFormat(iso=True)),
    ("json", JsonFormat(ignore_nulls=True)),
    ("csv", CsvFormat(null_literal="n/a")),
    ("csv", CsvFormat(null_literal="n/a", quote=None, escape="\\")),
    ("csv", CsvFormat(null_literal="n/a", delimiter="\t", escape="%")),
    ("json", CanalFormat()),
    ("json", DebeziumFormat()),
]


@pytest.mark.parametrize(
    ("name", "form"), FORMS, ids=[type(form).__name__ + str(at) for at, (_, form) in enumerate(FORMS)]
)
@pytest.mark.parametrize("seed", range(4))
def test_written_records_are_read_back(name: str, form: Format, seed: int) -> None:
    random = Random(seed)
    columns = _columns(name)
    rows = [[None if random.random() < 0.3 else value_for(each.type, random) for each in columns] for _ in range(40)]
    kinds = [random.choice((RowKind.INSERT.value, RowKind.DELETE.value)) for _ in rows] if form.is_changelog else None
    records = encode_rows(form, columns, rows, kinds)
    decode = form.decoder(columns)
    found = [list(decode(record or b"")) for record in records]
    assert [len(each) for each in found] == [1] * len(rows)
    for at, column in enumerate(columns):
        read, written = ([row[at] for row in of] for of in ([each[0] for each in found], rows))
        assert _normalize(read, column) == _normalize(written, column), column
    if kinds is not None:
        assert [each[0][-1] for each in found] == kinds


def _columns(name: str) -> list[RecordColumn]:
    """Return a column of each type; the elements of collections in CSV have no quotes."""
    fields = [(each, of) for each, of in fields_of(name) if name != "csv" or not isinstance(of, ArrayType | RowType)]
    return [RecordColumn(each, at, of) for at, (each, of) in enumerate(fields)]


def _normalize(values: list[object], column: RecordColumn) -> str:
    """Return the text of the values as Arrow holds them: NaN is equal to itself."""
    return repr(pa.array(values, column.type.arrow).to_pylist())


@pytest.mark.parametrize(("name", "form"), FORMS[:7])
def test_no_rows_have_no_records(name: str, form: Format) -> None:
    columns = _columns(name)
    assert encode_rows(form, columns, []) == []
