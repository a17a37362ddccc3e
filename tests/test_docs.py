"""The documentation is correct.

Its SQL binds, its case files pass, its console blocks show the actual output, and its links
resolve.

The info string of a code block decides what is checked: `sql` is bound (the blocks of a page share
a session), `yaml case` runs as a case file, `yaml` is parsed, `python run` is executed (the blocks
of a page share their names), `python` is compiled, `json` is parsed, and `console` runs its
`everfold` commands in memory and on the engine that they name, and compares their output with the
lines below them; commands without output are in NOT_RUN. `sh` is parsed by the shell, and its
`everfold` commands by everfold; with the name of a cluster, tests/cluster/test_recipes.py runs it
there. Pages with `sh run` and `console run` are run block by block in an empty folder (see walk.py).
`python spark` is run on Spark (the blocks of a page are one program). `text` is not checked.

Each script of examples/ is run on both engines.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from broker import KafkaBroker, kafka_broker
from pages import ROOT, Block, blocks
from postgres import PASSWORD, Database
from walk import INFOS, normalize, split_console, walk

from everfold.cli.init import read_template
from everfold.cli.main import everfold
from everfold.connectors.registry import apply_connector
from everfold.sql.planner import Session
from everfold.testing.casefile import loads
from everfold.testing.engines import MemoryEngine
from everfold.testing.runner import run_file

__all__ = ["kafka_broker"]

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)")
SHELL = ("sh", "sh standalone", "sh standalone local", "sh yarn")
_KNOWN = {
    "",
    "sql",
    "yaml case",
    "yaml",
    "console",
    "text",
    "python",
    "python run",
    "python spark",
    "json",
    *SHELL,
    *INFOS,
}
SPARK_PAGES = ("docs/tutorial.md", "docs/from-spark.md")
"""Pages that are run on Spark."""
SERVER_PAGES = ("docs/guides/kafka.md", "docs/guides/postgresql.md")
"""Pages that are run on Spark with servers, each by a test of its own."""
NOT_RUN = {
    "pip install": "the tests have everfold; tests/test_release.py installs the wheel",
    "uvx everfold check old.sql new.sql": "the reader's scripts",
    "make": "runs the tests themselves; the recipes exist",
    ".venv/bin/pytest": "runs the tests themselves",
    ".venv/bin/pre-commit": "changes the repository's hooks",
    "everfold test tests/": "the reader's case files",
    "everfold state /var/lib/orders": "a job: test_the_page_about_state_shows_the_state_of_a_job",
    "everfold history orders/": "a job with several versions: docs/tutorial.md runs the command",
    "everfold diff orders/": "a job with several versions: docs/tutorial.md runs the command",
    "everfold rollback orders/": "a job with several versions: tests/spark/test_rollback.py",
    "everfold run orders.sql": "the reader's script",
}
"""The commands of `console` blocks without output, by their beginning, with the reason why they are
not run.
"""
EXAMPLES = sorted((ROOT / "examples").rglob("*.sql"))
RUN_ELSEWHERE = {
    "examples/flights": "tests/spark/test_flights.py",
    "examples/changes": "two versions of a query without tables: docs/changing-queries.md checks them",
    "examples/lenses/topics.sql": "test_the_example_with_topics_runs",
}
"""The examples that need more than everfold, by the beginning of their path, and who runs them."""
_OPERATORS = ("|", "&", "&&", ";", ">", "<")


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(info: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", [each for each in BLOCKS if each.info == info], ids=lambda block: block.id)


def test_every_block_has_a_known_info_string() -> None:
    assert [block.id for block in BLOCKS if block.info not in _KNOWN] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    targets = [found["target"] for found in _LINK.finditer(page.read_text(encoding="utf-8"))]
    missing = [each for each in targets if "://" not in each and not (page.parent / each).exists()]
    assert missing == []


def test_the_reference_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    stale = [
        page for page in reference.PAGES if (ROOT / "docs" / page).read_text(encoding="utf-8") != reference.text(page)
    ]
    assert stale == [], "run: make docs"


@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.info == "sql"}), ids=lambda page: page.name
)
def test_sql_binds(page: Path) -> None:
    session = Session(connected=apply_connector, folder=ROOT / "examples" / "functions")
    for block in blocks(page):
        if block.info == "sql":
            list(session.run("\n" * block.line + block.text, source=str(page)))


def test_the_first_example_is_in_the_file_that_it_runs() -> None:
    sql = next(block for block in blocks(ROOT / "README.md") if block.info == "sql")
    assert sql.text in (ROOT / "examples" / "bids" / "tumble.sql").read_text(encoding="utf-8")


@of("yaml case")
def test_case_files_pass(block: Block) -> None:
    outcomes = list(run_file(loads(block.text, Path(block.id)), [MemoryEngine()]))
    assert outcomes
    assert [outcome.message for outcome in outcomes if not outcome.passed] == []


@of("yaml")
def test_yaml_is_yaml(block: Block) -> None:
    assert yaml.safe_load(block.text)


@of("python")
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.id, "exec")


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.info in SHELL], ids=lambda block: block.id)
def test_shell_parses(block: Block) -> None:
    assert subprocess.run(["sh", "-n"], input=block.text, text=True, check=False).returncode == 0
    for line in block.text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True) or [""]
        if program == "everfold":
            check_arguments(list(itertools.takewhile(lambda word: word not in _OPERATORS, arguments)))


@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.info == "python run"}), ids=lambda page: page.name
)
def test_python_runs(page: Path) -> None:
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.info == "python run":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "page", sorted({block.page for block in BLOCKS if block.info == "python spark"}), ids=lambda page: page.name
)
def test_python_runs_on_spark(page: Path, tmp_path: Path) -> None:
    """Run the blocks of a page as a program, next to a copy of the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "page.py").write_text("\n".join(block.text for block in blocks(page) if block.info == "python spark"))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def test_the_functions_shown_are_in_the_example_files() -> None:
    shown = [block.text for block in blocks(ROOT / "docs" / "python-functions.md")]
    for block, file in zip(shown, ("shop.py", "orders.sql"), strict=False):
        assert block in (ROOT / "examples" / "functions" / file).read_text(encoding="utf-8")


