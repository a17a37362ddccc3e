"""Changelog formats in Python: what they read, refuse and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from unit.connectors.envelopes import ROWS, SAMPLES, Sample
from unit.connectors.tables import encode_rows, table

from everfold.connectors.contract import Role
from everfold.connectors.formats.format import Format, record_columns
from everfold.connectors.formats.registry import format_of
from everfold.connectors.registry import apply_connector, connector_of
from everfold.connectors.validate import check_table
from everfold.errors import ConnectorError, SqlError
from everfold.plan.changelog import ChangelogMode
from everfold.plan.nodes import Table
from everfold.types import INT, STRING, TIMESTAMP3, ArrayType, DecimalType, MapType, RowField, RowType


def lines_of(sample: Sample, folder: Path, **options: str) -> Table:
    (folder / "lines.json").write_text("\n".join(sample.records) + "\n")
    options_of_format = {f"{sample.format}.{name}": value for name, value in {**sample.options, **options}.items()}
    return ROWS.with_options(
        {"connector": "filesystem", "path": str(folder), "format": sample.format, **options_of_format}
    )


def rows(of: Table) -> list[tuple[object, ...]]:
    return [
        tuple(row.values())
        for piece in check_table(of, Role.SOURCE).source().read_local(Path.cwd())
        for row in piece.to_pylist()
    ]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_records_are_read_as_in_flink(sample: Sample, tmp_path: Path) -> None:
    of = lines_of(sample, tmp_path)
    assert apply_connector(of).changelog is ChangelogMode.ALL
    if sample.wrong is None:
        assert rows(of) == sample.expected
        return
    with pytest.raises(ConnectorError) as caught:
        rows(of)
    assert sample.wrong in str(caught.value)
    assert f"line {len(sample.records)}" in str(caught.value)
    assert rows(lines_of(sample, tmp_path, **{"ignore-parse-errors": "true"})) == sample.expected_when_ignored


def test_values_are_decoded_as_in_json(tmp_path: Path) -> None:
    of = table(
        "t", id=INT, tags=ArrayType(element=STRING), at=TIMESTAMP3, m=MapType(key=STRING, value=INT),
        r=RowType(fields=(RowField(name="x", type=INT), RowField(name="y", type=ArrayType(element=DecimalType(precision=5, scale=2))))),
    ).with_("filesystem", path=str(tmp_path), format="debezium-json", debezium_json__timestamp_format__standard="ISO-8601")  # fmt: skip
    (tmp_path / "a").write_text(
        '{"after":{"id":1,"tags":["a",null],"at":"2020-01-01T00:00:00.5","m":{"k":7},"r":{"x":1,"y":[1.5]}},"op":"c"}'
    )
    [row] = rows(of)
    assert (row[0], row[1], str(row[2]), row[3], row[4]) == (
        1, ["a", None], "2020-01-01 00:00:00.500000", [("k", 7)], {"x": 1, "y": [Decimal("1.50")]},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "debezium-json",
            [
                '{"before":null,"after":{"id":1,"name":"a","price":1.50000},"op":"c"}',
                '{"before":{"id":1,"name":"a","price":1.50000},"after":null,"op":"d"}',
                '{"before":null,"after":{"id":1,"name":null,"price":100.00000},"op":"c"}',
                '{"before":{"id":1,"name":null,"price":100.00000},"after":null,"op":"d"}',
            ],
        ),
        (
            "canal-json",
            [
                '{"data":[{"id":1,"name":"a","price":1.50000}],"type":"INSERT"}',
                '{"data":[{"id":1,"name":"a","price":1.50000}],"type":"DELETE"}',
                '{"data":[{"id":1,"name":null,"price":100.00000}],"type":"INSERT"}',
                '{"data":[{"id":1,"name":null,"price":100.00000}],"type":"DELETE"}',
            ],
        ),
    ],
)
def test_changes_are_written_as_in_flink(name: str, expected: list[str]) -> None:
    changes: list[list[object]] = [
        [1, "a", Decimal("1.50000"), 0], [1, "a", Decimal("1.50000"), 1], [1, None, Decimal("100.00000"), 2], [1, None, Decimal("100.00000"), 3],
    ]  # fmt: skip
    encode, decode = make_codec(name)
    assert [encode(change) for change in changes] == expected
    again = [row for line in expected for row in decode(line)]
    assert again == [[*change[:3], kind] for change, kind in zip(changes, (0, 3, 0, 3), strict=True)]
    encode, _ = make_codec(name, **{"encode.ignore-null-fields": "true"})
    assert "null" not in "".join(encode(change) for change in changes)
    assert json.loads(encode(changes[2]))


def make_codec(
    name: str, **options: str
) -> tuple[Callable[[list[object]], str], Callable[[str], Iterator[list[object]]]]:
    of = ROWS.with_options(
        {
            "connector": "filesystem",
            "path": "x",
            "format": name,
            **{f"{name}.{key}": value for key, value in options.items()},
        }
    )
    form: Format = format_of(name, of, connector_of(of).check(of, Role.SINK), f"{name}.")
    columns = record_columns(of, Role.SINK)
    decode = form.decoder(columns)

    def encode_line(change: list[object]) -> str:
        *row, kind = change
        assert isinstance(kind, int)
        (found,) = encode_rows(form, columns, [row], [kind])
        assert found is not None
        return found.decode()

    return encode_line, lambda line: decode(line.encode())


def test_wrong_options_are_refused() -> None:
    def error_of(**options: str) -> SqlError:
        of = ROWS.with_options({"connector": "filesystem", "path": "x", **options})
        with pytest.raises(SqlError) as caught:
            connector_of(of).check(of, Role.SOURCE)
        return caught.value

    wrong = error_of(**{"format": "canal-json", "canal-json.table.include": "("})
    assert wrong.code == "wrong-option-value"
    wrong = error_of(**{"format": "debezium-json", "debezium-json.fail-on-missing-field": "true"})
    assert wrong.code == "unknown-option"
    assert error_of(format="debezium").diagnostics[0].help == "did you mean `debezium-json`?"
