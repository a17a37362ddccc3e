"""An S3 server for tests: moto behind waitress, in a process that ends with the test process.

Not `moto_server`: with it, the AWS SDK repeated larger uploads for minutes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from servers import end_server, free_ports, port_is_open, watchdog

from everfold.spark.s3_jars import download_s3_jars, s3_class_path

START_TIMEOUT_S = 60.0
ACCESS_KEY, SECRET_KEY = "AKIAEVERFOLD", "secret-of-the-tests"
_THREADS = 32


@dataclass(slots=True)
class S3Server:
    """A server on a free port of 127.0.0.1. It accepts all keys and keeps objects in memory."""

    port: int = field(default_factory=lambda: free_ports(1)[0])
    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-s3-")))
    _process: subprocess.Popen[bytes] | None = None
    _watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        log = self._home / "log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._watchdog = watchdog(self._process, self._home)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not port_is_open(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                self.close()
                raise RuntimeError(f"the S3 server did not start:\n{text}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        end_server(self._process, self._watchdog, signal.SIGKILL)
        self._process = self._watchdog = None

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings of Spark for this server."""
        return s3_conf(self.port)

    def create_bucket(self, name: str) -> None:
        """Create a bucket."""
        connect(self.port).create_bucket(Bucket=name)


def connect(port: int) -> Any:
    """Return a client of a server."""
    import boto3
    from botocore.handlers import add_expect_header  # type: ignore[import-untyped]

    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
    )
    # waitress does not answer a request without content that expects to be continued.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


def s3_conf(port: int) -> dict[str, str]:
    """Return the settings of Spark for a server on a port."""
    return {
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{port}",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
    }


@pytest.fixture(scope="session")
def s3_jars() -> str:
    """The class path for S3. The first use on a machine downloads 686 MB."""
    download_s3_jars(lambda done, total: None)
    found = s3_class_path()
    assert found
    return found


@pytest.fixture(scope="session")
def s3_server(s3_jars: str) -> Iterator[S3Server]:
    """A server with a bucket `everfold`, for all tests: a JVM that keeps its connections would not use
    a second one.
    """
    with S3Server() as server:
        server.create_bucket("everfold")
        yield server


def _serve(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app  # type: ignore[attr-defined]
    from waitress import serve

    moto = DomainDispatcherApplication(create_backend_app)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        # moto decodes the path, and then its signs of percent again.
        environ["PATH_INFO"] = environ["PATH_INFO"].replace("%", "%25")
        return moto(environ, start_response)

    serve(application, host="127.0.0.1", port=port, threads=_THREADS, max_request_body_size=1 << 31)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
