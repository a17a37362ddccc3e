"""The HTTP server of the metrics and probes.

/metrics             the metrics of all jobs of the process
/readyz, /healthz    200 if every job makes progress, 503 with the reason otherwise
/livez               the same with more patience: only then is it better to start the job again

A job makes progress if, not long ago, it has committed a batch or found that it has no new input. A
job that starts is not ready, but alive: it may have much state to copy.
"""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from everfold.errors import UsageError
from everfold.jobs.progress import Progress, RunInfo
from everfold.jobs.spec import JobSpec
from everfold.metrics.watched_job import WatchedJob

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK = "127.0.0.1"
STALE_AFTER_S = 300.0
PATIENCE = 6
"""How many times as long `/livez` waits as `/readyz`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    """Options of the server.

    port: 0 for a free one. host: address to listen on. stale_after_s: time without a sign of
    progress after which a job is not ready.
    """

    port: int
    host: str = LOOPBACK
    stale_after_s: float = STALE_AFTER_S


@dataclass(slots=True)
class MetricsServer:
    """Serves the metrics of the jobs that it watches."""

    options: MetricsOptions
    _jobs: dict[str, WatchedJob] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _server: WSGIServer | None = field(default=None, repr=False)

    @classmethod
    def start(cls, options: MetricsOptions) -> MetricsServer:
        """Start a server. Raises UsageError `missing-package`, `port-not-available`."""
        if importlib.util.find_spec("prometheus_client") is None:
            raise UsageError.of(
                "missing-package",
                "the metrics need the package prometheus_client",
                help="pip install 'everfold[metrics]'",
            )
        server = cls(options)
        server._listen()
        return server

    @property
    def url(self) -> str:
        """The URL of the server."""
        assert self._server is not None
        host, port = self._server.server_address[:2]
        shown = host.decode() if isinstance(host, bytes) else host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @contextmanager
    def watch(self, spec: JobSpec) -> Iterator[JobSpec]:
        """Watch a job for the block, and return how to run it."""
        job = self._add(spec.name or "query")

        def start(run: RunInfo) -> None:
            job.start(run, _now_ms())
            spec.started(run)

        def add(progress: Progress) -> None:
            job.add(progress)
            if spec.progress is not None:
                spec.progress(progress)

        def look(at_ms: int) -> None:
            job.look(at_ms)
            spec.idle(at_ms)

        try:
            yield replace(spec, started=start, progress=add, idle=look)
        finally:
            with self._lock:
                del self._jobs[job.name]

    def list_jobs(self) -> list[WatchedJob]:
        """Return the jobs that are watched now."""
        with self._lock:
            return list(self._jobs.values())

    def find_trouble(self, patience: int, *, started: bool) -> list[str]:
        """Return why jobs make no progress, as sentences.

        patience: a factor of the time that they have. started: whether they must have started.
        """
        jobs = self.list_jobs()
        found = ["no job runs"] if started and not jobs else []
        for job in jobs:
            if job.run is None:
                found += [f"job `{job.name}` is starting"] * started
                continue
            silent_s = job.seconds_since_sign(_now_ms())
            if silent_s > patience * self.options.stale_after_s:
                found.append(f"job `{job.name}` has not finished a batch or looked for new input for {silent_s:.0f} s")
        return found

    def _add(self, name: str) -> WatchedJob:
        with self._lock:
            unique, number = name, 2
            while unique in self._jobs:
                unique, number = f"{name}-{number}", number + 1
            self._jobs[unique] = WatchedJob(unique)
            return self._jobs[unique]

    def _listen(self) -> None:
        from prometheus_client import CollectorRegistry, make_wsgi_app

        from everfold.metrics.collector import JobCollector

        registry = CollectorRegistry()
        registry.register(JobCollector(self.list_jobs))
        routes = {
            "/metrics": make_wsgi_app(registry),
            "/livez": self._make_probe(lambda: self.find_trouble(PATIENCE, started=False)),
            "/readyz": self._make_probe(lambda: self.find_trouble(1, started=True)),
        }
        routes["/healthz"] = routes["/readyz"]
        of, host = self.options, self.options.host
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, of.port, _route(routes), server_class=kind, handler_class=_QuietHandler)
        except OSError as error:
            raise UsageError.of(
                "port-not-available",
                f"the metrics cannot be served on {host}, port {of.port}: {error.strerror or error}",
                help="choose another --metrics-port or --metrics-host",
            ) from error
        threading.Thread(target=self._server.serve_forever, name="everfold-metrics", daemon=True).start()

    def _make_probe(self, find: Callable[[], list[str]]) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            trouble = find()
            return _respond(start_response, "503 Service Unavailable" if trouble else "200 OK", trouble or ["ok"])

        return answer


class _Server(ThreadingMixIn, WSGIServer):
    """Answers several requests at once; a slow client does not hold up the probes."""

    daemon_threads = True


class _Server6(_Server):
    """Listens on an address of IPv6."""

    address_family = socket.AF_INET6


class _QuietHandler(WSGIRequestHandler):
    """Logs no requests. A client has this long for one."""

    timeout = 10

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _route(routes: dict[str, WSGIApplication]) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        app = routes.get(environ["PATH_INFO"])
        if app is None:
            return _respond(start_response, "404 Not Found", [f"there are {', '.join(routes)}"])
        if environ["REQUEST_METHOD"] != "GET":
            return _respond(start_response, "405 Method Not Allowed", ["use GET"])
        return app(environ, start_response)

    return answer


def _respond(start_response: StartResponse, status: str, lines: list[str]) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [("\n".join(lines) + "\n").encode()]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
