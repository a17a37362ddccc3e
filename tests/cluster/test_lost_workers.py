"""A worker of a cluster is killed and its disk is lost, or its disk is full.

Job directory and tables are in S3; the workers share nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from faults.injection import Fault, Plan
from faults.test_each_step import BUCKET, COPY
from jvm import conf_options
from s3 import S3Server
from standalone import CLUSTER_CONF, HOSTS, StandaloneCluster
from totals import COUNTS, DDL, TIMEOUT_S, Folder, compute_totals, make_folder_in_s3, stop

pytestmark = [pytest.mark.slow, pytest.mark.spark]
STEPS = {
    "within a batch": Fault(BUCKET, "before", 9, "hold"),
    "during publishing": Fault(COPY, "before", 2, "hold"),
}
ONE_FILE_PER_BATCH = "'format' = 'json', 'scan.max-files-per-batch' = '1'"


def start(
    folder: Folder, cluster: StandaloneCluster, environment: Mapping[str, str] | None = None, *more: str
) -> subprocess.Popen[str]:
    """Start the totals on a cluster, with a batch for each file of orders."""
    script = DDL.format(root=folder.uri, **COUNTS).replace("'format' = 'json'", ONE_FILE_PER_BATCH)
    command = ["run", "-e", script, "--state", folder.job, "--master", cluster.url, *more]
    return subprocess.Popen(
        folder.everfold(*command, conf=CLUSTER_CONF),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_job_survives_the_loss_of_a_worker(step: str, s3_server: S3Server, tmp_path: Path) -> None:
    folder, fault = make_folder_in_s3(s3_server, tmp_path.name), STEPS[step]
    for number in range(3):
        folder.add_orders(number)
    plan = Plan(tmp_path, fault.function)
    plan.set(fault)
    names = ("PYTHONPATH", "EVERFOLD_FAULT_AT", "EVERFOLD_FAULT_PLAN")
    of_executors = {f"spark.executorEnv.{name}": plan.environment[name] for name in names}
    with StandaloneCluster() as cluster:
        job = start(folder, cluster, plan.environment, *conf_options(of_executors))
        try:
            pid = plan.wait(TIMEOUT_S, job)
            cluster.kill_worker(cluster.find_worker(pid) if fault.function == BUCKET else 1)
            plan.release()
            out, error = job.communicate(timeout=TIMEOUT_S)
        finally:
            stop([job])
    assert job.returncode == 0, out + error
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)


def test_the_disk_of_a_worker_is_full(s3_server: S3Server, tmp_path: Path) -> None:
    folder = make_folder_in_s3(s3_server, tmp_path.name)
    for number in range(3):
        folder.add_orders(number)
    with StandaloneCluster(small_disks=dict.fromkeys(range(len(HOSTS)), "64k")) as cluster:
        out, error = start(folder, cluster).communicate(timeout=TIMEOUT_S)
    assert "error[disk-full]: a disk of the executor on 127.0.0.1" in error, out + error
    assert "Traceback" not in error
    with StandaloneCluster() as cluster:
        job = start(folder, cluster)
        out, error = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 0, out + error
    assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)
