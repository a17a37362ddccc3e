"""Apache Flink in a separate Java process, which answers questions: a query, its tables and their
rows.

The jars come from Maven at the first use, and so does the compiler for `Answers.java`, as a JRE has
none. PySpark's process cannot run Flink: their jars clash.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jvm import SHORT_LIVED
from maven import fetch_jars, java_program, lock_file

FLINK_VERSION = "2.3.0"
COMPILER_VERSION = "3.40.0"
_GROUP = "org.apache.flink"
_ARTIFACTS = ("flink-table-planner_2.12", "flink-table-runtime", "flink-clients")
_SOURCE = Path(__file__).with_name("Answers.java")
_SERVICES = {
    "org.apache.flink.table.factories.Factory": "Answers$Factory",
    "org.apache.flink.core.execution.PipelineExecutorFactory": "Answers$Cluster",
}
_WORKERS = 2
_SECONDS_PER_QUESTION = 120
_JVM_FLAGS = (
    "-Xmx2g",
    *SHORT_LIVED,
    # The code that Flink generates for hundreds of queries exceeds the 48 MB that this compiler has
    # by default. Java then warns, and by default among the answers.
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+DisplayVMOutputToStderr",
    "-Xlog:disable",
    "-Xlog:all=warning:stderr",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util", "java.time")),
)
# Flink's watermark assigner emits a watermark when it has risen by more than this interval.
_WATERMARK_INTERVAL = {"row": "0 ms", "end": "100000000 d"}


@dataclass(frozen=True, slots=True)
class FlinkAnswer:
    """The answer of Flink: columns with their types, and every change; or the reason if it
    refused or failed.
    """

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    changes: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        """Return whether Flink did not answer in time: the machine is overloaded, or the query
        does not end.
        """
        return any(error.startswith("TimeoutException: no answer within") for error in self.errors)

    @property
    def reason(self) -> str:
        """Return the first line of the innermost error."""
        return self.errors[-1].strip().splitlines()[0] if self.errors else ""


class Flink:
    """A running Flink. Questions are answered two at a time, in any order."""

    def __init__(self) -> None:
        self._waiting: dict[str, Future[FlinkAnswer]] = {}
        self._asked = 0
        self._log = tempfile.NamedTemporaryFile(prefix="flink-", suffix=".log", delete=False)  # noqa: SIM115
        command = [java_program(), *_JVM_FLAGS, "-cp", _class_path(), "Answers"]
        self._process = subprocess.Popen(
            [*command, str(_WORKERS), str(_SECONDS_PER_QUESTION)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()

    def ask(
        self, *, mode: str, query: str, tables: Sequence[Mapping[str, Any]], options: Mapping[str, str], watermark: str
    ) -> Future[FlinkAnswer]:
        """Ask a question. watermark:

        `row` moves it after each row; `end` moves it only at the end of input, so that no row is
        late.
        """
        self._asked += 1
        id = str(self._asked)
        settings = {
            "parallelism.default": "1",
            "table.local-time-zone": "UTC",
            "pipeline.auto-watermark-interval": _WATERMARK_INTERVAL[watermark],
            **options,
        }
        question = {"id": id, "mode": mode, "options": settings, "tables": list(tables), "query": query}
        answer = self._waiting[id] = Future[FlinkAnswer]()
        assert self._process.stdin
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return answer

    def _read_answers(self) -> None:
        assert self._process.stdout
        failure: Exception = RuntimeError(f"Flink's Java process has ended; see {self._log.name}")
        try:
            for line in self._process.stdout:
                read = json.loads(line)
                self._waiting.pop(read["id"]).set_result(_to_answer(read))
        except (ValueError, LookupError) as error:
            failure = error
            self._process.kill()
        for waiting in self._waiting.values():
            waiting.set_exception(failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe
            pipe.close()
        Path(self._log.name).unlink()


def _to_answer(read: dict[str, Any]) -> FlinkAnswer:
    if "errors" in read:
        return FlinkAnswer(errors=tuple(read["errors"]))
    names, types = zip(*read["columns"], strict=True)
    return FlinkAnswer(names, types, tuple((kind, tuple(row)) for kind, *row in read["changes"]))


def _class_path() -> str:
    """Return the class path of Flink's jars and the compiled `Answers.java`."""
    flink = [(_GROUP, artifact, FLINK_VERSION) for artifact in _ARTIFACTS]
    home = fetch_jars(f"flink-{FLINK_VERSION}-runtime", flink)
    jars = os.pathsep.join(map(str, sorted(home.glob("*.jar"))))
    classes = home.with_name(f"{home.name}-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}")
    with lock_file(classes.with_name(f"{classes.name}.lock")):
        if not classes.is_dir():
            _compile(jars, classes)
    return f"{classes}{os.pathsep}{jars}"


def _compile(jars: str, classes: Path) -> None:
    name = f"ecj-{COMPILER_VERSION}"
    compiler = fetch_jars(name, [("org.eclipse.jdt", "ecj", COMPILER_VERSION)]) / f"{name}.jar"
    staging = Path(tempfile.mkdtemp(dir=classes.parent))
    try:
        services = staging / "META-INF" / "services"
        services.mkdir(parents=True)
        for service, implementation in _SERVICES.items():
            (services / service).write_text(f"{implementation}\n", encoding="utf-8")
        command = [java_program(), "-jar", str(compiler), "-17", "-nowarn", "-cp", jars, "-d", str(staging)]
        done = subprocess.run([*command, str(_SOURCE)], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{_SOURCE.name} does not compile:\n{done.stdout}{done.stderr}")
        staging.rename(classes)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
