"""`everfold init`: its projects pass their tests, and their workflow judges a pull request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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


def test_the_case_has_the_query_of_the_script(template: str) -> None:
    project = dict(read_template(template))
    query = project["spending.sql"].decode().partition("INSERT INTO spending\n")[2]
    [case] = yaml.safe_load(project["tests/spending.case.yaml"])["cases"]
    assert case["sql"].strip() == query.strip().removesuffix(";")


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


@pytest.mark.parametrize(
    ("changes", "accepted", "code", "shown"),
    [
        (
            {"AS total": "AS total, COUNT(*) AS orders", "total INT": "total INT, orders BIGINT"},
            "false",
            0,
            "title=AGG006",
        ),
        ({"GROUP BY customer": "GROUP BY customer, item"}, "false", 1, "title=GRP001"),
        ({"GROUP BY customer": "GROUP BY customer, item"}, "true", 0, "title=GRP001"),
        ({"SELECT customer": "SELECT FROM customer"}, "false", 1, ""),
    ],
)
def test_the_workflow_checks_changed_scripts(
    changes: dict[str, str], accepted: str, code: int, shown: str, tmp_path: Path
) -> None:
    """Run the workflow's own script in a clone with a base branch."""
    [script] = [
        step["run"]
        for step in read_yaml("kafka", ".github/workflows/everfold.yml")["jobs"]["check"]["steps"]
        if "env" in step
    ]
    work, summary = tmp_path / "work", tmp_path / "summary.md"
    everfold("init", "work", "--template", "kafka", cwd=tmp_path)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")

    def git(*arguments: str) -> None:
        subprocess.run(["git", *identity, *arguments], cwd=work, check=True, capture_output=True, timeout=60)

    git("init")
    git("add", ".")
    git("commit", "-m", "base")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    query = work / "spending.sql"
    for old, new in changes.items():
        query.write_text(query.read_text().replace(old, new))
    (work / "new.sql").write_text("SELECT 1;")
    git("add", ".")
    git("commit", "-m", "change")
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "BASE": "origin/main",
            "ACCEPTED": accepted,
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert shown in done.stdout
    assert not (work / "spending.base.sql").exists()
    assert ("discard-state" in done.stdout) == (code == 1 and "GRP001" in shown)
    if "AGG006" in shown:
        assert summary.read_text().startswith("### spending.sql: partially compatible\n\n| column | state | why |\n")
        assert "| orders | starts at the restart | COUNT(\\*) is new |" in summary.read_text()
