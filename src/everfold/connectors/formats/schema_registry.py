"""A client of the REST interface of a schema registry, as Confluent's and Apicurio have it."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from everfold.errors import ConnectorError
from everfold.limits import MAX_SCHEMA_BYTES

_TIMEOUT_S = 30
_ATTEMPTS = 4
_CONTENT = "application/vnd.schemaregistry.v1+json"
_NO_SCHEMA = 404


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """The servers of a registry, and how to authenticate. It is sent to Spark's workers.

    urls: tried in this order, without user names and passwords. authorization: the value of the
    header. trusted, certificate: PEM files of the certificates that are trusted, and of the own
    one with its key.
    """

    urls: tuple[str, ...]
    authorization: str = field(default="", repr=False)
    trusted: str | None = None
    certificate: str | None = None
    certificate_password: str | None = field(default=None, repr=False)

    def find_schema(self, number: int) -> dict[str, Any] | None:
        """Return the registry's entry of a schema, None if it has none. Raises ConnectorError."""
        return self._find(f"/schemas/ids/{number}")

    def find_version(self, subject: str, version: int) -> dict[str, Any] | None:
        """Return the entry of a version of a subject, None if there is none."""
        return self._find(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def register(self, subject: str, schema: str) -> int:
        """Return the number of a schema, which is added to a subject if it is new there.

        Raises ConnectorError `registry-refused`, for example for an incompatible schema, and
        `registry-unreachable`.
        """
        return _register(self, subject, schema)

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return _fetch(self, path)
        except LookupError:
            return None

    def request(self, path: str, body: bytes | None = None) -> dict[str, Any] | None:
        """Return the answer of the first server that answers, None if it does not know the path."""
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(2 ** (attempt - 1))
            for url in self.urls:
                try:
                    return self._send(url + path, body)
                except urllib.error.HTTPError as error:
                    reason = _read_reason(error)
                    if error.code == _NO_SCHEMA and body is None:
                        return None
                    if error.code < 500:
                        raise ConnectorError.of(
                            "registry-refused", f"the schema registry {url} refuses a request: {reason}"
                        ) from None
                except (OSError, HTTPException, ValueError) as error:
                    reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise ConnectorError.of(
            "registry-unreachable",
            f"the schema registry {', '.join(self.urls)} does not answer: {reason[:200]}",
            help="check the option `url` of the format, and run the same command again",
        )

    def _send(self, url: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(url, body, {"Accept": _CONTENT, "Content-Type": _CONTENT})
        if self.authorization:
            # Such a header is not sent to another server after a redirection.
            request.add_unredirected_header("Authorization", self.authorization)
        context = self._ssl_context() if url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
            content = answer.read(MAX_SCHEMA_BYTES + 1)
        if len(content) > MAX_SCHEMA_BYTES:
            raise ValueError(f"the answer has more than {MAX_SCHEMA_BYTES:,} bytes")
        try:
            found = json.loads(content)
        except RecursionError:
            raise ValueError("the answer is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("the answer is not an object")
        return found

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, password=self.certificate_password or "")
        return context


@lru_cache(maxsize=1000)
def _fetch(registry: SchemaRegistry, path: str) -> dict[str, Any]:
    """Return an entry of the registry. It never changes, so each process asks once.

    Raises LookupError, which is not cached: the entry may be added later.
    """
    found = registry.request(path)
    if found is None:
        raise LookupError(path)
    return found


@lru_cache(maxsize=1000)
def _register(registry: SchemaRegistry, subject: str, schema: str) -> int:
    body = json.dumps({"schema": schema}).encode()
    found = registry.request(f"/subjects/{quote(subject, safe='')}/versions", body)
    assert found is not None, "only a request without a body returns None"
    return int(found["id"])


def _read_reason(error: urllib.error.HTTPError) -> str:
    """Return the message of a refusal."""
    try:
        found = json.loads(error.read(10_000))
        return f"{found['message'][:300]} ({found.get('error_code', error.code)})"
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP {error.code} {error.reason}"


def split_user_info(url: str) -> tuple[str, str]:
    """Return a URL without its user and password, and these as `user:password`."""
    parts = urlsplit(url.strip().rstrip("/"))
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(user) if at else ""


def basic(user_info: str) -> str:
    """Return the authorization of `user:password`."""
    return f"Basic {base64.b64encode(user_info.encode()).decode()}"
