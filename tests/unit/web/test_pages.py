"""`everfold ui` as a person sees it: a real server and a real browser."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import open_page
from playwright.sync_api import Page, expect
from unit.job_dirs import start_job
from unit.jobs.test_progress_log import BATCH, RUN
from unit.jobs.test_row_samples import LATE, SKIPPED

from everfold.jobs.change import OnChange
from everfold.jobs.job_list import find_jobs
from everfold.jobs.progress import OperatorProgress
from everfold.jobs.progress_log import ProgressLog, RunEnd
from everfold.jobs.row_samples import RowSamples, write_samples
from everfold.plan.nodes import Root
from everfold.sql.planner import Session, Submit
from everfold.storage import local

TABLES = """CREATE TABLE t (k INT, v INT) WITH ('connector' = 'filesystem', 'path' = 'in', 'format' = 'json');
CREATE TABLE o (k INT, total INT, n BIGINT) WITH ('connector' = 'blackhole');
"""
OLD = "INSERT INTO o (k, total) SELECT k, SUM(v) AS total FROM t GROUP BY k"
NEW = "INSERT INTO o SELECT k, SUM(v) AS total, COUNT(*) AS n FROM t GROUP BY k"
OPERATOR = OperatorProgress(name="w1", rows_out=5, state_rows=4, state_bytes=2048, late_rows=3)


def bind(statement: str) -> tuple[Root, ...]:
    *_, submit = Session().run(TABLES + statement)
    assert isinstance(submit, Submit)
    return submit.roots


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a job of two versions that has failed, and one that never ran."""
    base = tmp_path_factory.mktemp("jobs")
    start_job(base / "totals", bind(OLD), sql=OLD)
    manifest = start_job(base / "totals", bind(NEW), sql=NEW, how=OnChange.ACCEPT)
    began_ms = manifest.versions[0].created_ms
    log = ProgressLog(base / "totals" / "progress")
    log.begin(replace(RUN, name="<totals>", version=1))
    for number in range(3):
        at = began_ms + (number - 1) * 60_000
        log.add(replace(BATCH, batch=number, started_ms=at, ended_ms=at + 500, operators=(OPERATOR,)))
    write_samples(base / "totals" / "progress", RowSamples(late=(LATE,), skipped=(SKIPPED,)))
    log.end(RunEnd(how="failed", ended_ms=began_ms + 61_000, error="disk-full", message="the disk is full"))
    start_job(base / "nested" / "other", bind(OLD), sql=OLD)
    return base


TOKEN = "secret-token"


def start(folder: Path, *options: str, token: str = TOKEN) -> tuple[subprocess.Popen[str], str]:
    """Start the server; return its process and the address that it prints."""
    command = [sys.executable, "-m", "everfold", "ui", str(folder), "--port", "0", *options]
    environment = {**os.environ, "EVERFOLD_UI_TOKEN": token}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stderr is not None
    line = server.stderr.readline()
    assert line.startswith("everfold ui: "), line
    return server, line.split()[-1]


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    server, address = start(folder)
    yield address.removesuffix(f"?token={TOKEN}")
    server.terminate()
    server.communicate(timeout=60)


