"""Scripts of several INSERT statements, each a job of its own, that are put in another order, removed,
added, renamed, moved and changed.

Each statement continues the job that has written its table, in `everfold run` as in `everfold
check`, with the directories of the jobs as with the old script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from property.test_preflight import EngineStartsError, start_no_engine
from property.test_preflight_of_changes import invoke, start_job

from everfold.cli.main import everfold
from everfold.cli.runner import Runners
from everfold.errors import EverfoldError
from everfold.jobs.folders import FolderName
from everfold.jobs.spec import Finished, JobRunner, JobSpec

CALLS = ("SUM(v)", "MAX(v)", "MIN(v)", "COUNT(*)", "COUNT(v)", "SUM(w)", "MAX(w)")
KEYS = ("k", "j", "k, j")
CONDITIONS = ("", " WHERE v > 3", " WHERE w > 3")
NEEDS_ANSWER = ("changed-sink", "changed-source")
VERDICTS = {"": 0, "unknown-change": 4, "incompatible-change": 5}


@dataclass(frozen=True)
class Insert:
    """An INSERT statement. label: of its job, the same in both versions. key, condition, calls: of
    its query."""

    label: int
    table: str
    location: str
    key: str
    condition: str
    calls: tuple[str, ...]

    @property
    def query(self) -> str:
        calls = (*self.calls, *["NULL"] * (3 - len(self.calls)))
        first, _, second = self.key.partition(", ")
        keys = f"{first} AS x, {second or 'CAST(NULL AS STRING)'} AS y"
        columns = ", ".join(f"CAST({call} AS BIGINT) AS c{number}" for number, call in enumerate(calls))
        return f"SELECT {keys}, {columns} FROM orders{self.condition} GROUP BY {self.key}"

    def is_same_table(self, other: Insert) -> bool:
        return self.table == other.table or self.location == other.location

    def computes_as(self, other: Insert) -> bool:
        rows = (self.key, self.condition) == (other.key, other.condition)
        return rows and not {*self.calls}.isdisjoint(other.calls)


def write_script(inserts: Sequence[Insert]) -> str:
    lines = [
        "CREATE TABLE orders (k STRING, j STRING, v INT, w INT) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');"
    ]
    for table, location in dict.fromkeys((insert.table, insert.location) for insert in inserts):
        lines.append(
            f"CREATE TABLE {table} (x STRING, y STRING, c0 BIGINT, c1 BIGINT, c2 BIGINT)"
            f" WITH ('connector' = 'filesystem', 'path' = '{location}', 'format' = 'debezium-json');"
        )
    lines += [f"INSERT INTO {insert.table} {insert.query};" for insert in inserts]
    return "\n".join(lines) + "\n"


def make_inserts(random: Random) -> list[Insert]:
    inserts: list[Insert] = []
    while len(inserts) < random.choice((1, 2, 2, 3, 4)):
        label = len(inserts)
        table = random.choice((f"t{label}", f"t{label}", "t0"))
        calls = tuple(random.sample(CALLS, random.randint(1, 2)))
        insert = Insert(label, table, table, random.choice(KEYS), random.choice(CONDITIONS), calls)
        if all((other.key, other.condition) != (insert.key, insert.condition) for other in inserts):
            inserts.append(insert)
    return inserts


def edit_inserts(random: Random, inserts: Sequence[Insert]) -> list[Insert]:
    """Return the statements of the new version. An added one has a label of its own."""
    new = list(inserts)
    edits = ("order", "order", "remove", "remove", "add", "rename", "move", "redirect", "call", "rewrite")
    chosen_edits = random.sample(edits, random.randint(1, 3))
    for edit in chosen_edits:
        position = random.randrange(len(new))
        chosen = new[position]
        match edit:
            case "order":
                random.shuffle(new)
            case "remove" if len(new) > 1:
                del new[position]
            case "add":
                # What was rewritten has only its table in common with its job.
                table = random.choice(("added", chosen.table)) if "rewrite" not in chosen_edits else "added"
                location = chosen.location if table == chosen.table else "added"
                calls = tuple(random.sample(CALLS, 2))
                new.insert(random.randint(0, len(new)), Insert(10, table, location, "j, k", " WHERE v < w", calls))
            case "rename":
                new = [replace(insert, table="renamed") if insert.table == chosen.table else insert for insert in new]
            case "move":
                new = [replace(insert, location="moved") if insert.table == chosen.table else insert for insert in new]
            case "redirect" if all(insert.location != "other" for insert in new):
                new[position] = replace(chosen, table="other", location="other")
            case "call":
                call = random.choice([call for call in CALLS if call not in chosen.calls])
                new[position] = replace(chosen, calls=(*chosen.calls, call)[:3])
            case "rewrite" if [insert.table for insert in inserts].count(chosen.table) == 1:
                new[position] = replace(chosen, key="j", condition=" WHERE w < v", calls=("AVG(w)",))
    return new


@dataclass(frozen=True)
class Trial(JobRunner):
    """An engine whose jobs end where Spark would start. codes: the error of each job, empty
    without one, by its directory."""

    engine: JobRunner
    codes: dict[FolderName | None, str]

    def is_bounded(self, spec: JobSpec) -> bool:
        return self.engine.is_bounded(spec)

    def run(self, spec: JobSpec) -> Finished:
        try:
            return self.engine.run(spec)
        except EngineStartsError:
            self.codes[spec.state_dir] = ""
        except EverfoldError as error:
            self.codes[spec.state_dir] = error.code
        return Finished()


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[FolderName | None, str]:
    """The answer of `everfold run` about each job, by its directory."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "part.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("everfold.jobs.engine.start_spark", start_no_engine)
    answers: dict[FolderName | None, str] = {}
    load = Runners.load
    monkeypatch.setattr(Runners, "load", lambda self, engine: Trial(load(self, engine), answers))
    return answers


