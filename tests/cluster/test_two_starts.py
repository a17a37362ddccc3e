"""Of two processes that claim a job directory at once, exactly one gets it, fifty times."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hdfs import HdfsCluster
from s3 import S3Server

pytestmark = [pytest.mark.slow, pytest.mark.spark]
STARTS = 50
LEASE_S = 6.0
"""The loser waits for a beat of the winner: up to a fifth of this time."""


@pytest.mark.parametrize("store", ["s3a", "hdfs"])
def test_of_two_starts_one_runs(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if store == "s3a":
        server: S3Server = request.getfixturevalue("s3_server")
        root, conf = f"s3a://everfold/{tmp_path.name}", server.conf
    else:
        cluster: HdfsCluster = request.getfixturevalue("hdfs_cluster")
        root, conf = f"{cluster.uri}/{tmp_path.name}", {}
    program = Path(__file__).with_name("claim_again_and_again.py")
    command = [sys.executable, str(program), root, json.dumps(dict(conf)), str(LEASE_S)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(2)
    ]

    def ask(process: subprocess.Popen[str], line: str) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        assert [each.stdout.readline() for each in processes if each.stdout] == ["ready\n"] * 2
        with ThreadPoolExecutor(2) as pool:
            for number in range(STARTS):
                answers = list(pool.map(lambda process, name=number: ask(process, f"job-{name}"), processes))
                assert sorted(answers) == ["job-is-running", "won"], (number, answers)
                assert ask(processes[answers.index("won")], "release") == "released"
    finally:
        for each in processes:
            each.kill()
            each.communicate()
