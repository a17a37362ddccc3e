"""A real standalone cluster: a master and two workers on hosts of their own, 127.0.0.11 and 12.

Each worker lives in its own mount namespace, so a test decides which folders it does not share with
the driver. Needs root, or permission for user namespaces. The cluster ends with the test process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from jvm import SHORT_LIVED_DRIVER, daemon_environment
from servers import end_server, free_ports, port_is_open, watchdog

HOSTS = ("127.0.0.11", "127.0.0.12")
MASTER_HOST = "127.0.0.1"
WORKER_MEMORY = "1500m"
START_TIMEOUT_S = 60.0
_SPARK_HOME = Path(pyspark.__file__).parent
NAMESPACE = [
    "unshare",
    *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]),
    "--mount",
    "--propagation",
    "private",
]
"""Starts a command in a mount namespace of its own."""

CLUSTER_CONF = {"spark.executor.memory": "800m", "spark.driver.memory": "1g", **SHORT_LIVED_DRIVER}


@dataclass(slots=True)
class StandaloneCluster:
    """Master and workers.

    hidden, read_only: existing folders by worker (0 or 1) that it sees empty and on a disk of its
    own, or cannot write to. small_disks: the size of the disk with a worker's local folders, such as
    `1m`. hosts: the `/etc/hosts` of a worker. cores: of each worker.
    """

    hidden: Mapping[int, Sequence[Path]] = field(default_factory=dict)
    read_only: Mapping[int, Sequence[Path]] = field(default_factory=dict)
    small_disks: Mapping[int, str] = field(default_factory=dict)
    hosts: Mapping[int, Path] = field(default_factory=dict)
    cores: int = 1
    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-cluster-")))
    _port: int = field(default_factory=lambda: free_ports(1)[0])
    _started: dict[str, tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The value of `--master`."""
        return f"spark://{MASTER_HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("Master", MASTER_HOST, ["--port", str(self._port)])
            self._wait(lambda: port_is_open(self._port), "the master does not listen")
            for worker in range(len(HOSTS)):
                self.start_worker(worker)
            self._wait(lambda: all(map(self._has_registered, range(len(HOSTS)))), "the workers do not register")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for process, guard in reversed(self._started.values()):
            end_server(process, guard, signal.SIGTERM)
        self._started.clear()
        shutil.rmtree(self._home, ignore_errors=True)

    def start_worker(self, worker: int) -> None:
        """Start a worker."""
        folder = self._home / f"worker-{worker}"
        folder.mkdir(exist_ok=True)
        mounts = [f"mount -t tmpfs everfold {shlex.quote(str(each))}" for each in self.hidden.get(worker, ())]
        for each in self.read_only.get(worker, ()):
            path = shlex.quote(str(each))
            mounts += [f"mount --bind {path} {path}", f"mount -o remount,ro,bind {path}"]
        if worker in self.hosts:
            mounts.append(f"mount --bind {shlex.quote(str(self.hosts[worker]))} /etc/hosts")
        local = self._home / HOSTS[worker]
        local.mkdir(exist_ok=True)
        if worker in self.small_disks:
            mounts.append(f"mount -t tmpfs -o size={self.small_disks[worker]} everfold {shlex.quote(str(local))}")
        arguments = ["--cores", str(self.cores), "--memory", WORKER_MEMORY, "--work-dir", str(folder), self.url]
        self._start("Worker", HOSTS[worker], arguments, mounts)

    def stop_worker(self, worker: int) -> None:
        """End a worker."""
        process, guard = self._started.pop(HOSTS[worker])
        end_server(process, guard, signal.SIGTERM)

    def kill_worker(self, worker: int) -> None:
        """Kill a worker and its executors with SIGKILL, and delete what is on its disk."""
        process, guard = self._started.pop(HOSTS[worker])
        os.killpg(process.pid, signal.SIGKILL)
        end_server(process, guard, signal.SIGKILL)
        for folder in (self._home / f"worker-{worker}", self._home / HOSTS[worker]):
            shutil.rmtree(folder, ignore_errors=True)

    def find_worker(self, pid: int) -> int:
        """Return the worker of which a process is a descendant."""
        workers = {self._started[host][0].pid: at for at, host in enumerate(HOSTS) if host in self._started}
        while pid not in workers:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return workers[pid]

    def _start(self, role: str, host: str, arguments: Sequence[str], mounts: Sequence[str] = ()) -> None:
        command = [str(_SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}"]
        command += ["--host", host, "--webui-port", "0", *arguments]
        script = " && ".join([*mounts, f"exec {shlex.join(command)}"])
        environment = {
            **os.environ,
            **daemon_environment(),
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._home / host),
        }
        with self._log(host).open("wb") as log:
            process = subprocess.Popen(
                [*NAMESPACE, "sh", "-c", script],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started[host] = process, watchdog(process, self._home)

    def _log(self, host: str) -> Path:
        return self._home / f"{host}.log"

    def _has_registered(self, worker: int) -> bool:
        return "Successfully registered with master" in self._log(HOSTS[worker]).read_text(errors="replace")

    def _wait(self, is_done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_done():
            if time.monotonic() > deadline:
                logs = "\n".join(file.read_text(errors="replace")[-2000:] for file in self._home.glob("*.log"))
                raise TimeoutError(f"{what}:\n{logs}")
            time.sleep(0.1)
