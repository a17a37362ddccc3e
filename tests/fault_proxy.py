"""A proxy in front of an HTTP server, for faults: lost answers, error codes, answers that never come."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "date", "server", "content-length"})
_UPSTREAM_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the proxy has received. number: how many it has received before."""

    method: str
    path: str
    headers: dict[str, str]
    number: int


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a request.

    status, body: the answer instead of that of the server, which does not see the request.
    delay_s: how long its answer is held back. loses_answer: the connection is closed without it.
    """

    status: int | None = None
    body: str = ""
    delay_s: float = 0.0
    loses_answer: bool = False


def s3_error(status: int, code: str) -> Fault:
    """Return a fault in which S3 answers with an error."""
    return Fault(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>")


@dataclass(slots=True)
class FaultProxy:
    """A proxy on a free port of 127.0.0.1. choose: returns the fault of a request, None for none."""

    target: int
    choose: Callable[[Request], Fault | None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def port(self) -> int:
        """The port of the proxy."""
        assert self._server is not None
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *of: object) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def _answer(self) -> None:
                proxy.answer(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        body = _read_body(handler)
        headers = dict(handler.headers.items())
        with self._lock:
            request = Request(handler.command, handler.path, headers, len(self.requests))
            self.requests.append(request)
            fault = self.choose(request) or Fault()
        if fault.status is not None:
            _send(handler, fault.status, {"Content-Type": "application/xml"}, fault.body.encode())
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=_UPSTREAM_TIMEOUT_S)
        try:
            sent = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
            connection.request(request.method, request.path, body, {**sent, "Content-Length": str(len(body))})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        time.sleep(fault.delay_s)
        if fault.loses_answer:
            handler.close_connection = True
            return
        length = answer.headers.get("Content-Length") if request.method == "HEAD" else None
        _send(handler, answer.status, dict(answer.headers.items()), content, length)


def _read_body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
        parts = []
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            parts.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(parts)
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def _send(
    handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes, length: str | None = None
) -> None:
    handler.send_response_only(status)
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP:
            handler.send_header(name, value)
    handler.send_header("Content-Length", length or str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)
