"""When two results are equal, and how a difference is shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everfold.plan.changelog import KIND
from everfold.testing.compare import Expectation, describe_difference
from everfold.testing.pipetable import KINDS, PipeTableError, align_rows, parse
from everfold.testing.tables import Answer, from_arrow
from everfold.types import BIGINT, DOUBLE, STRING, DecimalType, Field, Schema

SCHEMA = Schema((Field(name="who", type=STRING), Field(name="total", type=DecimalType(precision=38, scale=2))))


def answer(*rows: tuple[str | None, str | None], kinds: list[str] | None = None) -> Answer:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    total = pa.array(columns[1], pa.string()).cast(pa.decimal128(38, 2))
    table = pa.table({"c0": pa.array(columns[0], pa.string()), "c1": total})
    if kinds is not None:
        table = table.append_column(KIND, pa.array([KINDS.index(kind) for kind in kinds], pa.int8()))
    return from_arrow(table, SCHEMA)


def expect(text: str, **kwargs: object) -> Expectation:
    return Expectation(parse(text), **kwargs)  # type: ignore[arg-type]


def test_rows_are_a_multiset_and_cells_are_values() -> None:
    expected = expect("who | total\nann | 10\nbob | NULL\nann | 10.00\n''  | 1", types=("STRING", "DECIMAL(38, 2)"))
    assert describe_difference(expected, answer(("", "1"), ("ann", "10"), ("bob", None), ("ann", "10"))) is None


def test_a_difference_is_an_aligned_table_with_marks() -> None:
    expected = expect("who | total\nann | 10\nbob | 2\nbob | 2")
    assert describe_difference(expected, answer(("ann", "10"), ("bob", "2"), ("carol", "30"))) == (
        "  who   | total\n"
        "  ann   | 10.00\n"
        "- bob   | 2.00\n"
        "  bob   | 2.00\n"
        "+ carol | 30.00"
    )  # fmt: skip


def test_columns_and_types_are_compared() -> None:
    assert describe_difference(expect("who | sum\nann | 10"), answer(("ann", "10"))) == (
        "columns differ\n- who, sum\n+ who, total"
    )
    found = describe_difference(expect("who | total\nann | 10", types=("STRING", "INT")), answer(("ann", "10")))
    assert found == "types differ\n  who    | total\n- STRING | INT\n+ STRING | DECIMAL(38, 2)"


def test_a_final_table_nets_the_changes_and_a_changelog_does_not() -> None:
    changes = answer(("ann", "1"), ("ann", "1"), ("ann", "3"), kinds=["+I", "-U", "+U"])
    assert describe_difference(expect("who | total\nann | 3"), changes) is None
    every = "op | who | total\n+I | ann | 1\n-U | ann | 1\n+U | ann | 3"
    assert describe_difference(expect(every, changelog=True), changes) is None
    assert describe_difference(expect("op | who | total\n+I | ann | 3", changelog=True), changes) == (
        "  op | who | total\n"
        "+ +I | ann | 1.00\n"
        "- +I | ann | 3.00\n"
        "+ +U | ann | 3.00\n"
        "+ -U | ann | 1.00"
    )  # fmt: skip


def test_retracting_a_row_that_was_never_emitted_is_an_error() -> None:
    found = describe_difference(expect("who | total"), answer(("ann", "1"), kinds=["-D"]))
    assert found is not None
    assert "never emitted" in found


def test_tolerance_is_for_floating_point_only() -> None:
    schema = Schema((Field(name="n", type=BIGINT), Field(name="x", type=DOUBLE)))
    got = from_arrow(pa.table({"c0": pa.array([1, 2]), "c1": pa.array([0.1 + 0.2, 5.0])}), schema)
    assert describe_difference(expect("n | x\n1 | 0.3\n2 | 5", tolerance=1e-9), got) is None
    assert describe_difference(expect("n | x\n1 | 0.3\n2 | 5"), got) is not None
    assert describe_difference(expect("n | x\n3 | 0.3\n2 | 5", tolerance=2), got) is not None


def test_pipes_and_wide_characters_are_aligned() -> None:
    table = parse("a | b\nx\\|y | 中文\nz | NULL")
    assert table.cells() == [("x|y", "中文"), ("z", None)]
    assert align_rows([["k", "v"], ["中", "1"], ["abc", "2"]]) == ["k   | v", "中  | 1", "abc | 2"]


@pytest.mark.parametrize("text", ["a | b\n1", "a | b\n1 |", "a |\n1 | 2", "a\n1 | 2"])
def test_a_row_has_a_value_for_each_column(text: str) -> None:
    with pytest.raises(PipeTableError):
        parse(text)
