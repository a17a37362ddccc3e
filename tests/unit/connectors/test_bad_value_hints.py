"""Hints in the errors for bad records."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.connectors.tables import table

from everfold.connectors.contract import Role
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError
from everfold.types import INT, STRING, TIMESTAMP3, TIMESTAMP_LTZ3, DataType, DecimalType, MapType

PRICE = DecimalType(precision=10, scale=2)
TIMES = "set 'json.timestamp-format.standard' = "


def read(folder: Path, form: str, record: str, of: DataType, **options: str) -> object:
    (folder / "f").write_text(record + "\n")
    declared = table("t", x=of).with_options({"connector": "filesystem", "path": "f", "format": form, **options})
    return [
        row["c0"]
        for piece in check_table(declared, Role.SOURCE).source().read_local(folder)
        for row in piece.to_pylist()
    ]


@pytest.mark.parametrize(
    ("form", "record", "of", "hint"),
    [
        ("csv", '""', INT, "set 'csv.null-literal' = '' to read empty fields as NULL"),
        ("csv", "x", INT, None),
        ("json", '{"x": "2024-01-01T00:00:00Z"}', TIMESTAMP_LTZ3, TIMES + "'ISO-8601'"),
        ("json", '{"x": "2024-01-01T00:00:00Z"}', TIMESTAMP3, "declare TIMESTAMP_LTZ, and " + TIMES + "'ISO-8601'"),
        ("json", '{"x": "2024-01-01T00:00:00"}', TIMESTAMP3, TIMES + "'ISO-8601'"),
        ("json", '{"x": "yesterday"}', TIMESTAMP3, None),
        ("debezium-json", '{"op": "c", "before": null, "after": {"x": "AfQ="}}', PRICE, "set 'decimal.handling.mode' = 'string' in Debezium"),
        ("json", '{"x": "AfQ="}', PRICE, None),
    ],
)  # fmt: skip
def test_options_that_are_often_missing(tmp_path: Path, form: str, record: str, of: DataType, hint: str | None) -> None:
    with pytest.raises(ConnectorError) as caught:
        read(tmp_path, form, record, of)
    text = caught.value.diagnostics[0].help or ""
    assert (hint in text) if hint else text.count(", or ") == 1, text


def test_the_hints_help(tmp_path: Path) -> None:
    assert read(tmp_path, "csv", '""', INT, **{"csv.null-literal": ""}) == [None]
    found = read(
        tmp_path,
        "json",
        '{"x": "2024-01-01T00:00:00Z"}',
        TIMESTAMP_LTZ3,
        **{"json.timestamp-format.standard": "ISO-8601"},
    )
    assert str(found) == "[datetime.datetime(2024, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC'))]"


def test_half_a_character_in_a_key_is_replaced(tmp_path: Path) -> None:
    record = '{"x": {"\\uDFAA": "\\uDFAA", "a": "b"}}'
    assert read(tmp_path, "json", record, MapType(key=STRING, value=STRING)) == [[("?", "?"), ("a", "b")]]
