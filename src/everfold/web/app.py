"""The pages: jobs, one job, its versions, its state, and what a changed query would keep."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from everfold import __version__
from everfold.cli.history import read_script
from everfold.errors import EverfoldError, UsageError
from everfold.jobs.rollback import roll_back
from everfold.jobs.stop import request_stop
from everfold.rendering.quantities import format_bytes, format_instant, format_span
from everfold.storage import Location
from everfold.web.access import Access
from everfold.web.jobs import Jobs, JobView, find_version
from everfold.web.state_browser import read_state
from everfold.web.versions import list_steps
from everfold.web.what_if import judge_script

_MAX_SCRIPT_BYTES = 1 << 20
_STOP_TIMEOUT_S = 120.0
_MAX_DIGITS = 9


def create_app(
    base: Location, *, token: str = "", hosts: frozenset[str] = frozenset(), allow_changes: bool = False
) -> Access:
    """Return the application that shows the jobs in a folder.

    token, hosts: as in Access. allow_changes: whether jobs can be stopped and rolled back.
    """
    pages = _Pages(Jobs(base), allow_changes=allow_changes)
    changes = [Route("/stop", pages.stop, methods=["POST"]), Route("/rollback", pages.roll_back, methods=["POST"])]
    static = StaticFiles(directory=str(files("everfold.web") / "static"))
    app = Starlette(
        routes=[
            Route("/", pages.list_jobs),
            Route("/job", pages.show_job),
            Route("/versions", pages.show_versions),
            Route("/script", pages.show_script),
            Route("/state", pages.show_state),
            Route("/what-if", pages.ask_what_if, methods=["GET", "POST"]),
            Route("/batches.json", pages.list_batches),
            *(changes if allow_changes else []),
            Mount("/static", static, name="static"),
        ],
        exception_handlers={EverfoldError: pages.show_error, OSError: pages.show_os_error},
    )
    return Access(app, token, hosts)


class _Pages:
    def __init__(self, jobs: Jobs, *, allow_changes: bool) -> None:
        self._jobs, self._allow_changes = jobs, allow_changes
        self._environment = Environment(
            loader=PackageLoader("everfold.web"), autoescape=select_autoescape(), undefined=StrictUndefined
        )
        self._environment.filters |= {
            "instant": format_instant,
            "span": format_span,
            "bytes": format_bytes,
            "clock": _format_clock,
            "link": lambda path: quote(path, safe=""),
        }

    # --- pages ------------------------------------------------------------------------------------

    async def list_jobs(self, request: Request) -> Response:
        found = await run_in_threadpool(lambda: list(self._jobs.list()))
        return self._render("jobs.html", jobs=found, folder=str(self._jobs.base))

    async def show_job(self, request: Request) -> Response:
        view = await self._view(request)
        return self._render("job.html", view=view, status=view.status, page="job")

    async def show_versions(self, request: Request) -> Response:
        view = await self._view(request)
        steps = [] if view.manifest is None else await run_in_threadpool(list_steps, view.manifest)
        return self._render("versions.html", view=view, steps=steps, page="versions")

    async def show_script(self, request: Request) -> Response:
        view = await self._view(request)
        version = find_version(view, _number(request.query_params.get("version", "")))
        return self._render("script.html", view=view, version=version, script=read_script(version), page="versions")

    async def show_state(self, request: Request) -> Response:
        view = await self._view(request)
        where = request.query_params.get("where", "").strip()
        is_asked = "read" in request.query_params
        state, error = None, ""
        if is_asked:
            try:
                state = await run_in_threadpool(read_state, view.location, where)
            except EverfoldError as problem:
                error = str(problem)
        return self._render("state.html", view=view, state=state, where=where, error=error, page="state")

    async def ask_what_if(self, request: Request) -> Response:
        view = await self._view(request)
        if view.manifest is None:
            raise UsageError.of("no-job", f"the job `{view.path}` has no query yet")
        script, answer, error = read_script(view.manifest.version), None, ""
        if request.method == "POST":
            script = (await _read_form(request)).get("script", "")
            try:
                answer = await run_in_threadpool(judge_script, view, script)
            except EverfoldError as problem:
                error = str(problem)
        return self._render("what_if.html", view=view, script=script, answer=answer, error=error, page="what-if")

    async def list_batches(self, request: Request) -> Response:
        view = await self._view(request)
        return JSONResponse({**view.chart_data(), "versions": view.list_version_starts()})

    # --- changes ----------------------------------------------------------------------------------

    async def stop(self, request: Request) -> Response:
        view = await self._view(request)
        await run_in_threadpool(request_stop, view.location, _STOP_TIMEOUT_S)
        return RedirectResponse(f"/job?path={quote(view.path, safe='')}", 303)

    async def roll_back(self, request: Request) -> Response:
        view = await self._view(request)
        number = _number((await _read_form(request)).get("version", ""))

        def carry_out() -> None:
            roll_back(view.location, number, duplicates=False, say=lambda _: None)

        await run_in_threadpool(carry_out)
        return RedirectResponse(f"/versions?path={quote(view.path, safe='')}", 303)

    # --- errors -----------------------------------------------------------------------------------

    async def show_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, EverfoldError)
        code = 404 if error.diagnostics[0].code in ("no-job", "no-version") else 409
        return self._render("error.html", code, error=str(error))

    async def show_os_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, OSError)
        return self._render("error.html", 500, error=f"a file cannot be read: {error.strerror or error}")

    # ----------------------------------------------------------------------------------------------

    async def _view(self, request: Request) -> JobView:
        path = request.query_params.get("path", "")
        return await run_in_threadpool(lambda: JobView.read(path, self._jobs.find(path)))

    def _render(self, template: str, status_code: int = 200, **values: Any) -> Response:
        known: Mapping[str, Any] = {"allow_changes": self._allow_changes, "release": __version__}
        now = {"now_ms": round(time.time() * 1000)}
        return HTMLResponse(self._environment.get_template(template).render({**known, **now, **values}), status_code)


def _format_clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises UsageError `too-complex` if it is too large, and
    HTTPException if it is not in UTF-8.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_SCRIPT_BYTES:
            raise UsageError.of("too-complex", "the script is longer than 1 MB")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise HTTPException(400, "the form is not in UTF-8") from None
    return {name: values[-1] for name, values in fields.items()}


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise UsageError.of("no-version", f"`{text}` is not the number of a version")
    return int(text)