def start_jobs(base: Path, script: str, count: int, codes: dict[FolderName | None, str]) -> list[Path]:
    """Make the directories of the jobs that a script starts, where `everfold run` would; return them
    in the order of the statements."""
    folders = run_script(script, base, codes)
    assert len(folders) == count
    for number, folder in enumerate(folders):
        start_job(folder, script, Path(), number)
    return folders


def run_script(script: str, base: Path, codes: dict[FolderName | None, str]) -> list[Path]:
    """Return the directories of the jobs that `everfold run` would run."""
    file = base.with_suffix(".sql")
    file.write_text(script)
    codes.clear()
    result = CliRunner().invoke(everfold, ["run", str(file), "--state", str(base), "--on-change", "accept"])
    assert result.exception is None, (result.output, result.exception)
    return [Path(folder) for folder in codes if folder is not None]


def compare(random: Random, base: Path, codes: dict[FolderName | None, str]) -> str:
    """Compare the answers about a change of a script, and return a name for them."""
    inserts = make_inserts(random)
    new = edit_inserts(random, inserts)
    old_script, new_script = write_script(inserts), write_script(new)
    old_folders = start_jobs(base, old_script, len(inserts), codes)
    folders = run_script(new_script, base, codes)
    shown = f"{old_script}\n{new_script}\n{codes}"
    assert len({*folders}) == len(folders) == len(new), shown
    # --- each statement continues its own job
    jobs = {insert.label: (insert, folder) for insert, folder in zip(inserts, old_folders, strict=True)}
    staying = {insert.label for insert in new if insert.label in jobs and insert.is_same_table(jobs[insert.label][0])}
    for insert, folder in zip(new, folders, strict=True):
        old, own = jobs.get(insert.label, (None, None))
        is_own = insert.label in staying
        if old is not None and insert.computes_as(old):  # unless another statement writes its table now
            is_own |= not any(other.is_same_table(old) for other in new)
        if is_own:
            assert folder == own, (insert, shown)
        elif len(new) > 1 and folder in old_folders:
            left = [(former, other) for label, (former, other) in jobs.items() if label not in staying]
            alike = {other for former, other in left if insert.is_same_table(former) or insert.computes_as(former)}
            assert folder in alike, (insert, shown)
    # --- check gives the same answer
    answers = Counter(codes.values())
    asks = any(code in NEEDS_ANSWER for code in answers)
    worst = max(VERDICTS.get(code, 0) for code in answers)
    old_file, new_file = base.with_suffix(".old.sql"), base.with_suffix(".sql")
    old_file.write_text(old_script)
    for arguments in ((str(new_file), "--state", str(base)), (str(old_file), str(new_file))):
        code, result = invoke("check", *arguments)
        assert code == "", f"{shown}\n{code}\n{result.output}"
        assert set(answers) <= {*NEEDS_ANSWER, *VERDICTS}, shown
        expected = {2} if asks else {worst} if worst else {0, 3}
        assert result.exit_code in expected or (worst and result.exit_code == 2), f"{shown}\n{result.output}"
        begins = {insert.table for insert, folder in zip(new, folders, strict=True) if folder not in old_folders}
        assert {*re.findall(r"`(\w+)`: written by a new job", result.output)} == begins, f"{shown}\n{result.output}"
    return f"{len(new)} {'asks' if asks else worst}"


def compare_many(folder: Path, codes: dict[FolderName | None, str], *, seed: int, count: int) -> None:
    random = Random(seed)
    answers: Counter[Any] = Counter(compare(random, folder / f"job{number}", codes) for number in range(count))
    assert {f"{size} {answer}" for size in (1, 2, 3) for answer in (0, 5, "asks")} <= answers.keys(), answers


def test_each_statement_continues_its_job(tmp_path: Path, codes: dict[FolderName | None, str]) -> None:
    compare_many(tmp_path, codes, seed=1, count=100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_each_statement_continues_its_job_in_many_scripts(
    seed: int, tmp_path: Path, codes: dict[FolderName | None, str]
) -> None:
    compare_many(tmp_path, codes, seed=seed, count=300)
