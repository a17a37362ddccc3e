"""Random changes of running jobs: on Spark, from files, with backfills and rollbacks.

Each pair of queries is one that a property in memory draws. The old query reads half of the rows.
The new one is judged, and does what the report says with the other half: a column that is kept
equals that of a query that never stopped, one that starts counts the later rows, and a refused
change leaves the job unharmed. After a rollback, the old query has the result of one that was
never changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.csv as csv
import pytest
from property import test_cascades, test_conditions, test_mixed_columns, test_occurrences, test_several_inserts
from property.halves import LOOKUPS, PipelineRun, make_plan, rows
from property.test_succession import OVER_CALLS, RANDOM_FRAMES
from spark.live_changes import (
    VERDICT_ERRORS,
    Expected,
    Insert,
    LiveJob,
    Statuses,
    Table,
    check_accepted,
    check_backfilled,
    check_rows,
    check_whole,
    current_rows,
    halves,
    pick,
    write_values,
)
from spark.running import Run

from everfold.cli.change import Change
from everfold.compat import Judgement, Verdict
from everfold.errors import SqlError

pytestmark = pytest.mark.spark
EXTENDED = {"everfold.compat.rules": "extended"}


@dataclass(frozen=True)
class Pair:
    """The INSERTs of a job, and those of its new version.

    starts_with_input: whether new columns count the rows of the input since the change, not what an
    operator below emits since then.
    """

    old: tuple[Insert, ...]
    new: tuple[Insert, ...]
    conf: dict[str, str] = field(default_factory=dict)
    starts_with_input: bool = True
    rename: str = "MyTable"

    @classmethod
    def of(cls, old: str, new: str, conf: dict[str, str] | None = None, *, starts_with_input: bool = True) -> Pair:
        before, after = Insert("o", "o", old), Insert("o", "o", new)
        return cls((before,), (after,), conf or {}, starts_with_input)


# --- pairs ----------------------------------------------------------------------------------------


def draw_rules(chance: random.Random) -> dict[str, str]:
    return EXTENDED if chance.random() < 0.2 else {}


def draw_occurrences(chance: random.Random) -> Pair:
    if chance.random() < 0.25:
        before, after = test_occurrences.make_twins(chance)
    else:
        before = test_occurrences.make_query(chance)
        after = test_occurrences.edit_once(before, chance)
    conf = draw_rules(chance)
    return Pair.of(before.sql, after.sql, conf, starts_with_input=not conf)


def draw_cascade(chance: random.Random) -> Pair:
    query = test_cascades.make_cascade(chance)
    edited = test_cascades.edit(query, chance)
    return Pair.of(query.sql, edited.sql, draw_rules(chance), starts_with_input=False)


def draw_mixed_columns(chance: random.Random) -> Pair:
    change = test_mixed_columns.Changed(chance.choice([*test_mixed_columns.FROM]), chance)
    conf = EXTENDED if "DISTINCT" in change.after or "FILTER" in change.after else {}
    return Pair.of(change.before, change.after, conf)


def draw_condition(chance: random.Random) -> Pair:
    # Rows are found by their keys, so those of other kinds with one key several times are not.
    kind = chance.choice([kind for kind in test_conditions.FROM if kind not in ("collection", "branches")])
    return Pair.of(*test_conditions.make_change(kind, chance), draw_rules(chance))


def draw_over(chance: random.Random) -> Pair:
    calls = chance.sample(OVER_CALLS, chance.choice([1, 2]))
    frame = chance.choice(RANDOM_FRAMES)

    def write(calls: Sequence[str], frame: str, key: str) -> str:
        window = f"(PARTITION BY {key} ORDER BY ts {frame})"
        columns = (f"{call} OVER {window} AS c{OVER_CALLS.index(call)}" for call in calls)
        return f"SELECT a, b, c, ts, {', '.join(columns)} FROM MyTable"

    edited = [*calls[-1:], *(call for call in chance.sample(OVER_CALLS, 1) if call not in calls[-1:])]
    chance.shuffle(edited)
    new = write(edited, chance.choice([frame] * 4 + [*RANDOM_FRAMES]), chance.choice(["a"] * 5 + ["d"]))
    return Pair.of(write(calls, frame, "a"), new, draw_rules(chance))


def draw_several_inserts(chance: random.Random) -> Pair:
    """Draw a job of one to three INSERTs, some of whose tables are moved, renamed, or written twice."""
    drawn = [
        replace(test_several_inserts.make_insert(chance, number), table=f"t{number}", location=f"/t{number}")
        for number in range(chance.randint(1, 3))
    ]
    edited, _ = test_several_inserts.edit_job(chance, drawn)
    if len({insert.location for insert in edited}) < len(edited) or len({insert.table for insert in edited}) < len(
        edited
    ):
        return draw_several_inserts(chance)
    old, new = (
        tuple(Insert(insert.table, insert.location.strip("/"), insert.text) for insert in inserts)
        for inserts in (drawn, edited)
    )
    return Pair(old, new, EXTENDED)


DRAWN = {
    "occurrences": draw_occurrences,
    "cascades": draw_cascade,
    "mixed columns": draw_mixed_columns,
    "conditions": draw_condition,
    "over": draw_over,
    "several inserts": draw_several_inserts,
}


def draw(kind: str, seed: int) -> Pair:
    """Return a pair that binds and differs."""
    chance = random.Random(f"{kind} {seed}")
    while True:
        pair = DRAWN[kind](chance)
        try:
            for insert in (*pair.old, *pair.new):
                make_plan(insert.sql)
        except SqlError:
            continue
        if pair.old != pair.new:
            return replace(pair, rename="bids") if chance.random() < 0.2 else pair


# --- the life of a job ----------------------------------------------------------------------------


class Life:
    """A job that runs by its old query over half of the rows, and is then changed.

    is_killed: whether the change is killed before its first batch, and then started again.
    """

    def __init__(self, start: Run, pair: Pair, seed: int, kind: str, *, is_killed: bool) -> None:
        chance = random.Random(f"life {kind} {seed}")
        conf = {**pair.conf, "everfold.scan": chance.choice(["auto", "catalyst"])}
        self.pair, self.chance, self.is_killed = pair, chance, is_killed
        self.job = LiveJob(start, chance, conf, pair.rename, chance.choice(["json", "parquet"]))
        self.first, self.second = halves(rows(seed))
        Path("dim").mkdir()
        csv.write_csv(LOOKUPS["dim"], "dim/1.csv", csv.WriteOptions(include_header=False))
        self.old = {insert.table: Expected.of(insert.sql, self.first, self.second) for insert in pair.old}
        self.new = {insert.table: Expected.of(insert.sql, self.first, self.second) for insert in pair.new}
        self.moved: dict[str, str] = {}
        self.files: dict[str, list[Path]] = {}

    def run(self) -> str:
        """Run the job through the change and back, and return what happened."""
        job, pair = self.job, self.pair
        job.put(self.first)
        job.write(pair.old)
        job.run_ok("--suspend")
        for insert in pair.old:
            self.files[insert.folder] = job.list_files(insert.folder)
            expected = self.old[insert.table]
            table = job.read(self.files[insert.folder], expected)
            if expected.is_updating:
                check_rows(table.rows.values(), current_rows(expected.first).values(), expected.run.names)
            else:
                check_rows(table.appended, write_values(expected.first.rows), expected.run.names)
        job.put(self.second)
        job.write(pair.new, pair.rename)
        change = job.judge()
        answers: dict[str, str] = {}
        for finding in change.tables:
            choice = self.chance.choice([*finding.changed.choices])
            option, _, answer = choice.partition(" ")
            assert option == "--sink", choice
            answers[answer.partition("=")[0]] = answer.partition("=")[2]
        if answers:
            change = job.judge(sinks=answers)
        options = [f"--source=MyTable={pair.rename}"] * (pair.rename != "MyTable")
        options += [f"--sink={table}={answer}" for table, answer in answers.items()]
        verdict = change.judgement.verdict
        if not verdict.reuses_state:
            self._check_refused(change, options)
            return verdict.value
        done = self._accept(change, options, answers)
        if verdict is Verdict.PARTIALLY and not answers:
            done += self._backfill(change, options)
        self._roll_back()
        return done

    def _check_refused(self, change: Change, options: list[str]) -> None:
        refused = self.job.run("--on-change", "accept", *options)
        assert refused.code == 1, refused.err
        assert f"error[{VERDICT_ERRORS[change.judgement.verdict]}]" in refused.err
        assert change.exit_code == change.judgement.verdict.exit_code
        self.job.write(self.pair.old)
        self.job.run_ok()
        for insert in self.pair.old:
            expected = self.old[insert.table]
            check_whole(self.job.read(self.job.list_files(insert.folder), expected), expected)

    def _accept(self, change: Change, options: list[str], answers: dict[str, str]) -> str:
        if self.is_killed:
            self.job.kill_after_change("--on-change", "accept", *options)
        self.job.run_ok("--on-change", "accept", *options)
        folders = {insert.folder for insert in self.pair.old}
        is_rebuilt = "rebuild" in answers.values()
        for insert in self.pair.new:
            expected = self.new[insert.table]
            statuses = Statuses.of(change.judgement, insert.table)
            answer = answers.get(insert.table)
            table = self.job.read(
                self.job.list_files(insert.folder), expected, statuses.same, reemits=answer is not None
            )
            if is_rebuilt:
                check_whole(table, expected)
            elif answer is not None or insert.folder not in folders:
                self._check_moved(table, expected, statuses, answer)
            else:
                check_accepted(
                    *self._split(insert, expected, statuses),
                    expected,
                    statuses,
                    self._first_keys(expected),
                    starts_with_input=self.pair.starts_with_input,
                )
        return " ".join([change.judgement.verdict.value, *sorted(set(answers.values()))])

    def _split(self, insert: Insert, expected: Expected, statuses: Statuses) -> tuple[Table, Table]:
        """Return a table when the change began, and now, or what was appended later."""
        files = self.job.list_files(insert.folder)
        early = self.files[insert.folder]
        assert set(early) <= set(files)
        before = self.job.read(early, expected)
        later = files if expected.is_updating else [file for file in files if file not in early]
        return before, self.job.read(later, expected, statuses.same)

    def _first_keys(self, expected: Expected) -> set[tuple[str, ...]]:
        """Return the keys of the groups and windows that have rows in the first half."""
        run = PipelineRun(expected.root)
        run.feed(self.first, last=True)
        return {*current_rows(run), *(pick(row, run.keys) for row in write_values(run.rows))}

    def _check_moved(self, table: Table, expected: Expected, statuses: Statuses, answer: str | None) -> None:
        """Check a table at a location that the job has not written before."""
        names = statuses.kept
        if not names:
            return
        if not expected.is_updating:
            check_rows(table.appended, expected.later_rows, names)
            return
        right, early = current_rows(expected.run), current_rows(expected.first)
        if answer == "refresh":
            check_rows(table.rows.values(), right.values(), names)
            return
        if not statuses.started and not statuses.mixed:
            assert table.rows.keys() == {key for key, row in right.items() if early.get(key) != row}
        for key, row in table.rows.items():
            assert pick(row, names) == pick(right[key], names)

    def _backfill(self, change: Change, options: list[str]) -> str:
        refused = next((stage for stage in change.plans["backfill"] if stage.startswith("refused: ")), None)
        self.job.roll_back()
        if refused is not None:
            done = self.job.run("--on-change", "backfill", *options)
            assert f"error[{refused.split(': ')[1]}]" in done.err, (refused, done.err)
            return " no backfill"
        self.job.run_ok("--on-change", "backfill", *options)
        for insert in self.pair.new:
            expected = self.new[insert.table]
            statuses = Statuses.of(change.judgement, insert.table)
            _, later = self._split(insert, expected, statuses)
            check_backfilled(later, expected, statuses)
        return " and backfilled"

    def _roll_back(self) -> None:
        job, pair = self.job, self.pair
        job.roll_back()
        moved = {insert.table: insert.folder for insert in pair.new}
        inserts = [replace(insert, folder=moved.get(insert.table, insert.folder)) for insert in pair.old]
        job.write(inserts, pair.rename)
        job.run_ok()
        for insert, present in zip(pair.old, inserts, strict=True):
            expected = self.old[insert.table]
            folders = dict.fromkeys([insert.folder, present.folder])
            check_whole(job.read(job.list_files(*folders), expected), expected)


# --- tests ----------------------------------------------------------------------------------------


def check(
    run: Run, kind: str, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool = False
) -> str:
    """Check a pair, and return what happened."""
    pair = draw(kind, seed)
    folder.mkdir()
    monkeypatch.chdir(folder)
    try:
        return Life(run, pair, seed, kind, is_killed=is_killed).run()
    except AssertionError as error:
        raise AssertionError(f"{kind} {seed}: {pair}\n{error}") from error


@pytest.mark.parametrize(("kind", "seed"), [("mixed columns", 1), ("occurrences", 0), ("several inserts", 2)])
def test_a_changed_job(run: Run, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(run, kind, seed, tmp_path / "job", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 118))
@pytest.mark.parametrize("kind", DRAWN)
def test_many_changed_jobs(
    run: Run,
    kind: str,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("outcome", check(run, kind, seed, tmp_path / "job", monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("mixed columns", 101), ("conditions", 101), ("several inserts", 101)])
def test_a_change_that_is_killed_before_its_first_batch(
    run: Run, kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = check(run, kind, seed, tmp_path / "job", monkeypatch, is_killed=True)
    assert "compatible" in outcome


@pytest.mark.slow
def test_a_wrong_report_is_noticed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that starts at the restart is not taken for a kept one."""
    read_statuses = Statuses.of

    def keep_all(judgement: Judgement, table: str) -> Statuses:
        right = read_statuses(judgement, table)
        return replace(right, kept=[*right.kept, *right.started], started=[])

    monkeypatch.setattr(Statuses, "of", keep_all)
    with pytest.raises(AssertionError, match="'n0'"):
        check(run, "mixed columns", 101, tmp_path / "job", monkeypatch)
