"""Questions: a query with its tables and rows.

Flink receives them directly, everfold as a case file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from flink.process import FlinkAnswer
from flink.tree import Node

from everfold.testing.casefile import Case, ExpectedError, Mode, loads
from everfold.testing.compare import net_rows, reading_order
from everfold.testing.pipetable import PipeRow, PipeTable, align_rows, format_cell

Row = tuple[str | None, ...]
DOUBLE_TOLERANCE, FLOAT_TOLERANCE = 1e-9, 1e-5
"""The relative tolerance: sums of floating point numbers depend on their order in the last
digits; FLOAT has about seven digits.
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its rows; each row begins with its row kind.

    Rows with the same identity belong together: they are changes of one row.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    constraint: str = ""
    identity: int = 1

    @property
    def changing(self) -> bool:
        """Return whether any row is not an insert."""
        return any(row[0] != "+I" for row in self.rows)

    @property
    def upsert(self) -> bool:
        """Return whether an update replaces the row with its key."""
        return "PRIMARY KEY" in self.constraint and all(row[0] != "-U" for row in self.rows)

    @property
    def ddl(self) -> str:
        """Return CREATE TABLE without options."""
        columns = [f"`{name}` {type}" for name, type in self.columns]
        return f"CREATE TABLE {self.name} ({', '.join([*columns, *([self.constraint] if self.constraint else [])])})"

    def keep(self, names: Sequence[str]) -> Table:
        """Return the table with these columns only."""
        positions = [at for at, (name, _) in enumerate(self.columns) if name in names]
        rows = tuple((row[0], *(row[at + 1] for at in positions)) for row in self.rows)
        identity = [self.columns[at][0] for at in positions].index(self.columns[self.identity - 1][0]) + 1
        return replace(self, columns=tuple(self.columns[at] for at in positions), rows=rows, identity=identity)


@dataclass(frozen=True, slots=True)
class Question:
    """A query over tables, in the modes in which its answer is determined. watermark:

    `row` moves it after each row.
    """

    name: str
    query: Node
    tables: tuple[Table, ...]
    modes: tuple[Mode, ...]
    watermark: Literal["row", "end"] = "end"
    options: dict[str, str] = field(default_factory=dict)

    @property
    def sql(self) -> str:
        return self.query.sql

    def to_flink(self, mode: Mode) -> dict[str, Any]:
        """Return the arguments for Flink."""
        tables = [
            {
                "name": table.name,
                "ddl": table.ddl,
                "changing": table.changing,
                "upsert": table.upsert,
                "columns": [name for name, _ in table.columns],
                "rows": table.rows,
            }
            for table in self.tables
        ]
        return {
            "mode": mode,
            "query": self.sql,
            "tables": tables,
            "options": self.options,
            "watermark": self.watermark,
        }

    def to_case(self, mode: Mode, answer: FlinkAnswer) -> Case:
        """Return the case that expects Flink's answer, or any error if Flink has no answer."""
        (case,) = loads(self.to_text(mode, answer)).cases
        (step,) = case.steps
        if answer.errors:
            return replace(case, steps=(replace(step, expect=None, error=ExpectedError()),))
        # The rows themselves: a cell in the case format cannot hold every string.
        expect = PipeTable(answer.names, tuple(PipeRow(row) for row in net_rows(answer.changes).elements()))
        return replace(case, steps=(replace(step, expect=expect, changelog=False),))

    def to_text(self, mode: Mode, answer: FlinkAnswer) -> str:
        """Return the question and Flink's answer as a case file."""
        lines = ["tables: |", *(f"  {table.ddl};" for table in self.tables), "rows:"]
        for table in self.tables:
            names = [name for name, _ in table.columns]
            rows = [[format_cell(cell) for cell in row] for row in table.rows]
            if table.changing:
                cells = [["op", *names], *rows]
            else:
                cells = [names, *(row[1:] for row in rows)]
            lines += [f"  {table.name}: |", *(f"    {line}" for line in align_rows(cells))]
        if self.options:
            lines += ["options:", *(f"  {name}: {value}" for name, value in self.options.items())]
        lines += [f"modes: [{mode}]", f"tolerance: {_tolerance(answer)}", "cases:", f"  - name: {self.name}"]
        if self.watermark == "row":
            lines.append("    batches: row")
        lines += ["    sql: |", *(f"      {line}" for line in self.sql.splitlines())]
        return "\n".join([*lines, *(f"    {line}" for line in _format_expected(answer))]) + "\n"

    def smaller(self) -> Iterator[Question]:
        """Yield questions with half of a table's rows, with a smaller query, or with one row
        less.
        """
        yield from self._with_fewer_rows(halves=True)
        yield from (replace(self, query=query) for query in self.query.smaller())
        yield from self._with_fewer_rows(halves=False)
        if self.options:
            yield replace(self, options={})

    def _with_fewer_rows(self, *, halves: bool) -> Iterator[Question]:
        """Remove all rows of an identity together, so that each change keeps the row that it
        changes.
        """
        for at, table in enumerate(self.tables):
            identities = list(dict.fromkeys(row[table.identity] for row in table.rows))
            size = (len(identities) + 1) // 2 if halves else 1
            for start in range(0, len(identities), size or 1):
                gone = identities[start : start + size]
                yield self._with(
                    at, replace(table, rows=tuple(row for row in table.rows if row[table.identity] not in gone))
                )

    def without_unused_columns(self) -> Question:
        """Return the question without the columns that neither the query nor a constraint names."""
        words = set(re.findall(r"\w+", " ".join([self.sql, *(table.constraint for table in self.tables)])))
        made = self
        for at, table in enumerate(self.tables):
            kept = {name for name, _ in table.columns if name in words} | {table.columns[table.identity - 1][0]}
            made = made._with(at, table.keep(sorted(kept)))
        return made

    def _with(self, at: int, table: Table) -> Question:
        return replace(self, tables=(*self.tables[:at], table, *self.tables[at + 1 :]))


def _tolerance(answer: FlinkAnswer) -> float:
    return FLOAT_TOLERANCE if "FLOAT" in answer.types else DOUBLE_TOLERANCE


def _format_expected(answer: FlinkAnswer) -> list[str]:
    if answer.errors:
        return ["error: {}", *(f"# Flink: {line}" for line in answer.reason.splitlines())]
    rows = sorted(net_rows(answer.changes).elements(), key=reading_order)
    cells = [list(answer.names), *([format_cell(cell) for cell in row] for row in rows)]
    return [f"expect: |  # {', '.join(answer.types)}", *(f"  {line}" for line in align_rows(cells))]
