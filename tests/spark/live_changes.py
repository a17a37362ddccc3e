"""Jobs on Spark whose query changes after half of the input, and the rows that they should have.

Expected rows come from queries in memory that never stopped. DuckDB, which computes the whole
query in batch, confirms each of them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from manifests import newest_manifest
from property.halves import COLUMNS, LOOKUPS, ROWS, PipelineRun, batch, has_sessions, make_plan, pick_values
from spark.running import Done, Run

from everfold.cli.change import Change, judge_change
from everfold.cli.run import RunOptions, Script
from everfold.compat import Judgement, Verdict, shape_of
from everfold.compat.columns import Meaning, Status
from everfold.jobs.rollback import roll_back
from everfold.memory.batch import run_batch
from everfold.plan.emitted_changes import is_updating
from everfold.plan.nodes import OverAggregate, Root
from everfold.plan.walk import batch_inputs, tables_of, walk_plan
from everfold.sql.planner import Session
from everfold.storage import local
from everfold.types import StringType, TimestampType

STATE = Path(".everfold", "job")
Row = dict[str, str]
"""A row of a result, each value as Python writes it."""
Key = tuple[str, ...]


# --- expected rows --------------------------------------------------------------------------------


def write_values(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    return [{name: repr(value) for name, value in row.items()} for row in rows]


def pick(row: Row, names: Iterable[str]) -> Key:
    return tuple(row[name] for name in names)


def current_rows(run: PipelineRun) -> dict[Key, Row]:
    """Return the current rows of a result with changes, by key."""
    rows = (dict(zip(run.names, values, strict=True)) for values in run.now.elements())
    return {pick(row, run.keys): row for row in rows}


def confirm(root: Root, run: PipelineRun, given: list[dict[str, Any]]) -> PipelineRun:
    """Return a pipeline that has read all of its input, after DuckDB has confirmed its result."""
    tables = batch(root, given)
    for plan in batch_inputs(root.input):
        for table in tables_of(walk_plan(plan)):
            columns = LOOKUPS[table.name].select([["k", "v", "w"].index(c.name) for c in table.columns])
            tables[table.name] = columns.rename_columns([f"c{index}" for index in range(columns.num_columns)])
    result = run_batch(root, tables, Session({"execution.runtime-mode": "batch"}).settings)
    rows = Counter(tuple(map(repr, row.values())) for row in result.to_pylist())
    assert rows == run.now + Counter(pick_values(row, run.names) for row in run.rows)
    return run


@dataclass(frozen=True)
class Expected:
    """A query that never stopped.

    early: how many rows of a result without changes it has emitted in the first half. run: after
    all rows. half: a run that has read the second half only.
    """

    sql: str
    root: Root
    early: int
    first: PipelineRun
    run: PipelineRun
    half: PipelineRun

    @classmethod
    def of(cls, sql: str, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> Expected:
        root = make_plan(sql)
        whole, half, early = PipelineRun(root), PipelineRun(root), PipelineRun(root)
        early.feed(first)
        whole.feed(first)
        count = len(whole.rows)
        whole.feed(second, last=True)
        half.feed(second, last=True)
        return cls(sql, root, count, early, confirm(root, whole, [*first, *second]), confirm(root, half, second))

    @property
    def later_rows(self) -> list[Row]:
        """The rows of a result without changes that are emitted after the first half."""
        return write_values(self.run.rows[self.early :])

    @property
    def is_updating(self) -> bool:
        return is_updating(self.root.input)


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Insert:
    """An INSERT of a job. folder: of its table."""

    table: str
    folder: str
    sql: str


@dataclass
class Table:
    """The rows of a table.

    rows: as emitted, by key, of a result with changes; `appended`: of one without. wrong: changes
    that do not follow from the rows before.
    """

    rows: dict[Key, Row] = field(default_factory=dict)
    appended: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class LiveJob:
    """A job in the current folder.

    conf: its configuration. rename: the name of the table MyTable in the new version.
    """

    start: Run
    chance: random.Random
    conf: Mapping[str, str]
    rename: str = "MyTable"
    file_format: str = "json"
    files: int = 0

    def put(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows into a few files of each table."""
        cuts = sorted(
            {0, len(rows), *(self.chance.randrange(1, len(rows)) for _ in range(self.chance.choice([0, 1, 2])))}
        )
        for start, end in itertools.pairwise(cuts):
            for table in ("MyTable", "src"):
                file = Path(table, f"{self.files:03}.{self.file_format}")
                file.parent.mkdir(exist_ok=True)
                part = [{**{c: row[c] for c in COLUMNS}, "ts": to_time(row["ts"])} for row in rows[start:end]]
                if self.file_format == "json":
                    lines = (json.dumps({**row, "ts": f"{row['ts']:%Y-%m-%d %H:%M:%S.000}"}) + "\n" for row in part)
                    file.write_text("".join(lines))
                else:
                    types = [*((c, pa.int32()) for c in COLUMNS), ("ts", pa.timestamp("us"))]
                    pq.write_table(pa.Table.from_pylist(part, schema=pa.schema(types)), file)
                os.utime(file, (time.time() - 1000 + self.files,) * 2)
            self.files += 1

    def write(self, inserts: Sequence[Insert], source: str = "MyTable") -> None:
        """Write the script. source: the name of the table MyTable."""
        options = f"'connector' = 'filesystem', 'format' = '{self.file_format}', 'scan.max-files-per-batch' = '1'"
        text = "".join(
            f"CREATE TABLE {name} (a INT, b INT, c INT, d INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
            f" WITH ({options}, 'path' = '{folder}');\n"
            for name, folder in ((source, "MyTable"), ("src", "src"))
        )
        text += "CREATE TABLE dim (k INT, v INT, w INT) WITH ('connector' = 'filesystem', 'path' = 'dim', 'format' = 'csv');\n"
        for insert in inserts:
            columns = ", ".join(
                f"{column.name} {sql_type(column.type)}" for column in make_plan(insert.sql).input.schema
            )
            text += (
                f"CREATE TABLE {insert.table} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{insert.folder}',"
                " 'format' = 'debezium-json');\n"
            )
        for key, value in self.conf.items():
            text += f"SET '{key}' = '{value}';\n"
        queries = (f"INSERT INTO {insert.table} {insert.sql.replace('MyTable', source)};\n" for insert in inserts)
        Path("job.sql").write_text(f"{text}EXECUTE STATEMENT SET BEGIN\n{''.join(queries)}END;\n")

    def run(self, *options: str) -> Done:
        return self.start(*options)

    def run_ok(self, *options: str) -> str:
        done = self.start(*options)
        assert done.code == 0, done.err
        return done.err

    def kill_after_change(self, *options: str) -> None:
        """Run the job as a process, and kill it between a change and its first batch."""
        command = [sys.executable, "-m", "everfold", "run", "job.sql", *options]
        with Path("log.txt").open("ab") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        while process.poll() is None and self.count_versions() < 2:
            time.sleep(0.002)
        killed = process.poll() is None
        os.killpg(process.pid, signal.SIGKILL) if killed else None
        process.wait()
        assert killed, Path("log.txt").read_text()

    @staticmethod
    def count_versions() -> int:
        return len(json.loads(newest_manifest(STATE).read_text())["versions"])

    def judge(self, **answers: Any) -> Change:
        """Judge the change as `everfold check job.sql --state` does."""
        script = Script.read("job.sql", None)
        renamed = {"MyTable": self.rename} if self.rename != "MyTable" else {}
        return judge_change(STATE, script, RunOptions(environment={}, renamed_sources=renamed, **answers))

    def roll_back(self) -> None:
        """Make version 0 current again, unless it is: a query that means the same is no new version."""
        if self.count_versions() > 1:
            roll_back(local(STATE.absolute()), 0, duplicates=False, say=lambda _: None)

    def list_files(self, *folders: str) -> list[Path]:
        """Return the files of tables in the order in which they were written, folder by folder."""
        files: list[Path] = []
        for folder in map(Path, folders):
            in_folder = [file for file in folder.glob("*") if file.name[0] not in "._"]
            files += sorted(in_folder, key=lambda file: file.stat().st_mtime_ns)
        return files

    def read(
        self,
        files: Iterable[Path],
        expected: Expected,
        repeated: Collection[str] | None = None,
        *,
        reemits: bool = False,
    ) -> Table:
        """Read a table.

        expected: a query with the columns and keys of the table. repeated: the columns in which a
        retraction equals the row that was emitted, None for all. reemits: rows may be emitted again.
        """
        table = Table()
        types = {column.name: column.type for column in expected.root.input.schema}
        for change in (json.loads(line) for file in files for line in file.read_text().splitlines()):
            for side in ("before", "after"):
                if change[side] is None:
                    continue
                (row,) = write_values([{name: decode(value, types.get(name)) for name, value in change[side].items()}])
                key = pick(row, expected.run.keys)
                if not expected.is_updating:
                    table.appended.append(row)
                    if side == "before":
                        table.wrong.append(f"retracted: {row}")
                elif side == "after":
                    if key in table.rows and not reemits:
                        table.wrong.append(f"not retracted: {table.rows[key]} before {row}")
                    table.rows[key] = row
                else:
                    old = table.rows.pop(key, None)
                    names = row.keys() if repeated is None else repeated
                    if old is None or any(old[name] != row[name] for name in old.keys() & names):
                        table.wrong.append(f"retracted: {row} instead of {old}")
        return table


