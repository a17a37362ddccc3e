"""The current rows of a changing result."""

from __future__ import annotations

from everfold.rendering.current_rows import Cells, CurrentRows


def current_rows(*changes: tuple[str, Cells]) -> list[Cells]:
    current: CurrentRows[Cells] = CurrentRows()
    for kind, row in changes:
        current.apply(kind, row, row)
    return current.rows()


def test_an_updated_row_keeps_its_position() -> None:
    found = current_rows(("+I", ("a", "1")), ("+I", ("b", "1")), ("-U", ("a", "1")), ("+U", ("a", "2")))
    assert found == [("a", "2"), ("b", "1")]


def test_equal_rows_are_counted() -> None:
    assert current_rows(*((kind, ("a", None)) for kind in ("+I", "+I", "-D"))) == [("a", None)]


def test_retracting_an_absent_row_has_no_effect() -> None:
    assert current_rows(("-D", ("a", "1")), ("+U", ("b", "1"))) == [("b", "1")]
