"""`everfold check` and `everfold run` give the same answer about a changed script of a job.

The answer is the same with the job's directory and with the old script.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result
from property.test_preflight import EngineStartsError, start_no_engine
from unit.job_dirs import carry_out, open_dir

from everfold.cli.main import everfold
from everfold.connectors.registry import apply_connector
from everfold.connectors.validate import check_tables
from everfold.errors import EverfoldError
from everfold.jobs.job_dir import JobDir
from everfold.jobs.locations import Locations
from everfold.sql.planner import Session, Submit
from everfold.storage import local

SOURCES = (
    "'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json'",
    "'connector' = 'filesystem', 'path' = './orders/', 'format' = 'json'",
    "'connector' = 'filesystem', 'path' = 'file:{folder}/orders', 'format' = 'csv'",
    "'connector' = 'filesystem', 'path' = 'archive', 'format' = 'json'",
    "'connector' = 'filesystem', 'path' = 's3a://bucket/orders', 'format' = 'json'",
    "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop', 'table-name' = 'orders'",
    "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://H:5432/shop?user=me', 'table-name' = '\"orders\"'",
    "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/shop2', 'table-name' = 'orders'",
    "'connector' = 'delta', 'table-path' = 'orders'",
    "'connector' = 'delta', 'table-path' = 'archive'",
    "'connector' = 'datagen'",
    "'connector' = 'datagen', 'rows-per-second' = '5'",
)
SINKS = (
    "'connector' = 'print'",
    "'connector' = 'filesystem', 'path' = 'totals', 'format' = 'debezium-json'",
    "'connector' = 'filesystem', 'path' = '{folder}/totals', 'format' = 'debezium-json'",
    "'connector' = 'filesystem', 'path' = 'totals2', 'format' = 'debezium-json'",
    "'connector' = 'filesystem', 'path' = 's3a://bucket/totals', 'format' = 'debezium-json'",
)
WRONG_SOURCES = ("'connector' = 'filesystem', 'path' = 'orders'", "'connector' = 'datagn'")
QUERIES = (
    "SELECT k, SUM(v) AS a, MAX(v) AS b FROM orders GROUP BY k",
    "SELECT k, SUM(v) AS a, MAX(v) AS b, COUNT(*) AS c FROM orders GROUP BY k",
    "SELECT k, SUM(v) AS a, MIN(v) AS b FROM orders GROUP BY k",
    "SELECT k, SUM(v) AS a, MAX(v) AS b FROM orders WHERE v > 3 GROUP BY k",
    "SELECT k, SUM(v) AS a, MAX(v) AS b FROM orders GROUP BY k HAVING SUM(v) > 3",
    "SELECT k, v AS a, v AS b FROM orders",
    "SELECT j AS k, SUM(v) AS a, MAX(v) AS b FROM orders GROUP BY j",
    "SELECT k, SUM(a) AS a, MAX(a) AS b FROM (SELECT k, j, MAX(v) AS a FROM orders GROUP BY k, j) GROUP BY k",
    "SELECT k, a, b FROM (SELECT k, v AS a, v AS b, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS r FROM orders) WHERE r <= 3",
    "SELECT DISTINCT k, 1 AS a, 1 AS b FROM orders",
    "SELECT k, v AS a, v AS b FROM orders UNION ALL SELECT k, SUM(v) AS a, MAX(v) AS b FROM orders GROUP BY k",
    "SELECT 'x' AS k, 1 AS a, 1 AS b",
)
WRONG_QUERIES = ("SELECT k, SUM(v) AS a, MAX(w) AS b FROM orders GROUP BY k", "SELECT k, v FROM ordrs")
REUSED = ("incompatible-change", "unknown-change")


@dataclass(frozen=True)
class Version:
    """A version of the script of a job."""

    source: str
    query: str
    settings: tuple[str, ...] = ()
    sink: str = SINKS[0]
    table: str = "orders"
    column: str = "v"
    target: str = "totals"

    def write(self, folder: Path) -> str:
        return "".join(
            [
                *(f"SET {setting};\n" for setting in self.settings),
                f"CREATE TABLE {self.table} (k STRING, j STRING, {self.column} INT) WITH ({self.source.replace('{folder}', str(folder))});\n",
                f"CREATE TABLE {self.target} (k STRING, a INT, b INT{', c BIGINT' * (' AS c' in self.query)}) WITH ({self.sink.replace('{folder}', str(folder))});\n",
                f"INSERT INTO {self.target} {self.renamed_query};\n",
            ]
        )

    @property
    def renamed_query(self) -> str:
        return re.sub(r"\bv\b", self.column, self.query.replace("FROM orders", f"FROM {self.table}"))


def choose_change(random: Random) -> tuple[Version, Version, list[str]]:
    """Return two versions of a script, and the user's answers."""

    def sometimes(share: float, *settings: str) -> tuple[str, ...]:
        return (random.choice(settings),) if random.random() < share else ()

    rules = sometimes(0.3, "'everfold.compat.rules' = 'extended'")
    old = Version(random.choice(SOURCES), random.choice((QUERIES[0], *QUERIES[:-1])), rules, random.choice(SINKS))
    source = old.source if random.random() < 0.4 else random.choice((*SOURCES, *SOURCES, *WRONG_SOURCES))
    query = old.query if random.random() < 0.3 else random.choice((*QUERIES[:2], *QUERIES, *QUERIES, *WRONG_QUERIES))
    settings = (
        *rules,
        *sometimes(0.12, "'table.local-time-zone' = 'Asia/Tokyo'", "'table.local-time-zone' = 'Nowhere'"),
        *sometimes(0.08, "'execution.runtime-mode' = 'batch'"),
    )
    sink = old.sink if random.random() < 0.5 else random.choice(SINKS)
    table, target = ("purchases" if random.random() < 0.2 else "orders"), random.choice(("totals",) * 5 + ("sums",))
    column = "amount" if random.random() < 0.15 else "v"
    answers = [*sometimes(0.4, f"{table}=moved", f"{table}=new", f"{table}=new", "ordrs=new", "orders=old")]
    if random.random() < 0.7:
        answers += ["orders=purchases"] * (table == "purchases") + [f"orders.v={column}"] * (column == "amount")
    of_sinks = sometimes(
        0.4, f"{target}=refresh", f"{target}=empty", f"{target}=empty", f"{target}=rebuild", "totls=empty"
    )
    options = [part for answer in answers for part in ("--source", answer)]
    options += [part for answer in of_sinks for part in ("--sink", answer)]
    return old, Version(source, query, settings, sink, table, column, target), options


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("orders", "archive"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.json").write_text("{}")
    monkeypatch.setenv("EVERFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("everfold.jobs.engine.start_spark", start_no_engine)
    return tmp_path


def start_job(folder: Path, script: str, project: Path, number: int = -1) -> None:
    """Make the directory of a job that has finished a batch. number: of its statement."""
    submit = [action for action in Session(connected=apply_connector).run(script) if isinstance(action, Submit)][number]
    plan = open_dir(folder, submit.roots, folder=project)
    tables = check_tables(plan.roots, streaming=True)
    located = Locations(JobDir(local(folder)), project).locate(plan.manifest, plan.roots, tables.sources)
    carry_out(folder, plan)
    job_dir = JobDir(local(folder))
    job_dir.read_manifest()
    job_dir.write_manifest(located.manifest)
    checkpoint = Path(str(job_dir.checkpoint(located.manifest, 0)))
    for name in ("offsets", "commits", *(f"sources/{source}" for source in located.spark_names.values())):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    lines = (f'{name}:{{"logOffset":0}}' for name in located.spark_names.values())
    (checkpoint / "offsets" / "0").write_text("\n".join(["v2", "{}", *lines]))
    (checkpoint / "commits" / "0").write_text("v1\n{}")
    (checkpoint / "metadata").write_text('{"id":"19c7a3bf-22bc-4de0-ba9f-96c0caea76a0"}')


def invoke(*arguments: str) -> tuple[str, Result]:
    """Run a command; return the code of its error, empty without one."""
    result = CliRunner().invoke(everfold, arguments)
    match result.exception:
        case None | EngineStartsError() | SystemExit():
            return "", result
        case EverfoldError() as error:
            return error.code, result
    raise AssertionError(result.output) from result.exception


def compare(random: Random, project: Path, number: int) -> str:
    """Compare the answers about a change, and return a name for them."""
    old, new, answers = choose_change(random)
    files = [project / f"old{number}.sql", project / f"new{number}.sql"]
    for file, version in zip(files, (old, new), strict=True):
        file.write_text(version.write(project))
    job = project / f"job{number}"
    start_job(job, files[0].read_text(), project)
    state = ["--state", str(job), *answers]
    refused, _ = invoke("run", str(files[1]), "--on-change", "accept", *state)
    code, result = invoke("check", str(files[1]), *state)
    shown = f"{files[0].read_text()}\n{files[1].read_text()}\n{answers}\nrun: {refused}\n{result.output}"
    findings = re.findall(r"^changed-(?:source|sink): .*\n(.*)", result.output, re.MULTILINE)
    asks = result.exit_code == 2 and not all(finding.startswith("  answered: ") for finding in findings)
    rebuilds = bool(re.search(r"^  answered: --sink \w+=rebuild", result.output, re.MULTILINE))
    match refused:
        case "" if rebuilds:
            assert (code, result.exit_code) in {("", 0), ("", 3), ("", 4), ("", 5)}, shown
        case "":
            assert (code, result.exit_code) in {("", 0), ("", 3)}, shown
        case "incompatible-change" | "unknown-change":
            expected = 2 if asks else 5 if refused == "incompatible-change" else 4
            assert (code, result.exit_code) == ("", expected), shown
        case "changed-source" | "changed-sink":
            assert (asks, f"\n{refused}: " in result.output) == (True, True), shown
        case _:
            assert code == refused, shown
    code_of_scripts, of_scripts = invoke("check", *map(str, files), *answers)
    assert (code_of_scripts, of_scripts.exit_code) == (code, result.exit_code), f"{shown}\n{of_scripts.output}"
    return refused or f"exit code {result.exit_code}"


def compare_many(project: Path, *, seed: int, count: int) -> None:
    random = Random(seed)
    answers = Counter(compare(random, project, number) for number in range(count))
    expected: set[Any] = {
        "exit code 0",
        "exit code 3",
        "changed-source",
        "changed-sink",
        "changed-zone",
        "streaming-job",
        *REUSED[:1],
    }
    assert expected <= answers.keys(), answers


def test_check_and_run_agree_on_changes(project: Path) -> None:
    compare_many(project, seed=1, count=200)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_check_and_run_agree_on_more_changes(seed: int, project: Path) -> None:
    compare_many(project, seed=seed, count=500)
