"""Compares what a query answered with what a case expects, and shows the difference as a table.

Two answers agree when columns, types and rows agree. Rows are a multiset: their order says nothing. An expected cell is read by
the column's type, so `11` is `11.00` where the type is DECIMAL(38, 2); the types are compared on their own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everfold.testing import cells
from everfold.testing.pipetable import PipeTable, aligned, shown
from everfold.testing.tables import Answer
from everfold.types import DataType, FloatingType

Row = tuple[str | None, ...]
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a case expects of a step: a final table, or with `changelog` every change; `types` if the case writes them down."""

    table: PipeTable
    types: tuple[str, ...] | None = None
    changelog: bool = False
    tolerance: float = 0.0
    zone: str = "UTC"


def difference(expected: Expectation, answer: Answer) -> str | None:
    """None if the answer is as expected, else lines that say how it is not."""
    found = list(_columns(expected, answer))
    if not found:
        found = list(_rows(expected, answer))
    return "\n".join(found) if found else None


def _columns(expected: Expectation, answer: Answer) -> Iterable[str]:
    names, types = expected.table.columns, expected.types
    if names != answer.names:
        yield from ("columns differ", f"- {', '.join(names)}", f"+ {', '.join(answer.names)}")
    elif types is not None and tuple(map(_plain, types)) != tuple(map(_plain, answer.types)):
        yield "types differ"
        lines = aligned([answer.names, types, answer.types])
        yield from (f"{mark} {line}" for mark, line in zip(" -+", lines, strict=True))


def _plain(type: str) -> str:
    """A type's text without what does not matter: case of letters, blanks."""
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
        want = net(zip(kinds, wanted, strict=True))
        got = net(answer.changes)
        names = answer.names
        number_columns = [isinstance(type, FloatingType) for type in types]
    missing, surplus = want - got, got - want
    if expected.tolerance:
        missing, surplus = _without_close(missing, surplus, number_columns, expected.tolerance)
    taken_back = [row for row, count in got.items() if count < 0] if not expected.changelog else []
    if taken_back:
        yield "rows are taken back that were never emitted"
        yield from marked([], [], [("+", row) for row in taken_back], names)
    if missing or surplus:
        yield from marked(
            (want & got).elements(),
            [("-", row) for row in missing.elements()],
            [("+", row) for row in surplus.elements()],
            names,
        )


def _canonical(cell: str | None, type: DataType, zone: str) -> str | None:
    try:
        return cells.canonical(cell, type, zone)
    except cells.CellError:
        return cell


def net(changes: Iterable[tuple[str, Row]]) -> Counter[Row]:
    """How often each row is there when all changes have been applied; below zero if it was taken back without having been there."""
    left: Counter[Row] = Counter()
    for kind, row in changes:
        left[row] += 1 if kind in ("+I", "+U") else -1
    return Counter({row: count for row, count in left.items() if count})


def _without_close(
    missing: Counter[Row], surplus: Counter[Row], floating: Sequence[bool], tolerance: float
) -> tuple[Counter[Row], Counter[Row]]:
    """Both without the rows that find a partner whose FLOAT and DOUBLE values are within the tolerance and all else is equal."""
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


def marked(
    same: Iterable[Row], missing: Sequence[tuple[str, Row]], surplus: Sequence[tuple[str, Row]], names: Sequence[str]
) -> list[str]:
    """A table of rows with a mark before each: blank for rows of both, `-` for missing ones, `+` for those nobody expected."""
    rows = [*((" ", row) for row in same), *missing, *surplus]
    order = {"-": 0, "+": 1, " ": 2}
    rows.sort(key=lambda each: (reading_order(each[1]), order[each[0]]))
    lines = aligned([list(names), *([shown(cell) for cell in row] for _, row in rows)])
    return [f"{mark} {line}".rstrip() for mark, line in zip([" ", *(mark for mark, _ in rows)], lines, strict=True)]


def reading_order(row: Row) -> list[tuple[int, float, str]]:
    """NULL first, then numbers by size, then texts."""
    return [
        (0, 0.0, "") if cell is None else (1, float(cell), "") if _NUMBER.fullmatch(cell) else (2, 0.0, cell)
        for cell in row
    ]
