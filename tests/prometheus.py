"""A real Prometheus for tests, and its tool `promtool`.

The programs come from the PATH. Without them, the first use on a machine unpacks Debian's package
into the cache folder; that needs apt, but neither root nor an installation. The server ends with
the test process, however that ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from maven import cache_home, lock_file
from servers import end_server, free_ports, watchdog

START_TIMEOUT_S = 60.0


def find_program(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`. The first call on a machine may fetch them."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    folder = cache_home() / "prometheus"
    if not folder.is_dir():
        with lock_file(folder.with_name("prometheus.lock")):
            if not folder.is_dir():
                _fetch(folder)
    return folder / "usr" / "bin" / name


def _fetch(folder: Path) -> None:
    """Unpack Debian's package into a folder, which is then either absent or complete."""
    if shutil.which("apt-get") is None:
        raise RuntimeError("Prometheus is needed: install it, so that `prometheus` and `promtool` are on the PATH")
    staging = Path(tempfile.mkdtemp(prefix="prometheus-", dir=folder.parent))
    try:
        for each in ("lists/partial", "archives/partial"):
            (staging / each).mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={staging}/lists", "-o", f"Dir::Cache={staging}", "-o", "APT::Sandbox::User="]
        for command in (["update"], ["download", "prometheus"]):
            _run(["apt-get", "-qq", *own, *command], staging)
        (package,) = staging.glob("prometheus_*.deb")
        _run(["dpkg-deb", "--extract", str(package), str(staging / "root")], staging)
        (staging / "root").rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"cannot fetch Prometheus: {' '.join(command)}\n{done.stdout[-2000:]}")


@dataclass(slots=True)
class Prometheus:
    """A server on a free port of 127.0.0.1 that scrapes one target every two seconds.

    target: host and port. rules: a file of alerts.
    """

    target: str
    rules: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-prometheus-")))
    _process: subprocess.Popen[bytes] | None = None
    _watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        scrape = {"job_name": "everfold", "static_configs": [{"targets": [self.target]}]}
        times = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
        config = {"global": times, "rule_files": [str(self.rules)], "scrape_configs": [scrape]}
        (self._home / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        with (self._home / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(find_program("prometheus")),
                    f"--config.file={self._home}/prometheus.yml",
                    f"--storage.tsdb.path={self._home}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "GOMAXPROCS": "1"},
            )
        self._watchdog = watchdog(self._process, self._home)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.query("1")
                return self
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    text = (self._home / "server.log").read_text(errors="replace")
                    self.close()
                    raise TimeoutError(f"Prometheus does not answer:\n{text}") from None
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and delete its data."""
        end_server(self._process, self._watchdog, signal.SIGKILL)
        shutil.rmtree(self._home, ignore_errors=True)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an expression now. Raises AssertionError if it is wrong."""
        return list(self._get("query", query=expression)["result"])

    def alerts(self) -> set[str]:
        """Return the names of the rules that were evaluated."""
        groups = self._get("rules")["groups"]
        return {rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "ok"}

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            if error.code == 503:
                raise
            raise AssertionError(f"{what} {parameters}: {error.read().decode()}") from error
        assert found["status"] == "success", found
        return dict(found["data"])
