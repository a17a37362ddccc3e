"""The comparison of a query's result with what a case expects; the difference is shown as a table.

A result is as expected when columns, types and rows are. Rows are a multiset: their order does not
matter. An expected cell is parsed by the column's type, so `11` equals `11.00` if the type is
DECIMAL(38, 2); types are compared separately.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everfold.rendering import cells
from everfold.testing.pipetable import PipeTable, align_rows, format_cell
from everfold.testing.tables import Answer
from everfold.types import DataType, FloatingType

Row = tuple[str | None, ...]
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case expects of a step.

    changelog: every change instead of the final table. types: None if the case does not specify
    them.
    """

    table: PipeTable
    types: tuple[str, ...] | None = None
    changelog: bool = False
    tolerance: float = 0.0
    zone: str = "UTC"


def describe_difference(expected: Expectation, answer: Answer) -> str | None:
    """Return None if the result is as expected, else lines that describe the difference."""
    found = list(_columns(expected, answer))
    if not found:
        found = list(_rows(expected, answer))
    return "\n".join(found) if found else None


def _columns(expected: Expectation, answer: Answer) -> Iterable[str]:
    names, types = expected.table.columns, expected.types
    if names != answer.names:
        yield from ("columns differ", f"- {', '.join(names)}", f"+ {', '.join(answer.names)}")
    elif types is not None and tuple(map(_normalize_type, types)) != tuple(map(_normalize_type, answer.types)):
        yield "types differ"
        lines = align_rows([answer.names, types, answer.types])
        yield from (f"{mark} {line}" for mark, line in zip(" -+", lines, strict=True))


def _normalize_type(type: str) -> str:
    """Normalize letter case, white space and STRING in the SQL of a type."""
    return re.sub(r"\s+", " ", type.strip()).upper().replace("VARCHAR(2147483647)", "STRING")


def _rows(expected: Expectation, answer: Answer) -> Iterable[str]:
    types = [field.type for field in answer.schema]
    wanted = [
        tuple(_canonical(cell, type, expected.zone) for cell, type in zip(row.cells, types, strict=True))
        for row in expected.table.rows
    ]
    kinds: Sequence[str] = ("+I",) * len(wanted) if expected.table.kinds is None else expected.table.kinds
    if expected.changelog:
        want = Counter((kind, *row) for kind, row in zip(kinds, wanted, strict=True))
        got = Counter((kind, *row) for kind, row in answer.changes)
        names: tuple[str, ...] = ("op", *answer.names)
        number_columns = [False, *(isinstance(type, FloatingType) for type in types)]
    else:
        want = net_rows(zip(kinds, wanted, strict=True))
        got = net_rows(answer.changes)
        names = answer.names
        number_columns = [isinstance(type, FloatingType) for type in types]
    missing, surplus = want - got, got - want
    if expected.tolerance:
        missing, surplus = _remove_close(missing, surplus, number_columns, expected.tolerance)
    retracted = [row for row, count in got.items() if count < 0] if not expected.changelog else []
    if retracted:
        yield "rows are retracted that were never emitted"
        yield from mark_rows([], [], [("+", row) for row in retracted], names)
    if missing or surplus:
        yield from mark_rows(
            (want & got).elements(),
            [("-", row) for row in missing.elements()],
            [("+", row) for row in surplus.elements()],
            names,
        )


def _canonical(cell: str | None, type: DataType, zone: str) -> str | None:
    try:
        return cells.to_canonical(cell, type, zone)
    except cells.CellError:
        return cell


def net_rows(changes: Iterable[tuple[str, Row]]) -> Counter[Row]:
    """Apply all changes and return the count of each row.

    It is negative if a row was retracted without having been emitted.
    """
    left: Counter[Row] = Counter()
    for kind, row in changes:
        left[row] += 1 if kind in ("+I", "+U") else -1
    return Counter({row: count for row, count in left.items() if count})


def _remove_close(
    missing: Counter[Row], surplus: Counter[Row], floating: Sequence[bool], tolerance: float
) -> tuple[Counter[Row], Counter[Row]]:
    """Remove pairs of rows whose FLOAT and DOUBLE values are within the tolerance.

    All other values must be equal.
    """
    left_over: Counter[Row] = Counter()
    candidates = list(surplus.elements())
    for row in missing.elements():
        partner = next((each for each in candidates if _close(row, each, floating, tolerance)), None)
        if partner is None:
            left_over[row] += 1
        else:
            candidates.remove(partner)
    return left_over, Counter(candidates)


def _close(one: Row, other: Row, floating: Sequence[bool], tolerance: float) -> bool:
    for a, b, is_floating in zip(one, other, floating, strict=True):
        if a == b:
            continue
        if not is_floating or a is None or b is None:
            return False
        if not math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=tolerance):
            return False
    return True


def mark_rows(
    same: Iterable[Row], missing: Sequence[tuple[str, Row]], surplus: Sequence[tuple[str, Row]], names: Sequence[str]
) -> list[str]:
    """Return a table of rows, each marked: blank if in both, `-` if missing, `+` if unexpected."""
    rows = [*((" ", row) for row in same), *missing, *surplus]
    order = {"-": 0, "+": 1, " ": 2}
    rows.sort(key=lambda each: (reading_order(each[1]), order[each[0]]))
    lines = align_rows([list(names), *([format_cell(cell) for cell in row] for _, row in rows)])
    return [f"{mark} {line}".rstrip() for mark, line in zip([" ", *(mark for mark, _ in rows)], lines, strict=True)]


def reading_order(row: Row) -> list[tuple[int, float, str]]:
    """Return a sort key: NULL first, then numbers by value, then strings."""
    return [
        (0, 0.0, "") if cell is None else (1, float(cell), "") if _NUMBER.fullmatch(cell) else (2, 0.0, cell)
        for cell in row
    ]
