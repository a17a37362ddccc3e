"""A store that fails now and then, folders that were restored elsewhere, and credentials."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fault_proxy import Fault, FaultProxy, Request, s3_error
from killing import seed_random
from s3 import S3Server, connect, s3_conf
from totals import COUNTS, DDL, SUMS, Folder, compute_totals, make_folder_in_s3
from warm_process import WarmProcess

from everfold.jobs.job_dir import locate_log

pytestmark = [pytest.mark.slow, pytest.mark.spark]
LONGER_THAN_THE_TIMEOUT_S = 17.0
SHORT_TIMEOUT = {"spark.hadoop.fs.s3a.connection.timeout": "15s"}
"""The shortest that S3A accepts."""


@dataclass(slots=True)
class Weather:
    """Chooses a fault for 1 in 20 requests, and a timeout for few."""

    chance: random.Random
    slow: int = 0

    def __call__(self, request: Request) -> Fault | None:
        if request.number % 400 == 50:
            self.slow += 1
            return Fault(delay_s=LONGER_THAN_THE_TIMEOUT_S)
        if self.chance.random() >= 1 / 20:
            return None
        return Fault(loses_answer=True) if request.method == "PUT" else s3_error(503, "SlowDown")


def test_a_job_in_a_store_that_fails_now_and_then(
    s3_server: S3Server, tmp_path: Path, warm_process: WarmProcess
) -> None:
    folder, weather = make_folder_in_s3(s3_server, tmp_path.name), Weather(seed_random())
    folder.process = warm_process
    with FaultProxy(s3_server.port, weather) as proxy:
        folder.conf = {**s3_conf(proxy.port), **SHORT_TIMEOUT}
        folder.add_orders(0)
        folder.run_totals(COUNTS)
        assert folder.read_totals() == compute_totals(0, sums=False)
        folder.add_orders(1)
        folder.run_totals(SUMS, "--on-change", "backfill")
        assert folder.read_totals() == compute_totals(0, 1, sums=True)
        folder.run("rollback", folder.job, "0")
        folder.run_totals(COUNTS)
        folder.run("rescale", folder.job, "3", "--master", "local[2]")
        folder.add_orders(2)
        folder.run_totals(COUNTS)
        assert folder.read_totals() == compute_totals(0, 1, 2, sums=False)
        requests = len(proxy.requests)
    print(f"{requests} requests, {weather.slow} of them timed out")
    assert weather.slow >= 2


# --- another bucket -------------------------------------------------------------------------------


def read_objects(client: Any, bucket: str, prefix: str) -> dict[str, bytes]:
    """Return the objects below a folder."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


@pytest.fixture
def copied(s3_server: S3Server, tmp_path: Path, warm_process: WarmProcess) -> tuple[Folder, Folder]:
    """A folder with a job that has run once, and a copy of everything in another bucket."""
    client = connect(s3_server.port)
    first = make_folder_in_s3(s3_server, tmp_path.name)
    first.process = warm_process
    first.add_orders(0)
    first.run_totals(COUNTS)
    bucket = f"restored-{tmp_path.name.replace('_', '-')}"
    client.create_bucket(Bucket=bucket)
    for key, content in read_objects(client, "everfold", f"{tmp_path.name}/").items():
        client.put_object(Bucket=bucket, Key=key, Body=content)
    restored = make_folder_in_s3(s3_server, tmp_path.name, bucket)
    restored.process = warm_process
    return first, restored


def test_a_job_and_its_tables_in_another_bucket_are_refused(copied: tuple[Folder, Folder]) -> None:
    """The user must say whether the tables have the rows that the job has written and read."""
    first, restored = copied
    for folder in (restored, first):
        folder.add_orders(1)
    script = DDL.format(root=restored.uri, **COUNTS)
    command = ["run", "-e", script, "--state", restored.job, "--master", "local[2]"]
    for answer, code in (([], "changed-sink"), (["--sink", "totals=empty"], "changed-source")):
        done = restored.try_to_run(*command, *answer)
        assert done.returncode == 1, done.stderr
        assert f"error[{code}]" in done.stderr
    assert restored.read_totals() == compute_totals(0, sums=False)
    first.run_totals(COUNTS)
    assert first.read_totals() == compute_totals(0, 1, sums=False)
    assert restored.read_totals() == compute_totals(0, sums=False)


