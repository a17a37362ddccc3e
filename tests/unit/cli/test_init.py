"""`everfold init`: its projects pass their tests, and their workflow judges a pull request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pexpect
import pytest
import yaml

from everfold.cli.init import TEMPLATES, read_template
from everfold.cli.main import everfold as command_line

BIN = Path(sys.executable).parent
NEXT_STEPS = re.compile(r"^  (.+)$", re.M)


def everfold(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "everfold", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


@pytest.fixture(params=TEMPLATES)
def template(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def read_yaml(template: str, name: str) -> Any:
    return yaml.safe_load(dict(read_template(template))[name])


def test_the_command_offers_each_template() -> None:
    [option] = [each for each in command_line.commands["init"].params if each.name == "template"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == tuple(TEMPLATES)


def test_the_next_steps_work(template: str, tmp_path: Path) -> None:
    done = everfold("init", "shop", "--template", template, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    steps = NEXT_STEPS.findall(done.stdout.partition("Next steps:")[2])
    assert steps[:2] == ["cd shop", "everfold test tests/"]
    script = "; ".join(["set -e", *steps])
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PATH": path},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("1 passed, 0 failed\n")
    assert len(ran.stdout.splitlines()) > 1


def test_the_case_tests_the_query_of_the_script(template: str, tmp_path: Path) -> None:
    everfold("init", "shop", "--template", template, cwd=tmp_path)
    change_script(tmp_path / "shop" / "spending.sql", {"SUM(amount)": "SUM(amount + 1)"})
    done = everfold("test", "tests/", cwd=tmp_path / "shop")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed")
    assert "+ ann" in done.stdout


def change_script(script: Path, changes: dict[str, str]) -> None:
    """Replace parts of a script; each must be there."""
    text = script.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    script.write_text(text)


@pytest.mark.parametrize("template", ["kafka", "postgres"])
def test_servers_listen_on_this_machine_only(template: str) -> None:
    services = read_yaml(template, "compose.yaml")["services"]
    ports = [port for service in services.values() for port in service["ports"]]
    assert len(ports) == len(services) > 0
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("ours")
    (tmp_path / "spending.sql").write_text("SELECT 1")
    done = everfold("init", cwd=tmp_path)
    assert done.returncode == 2
    assert "error[file-exists]: `spending.sql` exists already" in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["README.md", "spending.sql"]

    (tmp_path / "spending.sql").unlink()
    done = everfold("init", cwd=tmp_path)
    assert done.returncode == 0
    assert "kept    README.md, which exists" in done.stdout
    assert (tmp_path / "README.md").read_text() == "ours"


def test_a_terminal_is_prompted(tmp_path: Path) -> None:
    child = pexpect.spawn(sys.executable, ["-m", "everfold", "init"], cwd=str(tmp_path), timeout=60, encoding="utf-8")
    child.expect(r"Template \(files, kafka, postgres\) \[files\]: ")
    child.sendline("kafka")
    child.expect("Next steps")
    child.wait()
    assert (tmp_path / "compose.yaml").exists()


def test_a_given_template_is_not_asked_for(tmp_path: Path) -> None:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "everfold", "init", "--template", "files"],
        cwd=str(tmp_path),
        timeout=60,
        encoding="utf-8",
    )
    child.expect("Next steps")
    child.wait()
    assert (tmp_path / "spending.sql").exists()


def test_the_workflow_needs_no_write_access() -> None:
    workflow = read_yaml("files", ".github/workflows/everfold.yml")
    assert workflow["permissions"] == {"contents": "read"}
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert "everfold test tests/" in commands


BY_ITEM = {
    "GROUP BY customer": "GROUP BY customer, item",
    "SELECT customer": "SELECT customer, item",
    "  total INT": "  item STRING,\n  total INT",
    "PRIMARY KEY (customer)": "PRIMARY KEY (customer, item)",
    "'key.format' = 'raw'": "'key.format' = 'json'",
}
"""Changes of the script that discard its state."""


@dataclass(frozen=True)
class Change:
    """A change of a project in a pull request, and what its workflow says."""

    name: str
    code: int
    shown: str
    changes: dict[str, str] = field(default_factory=dict)
    template: str = "kafka"
    label: str = ""
    script: str = "spending.sql"
    """The name of the script after the change."""
    added: str = "SELECT 1;"
    """The text of another, new script."""

    def __str__(self) -> str:
        return self.name


CHANGES = (
    Change("another aggregate", 0, "title=AGG006", {"AS total": "AS total, COUNT(*) AS orders", "total INT": "total INT, orders BIGINT"}),
    Change("a discarded state", 1, "the label discard-state accepts", BY_ITEM),
    Change("an accepted discard", 0, "title=GRP001", BY_ITEM, label="ACCEPTED"),
    Change("an append-only sink", 1, "title=updates-into-appends::", {"'upsert-kafka'": "'kafka'", "'key.format' = 'raw',": "", "'value.format'": "'format'", ",\n  PRIMARY KEY (customer) NOT ENFORCED": ""}),
    Change("another topic", 1, "title=changed-source::", {"'topic' = 'orders'": "'topic' = 'orders2'"}),
    Change("another topic, accepted", 0, "::notice file=spending.sql,line=3,col=14,title=changed-source::", {"'topic' = 'orders'": "'topic' = 'orders2'"}, label="ELSEWHERE"),
    Change("no password in the environment", 0, "", {"SUM(amount)": "SUM(amount) + 0"}, template="postgres"),
    Change("a renamed and changed script", 1, "file=totals.sql,line=31,col=1,title=GRP001", BY_ITEM, script="totals.sql"),
)  # fmt: skip
MORE_CHANGES = (
    Change("a syntax error", 1, "title=syntax::", {"SELECT customer": "SELECT FROM customer"}),
    Change("an unknown connector", 1, "title=unknown-connector::", {"'connector' = 'kafka'": "'connector' = 'kafak'"}),
    Change("an unknown format", 1, "title=unknown-format::", {"  'format' = 'json'": "  'format' = 'xml'"}),
    Change("a missing option", 1, "title=missing-option::", {"  'scan.startup.mode' = 'earliest-offset',\n": ""}),
    Change("a missing key", 1, "title=missing-primary-key::", {",\n  PRIMARY KEY (customer) NOT ENFORCED": ""}),
    Change("another key", 1, "title=sink-key::", {"PRIMARY KEY (customer)": "PRIMARY KEY (total)"}),
    Change("another time zone", 1, "title=changed-zone::", {"INSERT": "SET 'table.local-time-zone' = 'Asia/Tokyo';\nINSERT"}),
    Change("another table of the sink", 1, "title=changed-sink::", {"/shop'": "/shop2'"}, template="postgres"),
    Change("a renamed script", 0, "the change is fully compatible", {}, script="totals.sql"),
    Change("a script that was renamed to another folder", 1, "file=jobs/totals.sql,line=31,col=1,title=GRP001", BY_ITEM, script="jobs/totals.sql"),
    Change("a new script that is refused", 1, "file=new.sql,title=everfold", added="SELECT a FROM nowhere;"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", MORE_CHANGES, ids=str)
def test_the_workflow_checks_more_changes(change: Change, tmp_path: Path) -> None:
    test_the_workflow_checks_the_scripts_of_a_pull_request(change, tmp_path)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_workflow_checks_the_scripts_of_a_pull_request(change: Change, tmp_path: Path) -> None:
    """Run the workflow's own script in a clone with a base branch."""
    [script] = [
        step["run"]
        for step in read_yaml(change.template, ".github/workflows/everfold.yml")["jobs"]["check"]["steps"]
        if "env" in step
    ]
    work, summary = tmp_path / "work", tmp_path / "summary.md"
    everfold("init", "work", "--template", change.template, cwd=tmp_path)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *identity, *arguments], cwd=work, check=True, capture_output=True, timeout=60)

    git("init")
    git("add", ".")
    git("commit", "-m", "base")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    (work / change.script).parent.mkdir(exist_ok=True)
    (work / "spending.sql").rename(work / change.script)
    change_script(work / change.script, change.changes)
    (work / "new.sql").write_text(change.added)
    git("add", ".")
    git("commit", "-m", "change")
    environment = {name: value for name, value in os.environ.items() if name != "PG_PASSWORD"}
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **environment,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "BASE": "origin/main",
            "ACCEPTED": "false",
            "ELSEWHERE": "false",
            **({change.label: "true"} if change.label else {}),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )
    assert done.returncode == change.code, done.stdout + done.stderr
    assert change.shown in done.stdout, done.stdout
    assert not [*work.rglob("*.base.sql")]
    assert ("discard-state" in done.stdout) == (change.code == 1 and "GRP001" in done.stdout)
    if "AGG006" in change.shown:
        assert summary.read_text().startswith("### spending.sql: partially compatible\n\n| column | state | why |\n")
        assert "| orders | starts at the restart | COUNT(\\*) is new |" in summary.read_text()
