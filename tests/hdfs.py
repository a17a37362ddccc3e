"""An HDFS for tests: Hadoop's MiniDFSCluster with one data node.

Its JVM ends with the test process, however that ends.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
import pytest
from jvm import SHORT_LIVED
from maven import fetch_jars, java_program
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from servers import free_ports

VERSION = "3.5.0"
_JVM_FLAGS = ["-Xmx400m", *SHORT_LIVED]


@dataclass(slots=True)
class HdfsCluster:
    """A name node and a data node on free ports of 127.0.0.1.

    Permissions are checked: everything belongs to the user of the tests, who is the superuser.
    """

    port: int = field(default_factory=lambda: free_ports(1)[0])
    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-hdfs-")))
    _gateway: Any = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The URI of the root folder, without the slash at its end."""
        return f"hdfs://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        jars = fetch_jars(
            f"hadoop-minicluster-{VERSION}", [("org.apache.hadoop", "hadoop-client-minicluster", VERSION)]
        )
        spark_jars = Path(pyspark.__file__).parent / "jars"
        port, token, self._process = launch_gateway(
            classpath=f"{jars}/*:{spark_jars}/*",
            javaopts=_JVM_FLAGS,
            java_path=java_program(),
            die_on_exit=True,
            enable_auth=True,
            cwd=str(self._home),
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        hadoop = self._gateway.jvm.org.apache.hadoop
        conf = hadoop.conf.Configuration()
        for name in ("hadoop.tmp.dir", "hdfs.minidfs.basedir"):
            conf.set(name, str(self._home))
        mini = getattr(hadoop.hdfs, "MiniDFSCluster$Builder")(conf)
        try:
            mini.numDataNodes(1).nameNodePort(self.port).format(True).build().waitActive()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cluster."""
        if self._process is not None:
            self._gateway.shutdown()
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
        shutil.rmtree(self._home, ignore_errors=True)


@pytest.fixture(scope="session")
def hdfs_cluster() -> Iterator[HdfsCluster]:
    """A cluster."""
    with HdfsCluster() as cluster:
        yield cluster
