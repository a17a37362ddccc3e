"""Before its first batch, a job on a cluster checks that the executors share its folders and have
the driver's versions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet
from standalone import CLUSTER_CONF, HOSTS, StandaloneCluster

pytestmark = pytest.mark.spark

ROWS = [{"k": n % 3, "v": n} for n in range(30)]
SCRIPT = """
CREATE TABLE src (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'json');
CREATE TABLE snk (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = '{target}', 'format' = 'csv');
CREATE TABLE counts (k INT, n BIGINT, s INT) WITH ('connector' = 'print');
BEGIN STATEMENT SET;
INSERT INTO snk SELECT k, v FROM src WHERE v < 10;
INSERT INTO counts SELECT k, COUNT(*), SUM(v) FROM src GROUP BY k;
END;
"""


def slow(*values: str) -> ParameterSet:
    """A parameter set that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Ground(NamedTuple):
    """A cluster, and three folders: the second worker has its own `apart`, and cannot write to
    `read_only`.
    """

    cluster: StandaloneCluster
    shared: Path
    apart: Path
    read_only: Path


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    shared, apart, read_only = (tmp_path_factory.mktemp(name) for name in ("shared", "apart", "read_only"))
    for folder in (shared / "in", apart / "in"):
        folder.mkdir()
        (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with StandaloneCluster(hidden={1: [apart]}, read_only={1: [read_only]}) as cluster:
        yield Ground(cluster, shared, apart, read_only)


def run(
    ground: Ground, state: Path, source: Path, target: Path, conf: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the script on the cluster."""
    command = [sys.executable, "-m", "everfold", "run", "-e", SCRIPT.format(source=source, target=target)]
    command += ["--state", str(state), "--master", ground.cluster.url]
    for each in (*(f"{key}={value}" for key, value in CLUSTER_CONF.items()), *conf):
        command += ["--conf", each]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def check_nothing_began(state: Path) -> None:
    """No batch was planned, nothing was written to a table, and no file of the check is left."""
    assert not [*state.glob("checkpoints/*/offsets/*")]
    assert not [*state.parent.rglob("part-*"), *state.parent.rglob(".executor-check-*")]


def test_a_job_runs_on_executors_that_share_its_folders(ground: Ground) -> None:
    state, target = ground.shared / "ok" / "job", ground.shared / "ok" / "out"
    done = run(ground, state, ground.shared / "in", target)
    assert done.returncode == 0, done.stderr
    counts = {k: [row["v"] for row in ROWS if row["k"] == k] for k in range(3)}
    assert sorted(done.stdout.splitlines()) == [f"+I[{k}, {len(of)}, {sum(of)}]" for k, of in counts.items()]
    written = [line for file in target.glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(written) == sorted(f"{row['k']},{row['v']}" for row in ROWS if row["v"] < 10)
    assert not [*ground.shared.rglob(".executor-check-*")]


@pytest.mark.parametrize(
    ("state", "source", "target", "what", "reason"),
    [
        ("apart/job", "shared/in", "shared/out", "the job directory `{apart}/job`", "No such file"),
        slow("shared/a/job", "apart/in", "shared/a/out", "table `src` in `{apart}/in`", "No such file"),
        slow("shared/b/job", "shared/in", "apart/out", "table `snk` in `{apart}/out`", "No such file"),
        slow("shared/c/job", "shared/in", "read_only/out", "table `snk` in `{read_only}/out`", "Read-only file system"),
    ],
)
def test_a_folder_that_an_executor_does_not_share(
    ground: Ground, state: str, source: str, target: str, what: str, reason: str
) -> None:
    folders = {"shared": ground.shared, "apart": ground.apart, "read_only": ground.read_only}
    job, reads, writes = (
        folders[name] / rest for name, _, rest in (each.partition("/") for each in (state, source, target))
    )
    done = run(ground, job, reads, writes)
    assert done.returncode == 1, done.stderr
    assert (
        f"error[executor-path]: the executor on {HOSTS[1]} cannot use {what.format(**folders)}: {reason}" in done.stderr
    )
    assert HOSTS[0] not in done.stderr
    check_nothing_began(job)


@pytest.mark.slow
def test_another_version_on_the_executors(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "polars").mkdir()
    (tmp_path / "polars" / "__init__.py").write_text("__version__ = '0.0.1'\n")
    state = ground.shared / "versions" / "job"
    conf = [f"spark.executorEnv.PYTHONPATH={tmp_path}"]
    done = run(ground, state, ground.shared / "in", state.with_name("out"), conf)
    assert done.returncode == 1, done.stderr
    for host in HOSTS:
        assert f"error[executor-python]: the executor on {host} has Polars 0.0.1, and the driver " in done.stderr
    check_nothing_began(state)


@pytest.mark.slow
def test_no_python_on_the_executors(ground: Ground) -> None:
    state = ground.shared / "python" / "job"
    done = run(ground, state, ground.shared / "in", state.with_name("out"), ["spark.pyspark.python=/no/python3"])
    assert done.returncode == 1, done.stderr
    assert "error[executor-python]: Python does not run on the executor on 127.0.0.1" in done.stderr
    assert '"/no/python3"' in done.stderr
    check_nothing_began(state)
