"""Records of one shape are split into fields, all others are left to a parser."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfold.connectors.formats.json_fields import split_fields


def _split(records: list[str], *wanted: str) -> dict[str, list[str | None]] | None:
    fields = split_fields(pa.array(records), wanted)
    return None if fields is None else {name: field.texts.to_pylist() for name, field in fields.items()}


def test_fields() -> None:
    records = ['{"a":1, "s" : "x,}", "b": -2.5e3}', '{"a":null, "s" : "", "b": true}', '{"a":77, "s" : "ü:{", "b": 0}']
    assert _split(records, "a", "s", "b", "other") == {
        "a": ["1", "null", "77"],
        "s": ["x,}", "", "ü:{"],
        "b": ["-2.5e3", "true", "0"],
    }
    fields = split_fields(pa.array(records), ["a", "s"])
    assert fields is not None
    assert {name: field.is_quoted for name, field in fields.items()} == {"a": False, "s": True}


def test_values_without_quotes_are_texts() -> None:
    assert _split(['{"a":1}', '{"a": 1 }', '{"a":x}'], "a") == {"a": ["1", " 1 ", "x"]}


def test_part_of_an_array() -> None:
    records = pa.array([f'{{"a":{at},"s":"{at * at}"}}' for at in range(100)])
    fields = split_fields(records.slice(90, 5), ["s"])
    assert fields is not None
    assert fields["s"].texts.to_pylist() == [str(at * at) for at in range(90, 95)]


@pytest.mark.parametrize(
    "other",
    [
        '{"a":1,"t":"x"}', '{"a":1}', '{"s":"x","a":1}', '{"a":1,"s":"x","s":"y"}', '{"a":1,"s":"x" }', '{"a":1,"s":null}',
        '{"a":"1","s":"x"}', '{"a":,"s":"x"}', '{"a":1,"s":"x"', '{"a":1,"s":"x}"', '{"a":1,"s":"x\\n"}', '{"a":1,"s":"x\n"}', '', '{}', 'null',
        '{"aa":1,"s":"x"}', '{"":1,"s":"x"}', '{"a"1:,"s":"x"}', '[{"a":1,"s":"x"}]', '{"a":1,"s":"x"}{"a":1,"s":"x"}',
    ],
)  # fmt: skip
def test_another_shape(other: str) -> None:
    regular = [f'{{"a":{at},"s":"x{at}"}}' for at in range(9)]
    assert _split(regular, "a") is not None
    for at in (0, 4, 9):
        assert _split([*regular[:at], other, *regular[at:]], "a") is None


@pytest.mark.parametrize(
    "record",
    ['{"a":1,"a":2}', '{"a":{"b":1}}', '{"a":[1]}', '{"a":1,}', '{"a":01,"b":2}', '{"a":1e,"b":2}', '{"a":x,"b":2}', "\t{}", '{ "a" }', '{"a":1}x'],
)  # fmt: skip
def test_needs_a_parser(record: str) -> None:
    assert _split([record], "b") is None
    assert _split([record] * 3, "b") is None


_TEXT = st.text(st.characters(min_codepoint=32, exclude_characters='"\\', exclude_categories=["Cs"]), max_size=5)


@given(
    st.lists(_TEXT, min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.integers(-(10**18), 10**18) | _TEXT, min_size=4, max_size=4), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_every_record_of_a_shape_is_split(names: list[str], rows: list[list[int | str]], quoted: list[bool]) -> None:
    values = [
        [str(each) if is_text else abs(hash(each)) for each, is_text in zip(row, quoted, strict=True)] for row in rows
    ]
    records = [
        "{" + ",".join(f'"{name}":' + (f'"{each}"' if isinstance(each, str) else str(each)) for name, each in zip(names, row, strict=False)) + "}"
        for row in values
    ]  # fmt: skip
    assert _split(records, *names) == {name: [str(row[at]) for row in values] for at, name in enumerate(names)}
