"""Before its first batch, a job on a cluster checks that the executors share its folders and have
the driver's versions."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark import ParameterSet
from hdfs import HdfsCluster
from jvm import conf_options
from s3 import S3Server
from standalone import CLUSTER_CONF, HOSTS, NAMESPACE, StandaloneCluster

from everfold.spark.hadoop import connect_without_spark
from everfold.spark.s3_jars import s3_folder
from everfold.storage import Location

pytestmark = pytest.mark.spark
TIMEOUT_S = 600.0

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


def build_command(
    cluster: StandaloneCluster, script: str, state: Path | str, conf: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command that runs a script on a cluster."""
    command = [sys.executable, "-m", "everfold", "run", "-e", script, "--state", str(state), "--master", cluster.url]
    return [*command, *conf_options({**CLUSTER_CONF, **(conf or {})})]


def run(
    ground: Ground, state: Path, source: Path, target: Path, conf: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script on the cluster."""
    command = build_command(ground.cluster, SCRIPT.format(source=source, target=target), state, conf)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


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
    conf = {"spark.executorEnv.PYTHONPATH": str(tmp_path)}
    done = run(ground, state, ground.shared / "in", state.with_name("out"), conf)
    assert done.returncode == 1, done.stderr
    for host in HOSTS:
        assert f"error[executor-python]: the executor on {host} has Polars 0.0.1, and the driver " in done.stderr
    check_nothing_began(state)


@pytest.mark.slow
def test_no_python_on_the_executors(ground: Ground) -> None:
    state = ground.shared / "python" / "job"
    done = run(ground, state, ground.shared / "in", state.with_name("out"), {"spark.pyspark.python": "/no/python3"})
    assert done.returncode == 1, done.stderr
    assert "error[executor-python]: Python does not run on the executor on 127.0.0.1" in done.stderr
    assert '"/no/python3"' in done.stderr
    check_nothing_began(state)


# --- executors that join later --------------------------------------------------------------------


@pytest.mark.slow
def test_an_executor_that_joins_later(tmp_path: Path) -> None:
    """The second worker, with a folder of its own, joins a running job: no batch is committed."""
    apart, source = tmp_path / "apart", tmp_path / "in"
    apart.mkdir()
    add_file(source, 0)
    script = SCRIPT.format(source=source, target=apart / "out")
    script = script.replace("'format' = 'json'", "'format' = 'json', 'source.monitor-interval' = '1 s'")
    with StandaloneCluster(hidden={1: [apart]}) as cluster:
        cluster.stop_worker(1)
        command = build_command(cluster, script, apart / "job")
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: any(apart.glob("job/checkpoints/*/commits/0")), job)
            cluster.start_worker(1)
            # Batches succeed until the executor has joined.
            for number in count(1):
                add_file(source, number)
                if job.poll() is not None:
                    break
                assert number < TIMEOUT_S
                time.sleep(1)
            out, error = job.communicate()
        finally:
            job.kill()
    assert job.returncode == 1, out + error
    assert f"error[executor-path]: the executor on {HOSTS[1]} cannot use the job directory `{apart}/job`" in error
    # The job resumes on the executors that share the folder, and each row is written once.
    with StandaloneCluster() as cluster:
        bounded = script.replace(", 'source.monitor-interval' = '1 s'", "")
        done = subprocess.run(
            build_command(cluster, bounded, apart / "job"),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr
    written = [line for file in (apart / "out").glob("part-*") for line in file.read_text().splitlines()]
    each_file = [f"{row['k']},{row['v']}" for row in ROWS if row["v"] < 10]
    assert sorted(written) == sorted(each_file * len([*source.iterdir()]))


def add_file(source: Path, number: int) -> None:
    """Write a file of rows."""
    source.mkdir(exist_ok=True)
    (source / f".{number}.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (source / f".{number}.json").rename(source / f"{number}.json")


def wait_until(is_done: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    """Wait for something that a running job does."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


# --- stores ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_executor_without_the_classes_of_a_store(s3_server: S3Server, tmp_path: Path) -> None:
    """The second worker does not have the jars. The first one could run all tasks alone."""
    source, root = tmp_path / "in", f"s3a://everfold/{tmp_path.name}"
    add_file(source, 0)
    with StandaloneCluster(hidden={1: [s3_folder()]}) as cluster:
        command = build_command(
            cluster, SCRIPT.format(source=source, target=f"{root}/out"), f"{root}/job", s3_server.conf
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 1, done.stderr
    message = (
        f"error[executor-path]: the executor on {HOSTS[1]} cannot use the job directory `{root}/job`: paths of `s3a`"
    )
    assert message in done.stderr
    assert HOSTS[0] not in done.stderr
    check_nothing_was_written(s3_server, root)


@pytest.mark.slow
def test_an_executor_that_does_not_reach_a_store(hdfs_cluster: HdfsCluster, tmp_path: Path) -> None:
    """Only the driver and the first worker know the name of the server."""
    driver, worker = tmp_path / "hosts-of-driver", tmp_path / "hosts-of-worker"
    worker.write_text(Path("/etc/hosts").read_text())
    driver.write_text(f"{worker.read_text()}\n127.0.0.1 store.test\n")
    source, root = tmp_path / "in", f"hdfs://store.test:{hdfs_cluster.port}/{tmp_path.name}"
    add_file(source, 0)
    with StandaloneCluster(hosts={0: driver, 1: worker}) as cluster:
        command = build_command(cluster, SCRIPT.format(source=source, target=f"{root}/out"), tmp_path / "job")
        there = f"mount --bind {shlex.quote(str(driver))} /etc/hosts && exec {shlex.join(command)}"
        done = subprocess.run(
            [*NAMESPACE, "sh", "-c", there], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    assert done.returncode == 1, done.stderr
    message = f"error[executor-path]: the executor on {HOSTS[1]} cannot use table `snk` in `{root}/out`: "
    assert message in done.stderr
    assert "store.test" in done.stderr.partition(message)[2].splitlines()[0]
    assert not [*tmp_path.glob("job/checkpoints/*/offsets/*")]


def check_nothing_was_written(server: S3Server, root: str) -> None:
    """No batch was planned, and no file of the check is left."""
    location = Location(root, connect_without_spark(server.conf))
    names = [each.path for each in location.walk()]
    assert names
    assert not [each for each in names if "/offsets/" in each or "part-" in each or ".executor-check-" in each]