def to_time(micros: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(microseconds=micros)


def sql_type(type_: Any) -> str:
    return "STRING" if isinstance(type_, StringType) else str(type_.sql)


def decode(value: Any, type_: Any) -> Any:
    """Return a value of JSON as Arrow returns it."""
    return datetime.fromisoformat(value) if isinstance(type_, TimestampType) and value is not None else value


# --- what is checked ------------------------------------------------------------------------------


def check_rows(received: Iterable[Row], expected: Iterable[Row], names: Collection[str]) -> None:
    """Check that rows are equal in some columns."""
    left, right = (Counter(pick(row, names) for row in rows) for rows in (received, expected))
    assert left == right, (names, left - right, right - left)


def check_whole(table: Table, expected: Expected) -> None:
    """Check that a table holds the result of a query that never stopped."""
    assert not table.wrong, table.wrong
    names = expected.run.names
    if not expected.is_updating:
        check_rows(table.appended, write_values(expected.run.rows), names)
        return
    check_rows(table.rows.values(), current_rows(expected.run).values(), names)


@dataclass(frozen=True)
class Statuses:
    """The columns of a table by their status, and whether conditions affect its rows.

    same: those that are kept and mean the same as before.
    """

    same: list[str]
    kept: list[str]
    started: list[str]
    mixed: list[str]
    affects_rows: bool

    @classmethod
    def of(cls, judgement: Judgement, table: str) -> Statuses:
        def names(status: Status) -> list[str]:
            return [column.name for column in judgement.columns if column.status is status and column.sink == table]

        same = [column.name for column in judgement.columns if column.meaning is Meaning.SAME]
        return cls(
            [name for name in names(Status.KEPT) if name in same],
            names(Status.KEPT),
            names(Status.STARTS),
            names(Status.MIXED),
            any(effect.sink == table for effect in judgement.rows),
        )


def check_accepted(
    before: Table, later: Table, whole: Expected, statuses: Statuses, first_keys: set[Key], *, starts_with_input: bool
) -> None:
    """Check a table after a change that was accepted.

    before: the table when the change began. later: the table now, or only what was emitted later
    for a result without changes. first_keys: the keys of the groups that have rows in the first half.
    """
    kept = statuses.kept
    # A condition hides groups that have rows.
    has_conditions = bool(shape_of(whole.root).conditions)
    has_groups = not any(isinstance(node, OverAggregate) for node in walk_plan(whole.root.input))
    if not whole.is_updating:
        assert not later.wrong, later.wrong
        if not statuses.affects_rows:
            check_rows(later.appended, whole.later_rows, kept)
        expected = {pick(row, whole.run.keys): row for row in whole.later_rows}
        current = {pick(row, whole.run.keys): row for row in later.appended}
    else:
        expected, current = current_rows(whole.run), later.rows
        if not statuses.affects_rows:
            assert not later.wrong, later.wrong
            assert current.keys() == expected.keys()
    for key in current.keys() & expected.keys():
        # A row that was not touched again was emitted by the old query.
        for name in statuses.same if current[key] == before.rows.get(key) else kept:
            if name in current[key]:
                assert current[key][name] == expected[key][name], (key, name)
        if key not in first_keys and has_groups and not has_conditions and starts_with_input:
            for name in (*statuses.mixed, *statuses.started):
                assert current[key][name] == expected[key][name], (key, name)
    if not starts_with_input or statuses.affects_rows:
        return
    half = current_rows(whole.half) or {pick(row, whole.half.keys): row for row in write_values(whole.half.rows)}
    for key, row in half.items():
        if key not in expected and (has_sessions(whole.root) or not whole.is_updating):
            continue  # a session that began earlier, or a window that was emitted before
        if key not in current and has_conditions:
            continue
        nothing = dict.fromkeys(statuses.started, "None")
        assert pick({**nothing, **current.get(key, {})}, statuses.started) == pick(row, statuses.started), key


def check_backfilled(later: Table, whole: Expected, statuses: Statuses) -> None:
    """Check a table after a backfill: its columns are those of a query that never stopped."""
    if not whole.is_updating:
        assert not later.wrong, later.wrong
        check_rows(later.appended, whole.later_rows, whole.run.names)
        return
    expected = current_rows(whole.run)
    if not statuses.affects_rows:
        assert not later.wrong, later.wrong
        assert later.rows.keys() == expected.keys()
    for key in later.rows.keys() & expected.keys():
        row = {**dict.fromkeys(whole.run.names, "None"), **later.rows[key]}
        for name in whole.run.names:
            assert row[name] == expected[key][name], (key, name)


def halves(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return rows[: ROWS // 2], rows[ROWS // 2 :]


VERDICT_ERRORS = {Verdict.INCOMPATIBLE: "incompatible-change", Verdict.UNKNOWN: "unknown-change"}
