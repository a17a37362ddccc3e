"""A real YARN in one process: Hadoop's MiniYARNCluster, with a resource manager and two nodes.

It runs with the Hadoop of PySpark's jars. It ends with the test process.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from xml.sax.saxutils import escape

import pyspark
from jvm import SHORT_LIVED, SHORT_LIVED_SPARK
from maven import fetch_jars
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

HADOOP = "3.5.0"
# The cluster's classes come from Hadoop's own tests, so they refer to JUnit.
JARS = [
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    ("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
]
_OF_SPARK = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-", "commons-logging", "snappy-java")
NODES = 2
START_TIMEOUT_MS = 60_000
_SPARK_HOME = Path(pyspark.__file__).parent
_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""
_SETTINGS = {
    "fs.defaultFS": "file:///",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": "4096",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
    # A disk that is 90 % full still has enough space for the tests.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
}
_FOR_CLIENTS = (
    "fs.defaultFS",
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.webapp.address",
)


@dataclass(slots=True)
class MiniYarn:
    """The cluster. Its processes write below one folder, which `close` removes."""

    _home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="everfold-yarn-")))
    _gateway: Any = None

    @property
    def hadoop_conf(self) -> Path:
        """The value of HADOOP_CONF_DIR."""
        return self._home / "hadoop-conf"

    @property
    def spark_conf(self) -> Path:
        """The value of SPARK_CONF_DIR: nodes take Spark's jars from the disk, without an upload."""
        return self._home / "spark-conf"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the cluster and what is left of its containers. A node that is stopped waits 15 s."""
        if self._gateway is not None:
            self._gateway.shutdown()
            subprocess.run(["pkill", "-KILL", "-f", str(self._home)], check=False)
            self._gateway.java_process.wait()
            self._gateway.java_process.stdin.close()
        self._gateway = None
        shutil.rmtree(self._home, ignore_errors=True)

    def find_output(self) -> str:
        """Return the standard output of all containers, each with its path."""
        found = sorted(self._home.rglob("container_*/stdout"))
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')}" for file in found)

    def _start(self) -> None:
        for folder in (self.hadoop_conf, self.spark_conf):
            folder.mkdir()
        log4j = self._home / "log4j2.properties"
        log4j.write_text(_LOG4J)
        jars = fetch_jars(f"hadoop-yarn-{HADOOP}", JARS)
        own = [str(jar) for jar in sorted(jars.glob("*.jar")) if not jar.name.startswith(_OF_SPARK)]
        log = (self._home / "yarn.log").open("w")
        port, process = launch_gateway(
            jarpath=str(next((_SPARK_HOME / "jars").glob("py4j-*.jar"))),
            classpath=":".join([*own, str(_SPARK_HOME / "jars" / "*")]),
            javaopts=[
                "-Xmx512m",
                *SHORT_LIVED,
                f"-Djava.io.tmpdir={self._home}",
                f"-Dlog4j2.configurationFile=file:{log4j}",
                "--add-opens=java.base/java.lang=ALL-UNNAMED",
            ],
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(self._home),
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port), java_process=process)
        hadoop = self._gateway.jvm.org.apache.hadoop
        conf = hadoop.yarn.conf.YarnConfiguration()
        for key, value in {"hadoop.tmp.dir": str(self._home / "tmp"), **_SETTINGS}.items():
            conf.set(key, value)
        cluster = hadoop.yarn.server.MiniYARNCluster("everfold", NODES, 1, 1)
        cluster.init(conf)
        cluster.start()
        if not cluster.waitForNodeManagersToConnect(START_TIMEOUT_MS):
            raise TimeoutError("the nodes of YARN do not connect")
        actual = cluster.getConfig()
        self._write_conf({key: actual.get(key) for key in _FOR_CLIENTS})

    def _write_conf(self, settings: Mapping[str, str]) -> None:
        rows = [f"<property><name>{key}</name><value>{escape(settings[key])}</value></property>" for key in settings]
        for name in ("core-site.xml", "yarn-site.xml"):
            (self.hadoop_conf / name).write_text("\n".join(["<configuration>", *rows, "</configuration>"]))
        (self.spark_conf / "spark-defaults.conf").write_text(
            f"spark.yarn.jars local:{_SPARK_HOME}/jars/*\nspark.yarn.stagingDir file://{self._home}/staging\n"
            + "".join(f"{key} {value}\n" for key, value in SHORT_LIVED_SPARK.items())
        )