def status_of(address: str, data: bytes | None = None, *, authorized: bool = True, **headers: str) -> int:
    """Return the status of a page. data: of a form."""
    headers |= {"Authorization": f"Bearer {TOKEN}"} if authorized else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def check(page: Page, messages: list[str]) -> None:
    """Check that a page is accessible, and that nothing in it has failed."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert messages == []


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (380, "dark")])
def test_a_job_from_the_list_to_the_answer_on_a_changed_query(address: str, width: int, scheme: str) -> None:
    with open_page(width=width, scheme="dark" if scheme == "dark" else "light") as (page, messages):
        page.goto(f"{address}?token={TOKEN}")
        expect(page.get_by_role("row")).to_have_count(3)
        check(page, messages)
        page.get_by_role("link", name="<totals>").click()
        expect(page.get_by_text("the disk is full")).to_be_visible()
        expect(page.locator("svg.plan .operator .title")).to_have_text("w1 GROUP BY k")
        expect(page.locator("svg.plan")).to_contain_text("3 late rows dropped")
        expect(page.get_by_role("region", name="Samples of late rows")).to_contain_text("k = ann, v = 7")
        expect(page.get_by_role("region", name="Samples of skipped rows")).to_contain_text("in/1.json")
        expect(page.locator(".uplot")).to_have_count(4)
        expect(page.locator(".uplot").first.locator(".version")).to_have_text(["v0, v1", ""])
        check(page, messages)
        page.get_by_role("link", name="Versions").click()
        expect(page.locator(".difference .added")).to_contain_text("COUNT(*) AS n")
        expect(page.get_by_role("row", name="n starts at the restart")).to_be_visible()
        check(page, messages)
        page.get_by_role("link", name="What if").click()
        page.get_by_label("New script").fill(TABLES + NEW.replace("COUNT(*)", "COUNT(v)"))
        page.get_by_role("button", name="Show what would be kept").click()
        expect(page.get_by_role("row", name="total kept")).to_be_visible()
        expect(page.get_by_role("row", name="n starts at the restart")).to_be_visible()
        expect(page.get_by_role("heading", name="With --on-change backfill")).to_be_visible()
        check(page, messages)
        page.get_by_label("New script").fill("SELECT FROM")
        page.get_by_role("button", name="Show what would be kept").click()
        expect(page.get_by_role("alert")).to_contain_text("new query:1:8")
        check(page, messages)
        # No page is wider than the screen.
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_keyboard_is_enough(address: str) -> None:
    with open_page() as (page, _):
        page.goto(f"{address}?token={TOKEN}")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")  # the table, which can be scrolled
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_role("navigation", name="Job")).to_be_visible()


def test_unknown_jobs_and_versions_are_not_found(address: str) -> None:
    assert status_of(f"{address}job?path=missing") == 404
    assert status_of(f"{address}job?path=..%2F..%2Fetc") == 404
    assert status_of(f"{address}script?path=totals&version=9") == 404
    assert status_of(f"{address}script?path=totals&version=1") == 200


def test_other_names_and_other_sites_are_refused(address: str) -> None:
    assert status_of(address, Host="evil.example") == 421
    assert status_of(f"{address}what-if?path=totals", b"script=", Origin="http://evil.example") == 403
    assert status_of(f"{address}what-if?path=totals", b"script=", Origin="http://[") == 403


def test_nothing_can_be_changed_unless_it_is_allowed(address: str) -> None:
    assert status_of(f"{address}rollback?path=totals", b"version=0") == 404


def test_broken_requests_are_refused(address: str) -> None:
    assert status_of(address, Host="[::1") == 400
    assert status_of(f"{address}what-if?path=totals", b"script=\xff") == 400
    assert status_of(f"{address}what-if?path=totals", b"script=%ff") == 400
    assert status_of(f"{address}script?path=totals&version={'9' * 5000}") == 404
    assert status_of(f"{address}?token=%ff%00", authorized=False) == 401


@pytest.mark.parametrize("cookie", ["a/b=1", 'x={"a":1}', "=", "\xe4=\xe4; ;;"])
def test_cookies_of_other_programs_do_not_matter(address: str, cookie: str) -> None:
    with urllib.request.build_opener(NoRedirect).open(f"{address}?token={TOKEN}", timeout=60) as answer:
        own = answer.headers["set-cookie"].partition(";")[0]
    for cookies in (f"{cookie}; {own}", f"{own}; {cookie}"):
        assert status_of(address, authorized=False, Cookie=cookies) == 200


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def http_error_303(self, request: Any, answer: Any, *_: Any) -> Any:
        return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_always_required(folder: Path, host: str) -> None:
    server, address = start(folder, "--host", host, token="")
    try:
        plain, _, token = address.replace("0.0.0.0", "127.0.0.1").partition("?token=")
        assert len(token) >= 32
        assert status_of(plain, authorized=False) == 401
        assert status_of(f"{plain}?token=wrong", authorized=False) == 401
        assert status_of(plain, authorized=False, Authorization=f"Bearer {token}") == 200
        with open_page() as (page, _):
            page.goto(f"{plain}?token={token}")
            assert "token" not in page.url
            expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_a_socket_is_for_its_owner(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "pages.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    server, address = start(folder, "--socket", str(path))
    try:
        assert address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        command = [sys.executable, "-m", "everfold", "ui", str(folder), "--socket", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, "another process listens" in done.stderr) == (2, True), done.stderr
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_connections_that_send_nothing_do_not_stop_the_server(address: str) -> None:
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    needed = 1_600
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * needed)), hard))
    silent = [socket.create_connection((host, int(port)), timeout=60) for _ in range(needed)]
    try:
        assert status_of(address) == 200
    finally:
        for connection in silent:
            connection.close()


def test_links_in_circles_are_not_followed(tmp_path: Path) -> None:
    start_job(tmp_path / "a" / "totals", bind(OLD), sql=OLD)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    paths = [job.relative_to(local(tmp_path)) for job in find_jobs(local(tmp_path))]
    assert paths == ["a/totals", "b/totals"]


def test_a_taken_port_is_refused(folder: Path, address: str) -> None:
    port = address.rstrip("/").rpartition(":")[2]
    command = [sys.executable, "-m", "everfold", "ui", str(folder), "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "error[port-not-available]" in done.stderr) == (2, True), done.stderr
