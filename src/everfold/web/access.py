"""Who may see the pages: everyone with the token, or who may connect to the Unix socket."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS = {
    # No page loads anything from elsewhere. uPlot and htmx set styles of elements.
    "content-security-policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Refuses requests that may not see the pages, and sets headers of security.

    token: required of every request, in a cookie, as `?token=…`, which sets the cookie, or as a
    bearer token; empty for none. hosts: accepted values of the header Host, without port; empty for
    all. With loopback names only, a page of another site cannot read these pages through a name
    that it controls.
    """

    app: ASGIApp
    token: str = ""
    hosts: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refuse(scope) or self.app
        await answer(scope, receive, send_safely)

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the response to a request that is not let through, None for the others."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return PlainTextResponse("the header Host is not an address", 400)
        if self.hosts and name not in self.hosts:
            return PlainTextResponse("this server answers on its own address only", 421)
        if scope["method"] == "POST" and not _is_own_page(headers, host):
            return PlainTextResponse("the request comes from another site", 403)
        if not self.token:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and self._is_token(given) and scope["method"] == "GET":
            redirect = RedirectResponse(scope["path"], 303)
            redirect.set_cookie(self._cookie, given, httponly=True, samesite="strict")
            return redirect
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if self._is_token(cookie) or self._is_token(headers.get("authorization", "")[len("Bearer ") :]):
            return None
        return PlainTextResponse("open the address that `everfold ui` has printed: it contains the token", 401)

    @property
    def _cookie(self) -> str:
        """The name of the cookie, which servers on other ports of a host receive, too."""
        return f"everfold_{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(errors="surrogatepass"), self.token.encode())


def _is_own_page(headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == host
    except ValueError:
        return False