def test_an_older_job_directory_in_another_bucket_is_refused(copied: tuple[Folder, Folder]) -> None:
    """The tables stay where they were, and the job has gone on since the copy was made."""
    first, restored = copied
    script = DDL.format(root=first.uri, **COUNTS)
    command = ["run", "-e", script, "--state", restored.job, "--master", "local[2]"]
    first.add_orders(1)
    first.run_totals(COUNTS)
    done = first.try_to_run(*command)
    assert done.returncode == 1, done.stderr
    assert "error[sink-ahead]" in done.stderr
    assert first.read_totals() == compute_totals(0, 1, sums=False)
    first.add_orders(2)
    first.run_totals(COUNTS)
    assert first.read_totals() == compute_totals(0, 1, 2, sums=False)


def test_the_newest_job_directory_in_another_bucket_resumes(copied: tuple[Folder, Folder]) -> None:
    first, restored = copied
    first.add_orders(1)
    script = DDL.format(root=first.uri, **COUNTS)
    first.run("run", "-e", script, "--state", restored.job, "--master", "local[2]")
    assert first.read_totals() == compute_totals(0, 1, sums=False)
    # The directory in the first bucket is the older one now.
    done = first.try_to_run("run", "-e", script, "--state", first.job, "--master", "local[2]")
    assert done.returncode == 1, done.stderr
    assert "error[sink-ahead]" in done.stderr
    assert first.read_totals() == compute_totals(0, 1, sums=False)


# --- credentials ----------------------------------------------------------------------------------

CANARIES = ("AKIACANARY7302", "cAnary7303", "cAnary7304")


def test_credentials_appear_nowhere(s3_server: S3Server, tmp_path: Path) -> None:
    """Not in the output, in logs, in Spark's event log, or in what a job keeps in the store."""
    folder = make_folder_in_s3(s3_server, tmp_path.name)
    events = tmp_path / "events"
    events.mkdir()
    names = ("access.key", "secret.key", "session.token")
    folder.conf = {
        **folder.conf,
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in zip(names, CANARIES, strict=True)},
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
    }
    folder.add_orders(0)
    done = [folder.run_totals(COUNTS), folder.run("history", folder.job), folder.run("state", folder.job)]
    done.append(folder.run("rescale", folder.job, "3", "--master", "local[2]"))
    with FaultProxy(s3_server.port, lambda request: s3_error(403, "AccessDenied")) as proxy:
        refused = {**folder.conf, "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{proxy.port}"}
        done.append(folder.try_to_run("history", folder.job, conf=refused))
        assert done[-1].returncode == 1, done[-1].stderr
    user_info = folder.uri.replace("://", f"://{CANARIES[0]}:{CANARIES[1]}@")
    done.append(folder.try_to_run("history", f"{user_info}/job"))
    done.append(folder.try_to_run("run", "-e", DDL.format(root=user_info, **COUNTS), "--state", folder.job))
    assert done[-1].returncode != 0
    printed = {f"output of command {at}": each.stdout + each.stderr for at, each in enumerate(done)}
    log = locate_log(folder.job)
    files = [log, *(file for file in events.rglob("*") if file.is_file())]
    assert len(files) > 2, "there is no event log"
    logged = {str(file): file.read_text(errors="replace") for file in files}
    objects = read_objects(connect(s3_server.port), "everfold", f"{tmp_path.name}/")
    assert any("manifest" in name for name in objects)
    kept = {name: content.decode(errors="replace") for name, content in objects.items()}
    found = {name: canary for name, text in (printed | logged | kept).items() for canary in CANARIES if canary in text}
    assert not found, found