@of("json")
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


def split_command(command: str) -> list[str]:
    """Return the words of a command, without the program that installs everfold first."""
    words = shlex.split(command, comments=True)
    return words[1:] if words[0] == "uvx" else words


def run_everfold(*arguments: str) -> str:
    """Run a command in the repository and return its output, without progress."""
    done = subprocess.run(
        [sys.executable, "-m", "everfold", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    # On a busy machine a wait becomes long enough to be reported, with the time.
    return done.stdout + re.sub(r"(?m)^\d\d:\d\d:\d\d .*\n", "", done.stderr)


@of("console")
def test_commands_print_the_output_shown(block: Block) -> None:
    for command, shown in split_console(block.text):
        program, *arguments = split_command(command)
        if program == "make":
            recipes = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
            assert {each for each in arguments if "=" not in each} <= set(recipes)
        elif program == "everfold" and shown:
            memory = ["--engine", "memory"] if arguments[0] == "run" else []
            assert run_everfold(*arguments, *memory) == shown
        elif program == "everfold":
            check_arguments(arguments)
        elif program.endswith("/everfold"):
            assert run_everfold(*arguments).endswith(" passed, 0 failed\n")


def test_each_command_without_output_has_a_reason() -> None:
    commands = [
        command
        for block in BLOCKS
        if block.info == "console"
        for command, shown in split_console(block.text)
        if not shown and not command.startswith(".venv/bin/everfold")
    ]
    assert [command for command in commands if not command.startswith(tuple(NOT_RUN))] == []
    assert [name for name in NOT_RUN if not any(command.startswith(name) for command in commands)] == []


def sort_lines(output: str) -> list[str]:
    """Return the lines of an output: rows without a time have no order."""
    return sorted(output.splitlines())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(command, shown, id=block.id)
        for block in BLOCKS
        if block.info == "console"
        for command, shown in split_console(block.text)
        if shown and "everfold run" in command and "--engine" not in command
    ],
)
def test_commands_print_the_output_shown_on_spark(command: str, shown: str) -> None:
    assert sort_lines(run_everfold(*split_command(command)[1:])) == sort_lines(shown)


