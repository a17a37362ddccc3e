"""A schema registry for tests: Apicurio's server, with its interface of Confluent's registry.

The archive comes from Maven (160 MB, once per machine), and is unpacked into the cache.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jvm import SHORT_LIVED
from maven import fetch_archive, java_program
from servers import end_server, free_ports, watchdog

VERSION = "3.0.9"
"""The newest one that runs on Java 17."""
_START_S = 300


@contextmanager
def run_schema_registry() -> Iterator[str]:
    """Run a registry for the block, and return the URL of its interface."""
    home = fetch_archive(f"apicurio-{VERSION}", ("io.apicurio", "apicurio-registry-app", VERSION), "all")
    [port] = free_ports(1)
    data = Path(tempfile.mkdtemp(prefix="apicurio-"))
    flags = [*SHORT_LIVED, "-Xmx512m"]
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    command = [java_program(), *flags, *settings, "-jar", str(next(home.glob("*-runner.jar")))]
    log = data / "log.txt"
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=data, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    guard = watchdog(server, data)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        _wait_for(f"{url}/subjects", server, log)
        yield url
    finally:
        end_server(server, guard, signal.SIGKILL)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise RuntimeError(f"the schema registry does not start:\n{log.read_text()[-3000:]}")
