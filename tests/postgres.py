"""A real PostgreSQL for tests: one server, and one database per test.

The server ends with the test process, however that ends.

The program comes from the wheel `pgserver`, else from the machine: from the PATH, or from where
Debian installs it. PostgreSQL refuses to run as root, so for root it runs as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from servers import end_server, free_ports, watchdog

START_TIMEOUT_S = 60.0
USER, PASSWORD = "everfold", "pg canary secret"
_SETTINGS = ("-h", "127.0.0.1", "-k", "", "-F", "-c", "max_connections=60", "-c", "shared_buffers=32MB")


class PostgresServer:
    """A server on a free port of 127.0.0.1.

    `stop` and `start` keep port and data, so a client sees a server that was down for a while.
    """

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="everfold-postgres-"))
        self._programs = find_programs()
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Return whether the server's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and return when it answers clients."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            # The children of a killed server may survive for a moment and prevent a new start.
            if not self.running:
                self._launch()
            try:
                self.connect("postgres").close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"PostgreSQL is not up after {START_TIMEOUT_S:.0f} s:\n{self.log_text()}"
                    ) from None
                time.sleep(0.05)

    def stop(self) -> None:
        """Shut the server down: open transactions are rolled back and connections closed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End the server as a power cut would."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server and delete its data."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def connect(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Return an autocommit connection."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def log_text(self) -> str:
        """Return what the server has logged so far."""
        path = self._home / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- process -----------------------------------------------------------------------------------

    def _make(self) -> None:
        if os.geteuid() == 0 and not _open_to_all(self._programs):
            # The wheel is in a directory that `nobody` may not enter.
            self._programs = copy_programs(self._programs, self._home / "programs")
        password = self._home / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._home, nobody.pw_uid, nobody.pw_gid)
            os.chown(password, nobody.pw_uid, nobody.pw_gid)
        arguments = ["-D", str(self._data), "-U", USER, "--auth=scram-sha-256", f"--pwfile={password}"]
        done = subprocess.run(
            [str(self._programs / "initdb"), *arguments, "--encoding=UTF8", "--locale=C", "--no-sync"],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **_as_nobody(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"PostgreSQL cannot make its data folder:\n{done.stdout}")

    def _launch(self) -> None:
        end_server(None, self._watchdog, signal.SIGKILL)
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *_SETTINGS]
        with (self._home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **_as_nobody()
            )
        self._watchdog = watchdog(self._process, self._home)

    def _end(self, how: signal.Signals) -> None:
        process, guard = self._process, self._watchdog
        self._process = self._watchdog = None
        end_server(process, guard, how)

    @property
    def _data(self) -> Path:
        return self._home / "data"


class Database:
    """The database of one test."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name

    @property
    def url(self) -> str:
        """Return the JDBC URL for `'url' = …`."""
        return f"jdbc:postgresql://127.0.0.1:{self.server.port}/{self.name}"

    def options(self, table: str, **more: str) -> dict[str, str]:
        """Return the options of a table with the connector `jdbc`."""
        options = {"connector": "jdbc", "url": self.url, "table-name": table, "username": USER, "password": PASSWORD}
        return {**options, **{key.replace("__", ".").replace("_", "-"): value for key, value in more.items()}}

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self.server.connect(self.name) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start one server for all tests of a session."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    """Create an empty database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with postgres_server.connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield Database(postgres_server, name)
    postgres_server.start()
    with postgres_server.connect("postgres") as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _as_nobody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"env": {**os.environ, "LC_ALL": "C"}}
    nobody = pwd.getpwnam("nobody")
    return {
        "user": nobody.pw_uid,
        "group": nobody.pw_gid,
        "extra_groups": [],
        "cwd": "/",
        "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"},
    }


def _open_to_all(folder: Path) -> bool:
    """Return whether every user may enter a directory."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))


def copy_programs(programs: Path, target: Path) -> Path:
    """Copy an installation of PostgreSQL, and return the copy of its programs.

    Those of the wheel look for libraries in a directory beside their package.
    """
    installation = programs.parent
    package = installation.parent
    copy = shutil.copytree(installation, target / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return copy / programs.name


def find_programs() -> Path:
    """Return the directory with `initdb` and `postgres`."""
    wheel = importlib.util.find_spec("pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        return Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin"
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not places:
        raise RuntimeError("the tests need PostgreSQL: install the package pgserver, or Debian's postgresql")
    return places[-1]