def test_an_example_is_run_elsewhere_or_here() -> None:
    names = [str(path.relative_to(ROOT)) for path in EXAMPLES]
    assert [prefix for prefix in RUN_ELSEWHERE if not any(name.startswith(prefix) for name in names)] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "example",
    [name for name in (str(path.relative_to(ROOT)) for path in EXAMPLES) if not name.startswith(tuple(RUN_ELSEWHERE))],
)
def test_examples_print_the_same_rows_on_both_engines(example: str) -> None:
    in_memory = run_everfold("run", example, "--engine", "memory")
    assert "in set" in in_memory
    assert "error" not in in_memory
    assert sort_lines(run_everfold("run", example, "--engine", "spark")) == sort_lines(in_memory)


@pytest.mark.slow
@pytest.mark.spark
def test_the_example_with_topics_runs(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    """Run the script over the records of examples/lenses/sessions, until all are read."""
    topics = ("gaming-sessions", "points-by-country", "hourly-sessions")
    script = (ROOT / "examples" / "lenses" / "topics.sql").read_text(encoding="utf-8")
    for topic in topics:
        script = re.sub(rf"(?<![\w.-]){topic}", f"docs.{topic}", script)
    bounded = "SET defaults.topic.scan.bounded.mode = latest-offset;\n"
    (tmp_path / "topics.sql").write_text(bounded + script)
    kafka_broker.create_topic("docs.gaming-sessions")
    lines = sorted((ROOT / "examples" / "lenses" / "sessions").iterdir())[0].read_text(encoding="utf-8").splitlines()
    sessions = [json.loads(line) for line in lines]
    kafka_broker.produce("docs.gaming-sessions", [(session.pop("_key"), json.dumps(session)) for session in sessions])
    done = run_everfold(
        "run",
        "--dialect",
        "lenses",
        str(tmp_path / "topics.sql"),
        "--var",
        f"BROKERS={kafka_broker.bootstrap_servers}",
        "--state",
        str(tmp_path / "job"),
    )
    assert "error" not in done
    totals = {
        record.key: json.loads(record.value)
        for record in kafka_broker.consume("docs.points-by-country")
        if record.value
    }
    assert {key: total["total_points"] for key, total in totals.items()} == {b"uk": 152, b"usa": 80, b"spain": 90}
    assert len(kafka_broker.consume("docs.hourly-sessions")) == 5


@pytest.mark.slow
@pytest.mark.spark
def test_the_page_about_state_shows_the_state_of_a_job(tmp_path: Path) -> None:
    """Run the job that the page describes: COUNT(*) was added after three rows."""
    query = "INSERT INTO totals SELECT customer, SUM(amount) AS total{} FROM orders GROUP BY customer;"
    tables = """
        CREATE TABLE orders (customer STRING, amount INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
        CREATE TABLE totals (customer STRING, total INT{}) WITH ('connector' = 'blackhole');
    """
    (tmp_path / "in").mkdir()
    steps = (
        ("", "", (("ann", 4), ("bob", 7), ("ann", 6))),
        (", COUNT(*) AS n", ", n BIGINT", (("ann", 8), ("cid", 8))),
    )
    for call, column, rows in steps:
        (tmp_path / "job.sql").write_text(tables.format(column) + query.format(call))
        (tmp_path / "in" / f"{len(rows)}.json").write_text(
            "".join(json.dumps({"customer": name, "amount": amount}) + "\n" for name, amount in rows)
        )
        run = ("run", str(tmp_path / "job.sql"), "--state", str(tmp_path / "job"), "--suspend")
        assert "error" not in run_everfold(*run, "--on-change", "accept")
    page = list(blocks(ROOT / "docs" / "state.md"))
    assert page[0].text == "$ everfold state /var/lib/orders\n"
    assert normalize(run_everfold("state", str(tmp_path / "job"))) == normalize(page[1].text)


def check_arguments(arguments: list[str]) -> None:
    """Raise if the command line does not know a command or option."""
    name, *rest = arguments
    if name.startswith("-"):
        return
    command = everfold.commands[name]
    assert isinstance(command, click.Command)
    try:
        command.make_context(name, rest)
    except click.BadParameter as wrong:  # the reader has the file
        if "does not exist" not in wrong.message:
            raise


def walked() -> list[str]:
    """Return the names of the pages that are run block by block."""
    return [str(page.relative_to(ROOT)) for page in PAGES if any(block.info in INFOS for block in blocks(page))]


@pytest.mark.parametrize("page", [name for name in walked() if name not in (*SPARK_PAGES, *SERVER_PAGES)])
def test_pages_run_in_an_empty_folder(page: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    walk(ROOT / page, tmp_path / "empty")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK_PAGES)
def test_pages_run_on_spark(page: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    walk(ROOT / page, tmp_path / "empty")


def read_orders(page: Path) -> list[str]:
    """Return the records that a page writes to the topic `orders`."""
    [records] = re.findall(r"--topic orders <<'END'\n(.*?)^END$", page.read_text(encoding="utf-8"), re.M | re.S)
    lines: list[str] = records.splitlines()
    return lines


def use_servers(command: str, *replacements: tuple[str, str]) -> str:
    """Return a command that, after `everfold init`, makes the script use the servers of the tests
    and end when it has read all records.
    """
    bounded = ("'scan.startup.mode' =", "'scan.bounded.mode' = 'latest-offset', 'scan.startup.mode' =")
    if not command.startswith("everfold init"):
        return command
    edits = "; ".join(f"s|{old}|{new}|" for old, new in (*replacements, bounded))
    return f'{command}\nsed -i "{edits}" spending.sql\n'


@pytest.mark.slow
def test_the_guide_to_kafka_runs(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "kafka.md"
    (tmp_path / "empty").mkdir()
    for topic in ("guide-orders", "guide-spending"):
        kafka_broker.create_topic(topic)
    kafka_broker.produce("guide-orders", [(None, record) for record in read_orders(page)])
    replacements = (
        ("localhost:9092", kafka_broker.bootstrap_servers),
        ("'topic' = '", "'topic' = 'guide-"),
    )
    walk(page, tmp_path / "empty", rewrite=lambda command: use_servers(command, *replacements))
    records = {
        one.key: json.loads(one.value) for one in kafka_broker.consume("guide-spending") if one.value and one.key
    }
    assert records == {
        b"ann": {"customer": "ann", "total": 9, "orders": 2},
        b"bob": {"customer": "bob", "total": 12, "orders": 1},
    }


@pytest.mark.slow
def test_the_guide_to_postgresql_runs(kafka_broker: KafkaBroker, database: Database, tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "postgresql.md"
    (tmp_path / "empty").mkdir()
    [table] = re.findall(r"`(CREATE TABLE .*?)`", page.read_text(encoding="utf-8"))
    compose = yaml.safe_load(dict(read_template("postgres"))["compose.yaml"])
    assert compose["configs"]["tables"]["content"].strip() == f"{table};"
    database.run(table)
    kafka_broker.create_topic("guide-payments")
    kafka_broker.produce("guide-payments", [(None, record) for record in read_orders(page)])

    def alter_table(block: Block) -> None:
        for statement in re.findall(r'--command "(ALTER .*?)"', block.text):
            database.run(statement)

    replacements = (
        ("localhost:9092", kafka_broker.bootstrap_servers),
        ("'topic' = 'orders'", "'topic' = 'guide-payments'"),
        ("jdbc:postgresql://localhost:5432/shop", database.url),
    )

    def rewrite(command: str) -> str:
        return use_servers(command, *replacements).replace("PG_PASSWORD=everfold", f"PG_PASSWORD='{PASSWORD}'")

    walk(page, tmp_path / "empty", rewrite=rewrite, visit=alter_table)
    assert database.run("SELECT customer, total, orders FROM spending ORDER BY customer") == [
        ("ann", 9, 2),
        ("bob", 12, 1),
    ]
