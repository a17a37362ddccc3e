"""The files in `deploy/` parse, and run everfold with options that it has."""

from __future__ import annotations

import json
import re
import shlex
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from everfold.cli.main import everfold
from everfold.connectors.registry import apply_connector
from everfold.errors import EXIT_INTERRUPTED, EXIT_WRONG_USE
from everfold.sql.planner import Session, Submit

DEPLOY = Path(__file__).parents[2] / "deploy"
ENVIRONMENT = {"KAFKA_PASSWORD": "secret"}


def read_resources() -> dict[str, Any]:
    """Return the resources of the manifest by kind."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "job.yaml").read_text(encoding="utf-8")))
    return {each["kind"]: each for each in found}


def read_service() -> dict[str, dict[str, str]]:
    """Return the sections of the systemd unit."""
    unit = RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "everfold@.service").read_text(encoding="utf-8"))
    return {name: dict(unit[name]) for name in unit.sections()}


def read_dockerfile() -> dict[str, str]:
    """Return the last instruction of each kind."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = dict(line.split(maxsplit=1) for line in lines)
    assert found.keys() <= {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    return found


def check_command(arguments: list[str]) -> None:
    """Check that click accepts the arguments of the command."""
    name, *rest = arguments
    everfold.commands[name].make_context(name, list(rest))


def find_stop_timeout(arguments: list[str]) -> float:
    """Return how long a stop waits for the running batch."""
    name, *rest = arguments
    return float(everfold.commands[name].make_context(name, list(rest)).params["stop_timeout"])


def test_the_service() -> None:
    unit = read_service()
    assert unit.keys() == {"Unit", "Service", "Install"}
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"].removesuffix("$OPTIONS"))
    assert Path(program).name == "everfold"
    check_command(arguments)
    assert int(service["RestartPreventExitStatus"]) == EXIT_WRONG_USE
    assert int(service["SuccessExitStatus"]) == EXIT_INTERRUPTED
    assert find_stop_timeout(arguments) < int(service["TimeoutStopSec"])
    assert service["KillMode"] == "mixed"  # a SIGTERM for the JVM would end the running batch


def test_the_image() -> None:
    image = read_dockerfile()
    assert image["USER"].isdecimal()
    assert json.loads(image["ENTRYPOINT"])[-1] == "everfold"
    with pytest.raises(SystemExit) as ended:
        everfold.main(json.loads(image["CMD"]))
    assert ended.value.code == 0


def test_the_pod() -> None:
    resources = read_resources()
    assert list(resources) == ["ConfigMap", "PersistentVolumeClaim", "Deployment"]
    spec = resources["Deployment"]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(read_dockerfile()["USER"])
    (container,) = pod["containers"]
    check_command(container["args"])
    assert find_stop_timeout(container["args"]) < pod["terminationGracePeriodSeconds"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() == {each["name"] for each in pod["volumes"]}
    script = Path(container["args"][1])
    assert str(script.parent) == mounts["sql"]
    assert script.name in resources["ConfigMap"]["data"]
    assert next(each for each in container["args"] if each.startswith("--state=")).startswith(
        f"--state={mounts['job']}"
    )
    assert {each["name"] for each in container["env"]} == ENVIRONMENT.keys()


def test_the_script_of_the_pod(tmp_path: Path) -> None:
    (sql,) = read_resources()["ConfigMap"]["data"].values()
    session = Session(connected=apply_connector, folder=tmp_path, environment=ENVIRONMENT)
    assert [type(each) for each in session.run(sql)][-1] is Submit
