"""A real Chromium for tests, driven by Playwright."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from urllib.parse import urlsplit

from maven import cache_home, lock_file
from playwright.sync_api import Page, expect, sync_playwright

expect.set_options(timeout=60_000)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# It asks the network for nothing of its own.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def find_chromium() -> str:
    """Return the path of the browser. The first call on a machine may install Debian's package."""
    found = _look()
    if found is None:
        with lock_file(cache_home() / "chromium.lock"):
            found = _look() or _install()
    return found


def _look() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _install() -> str:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError("Chromium is needed: install it, so that `chromium` is on the PATH")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
        subprocess.run(["apt-get", "-qq", *command], check=True, env=environment, stdout=subprocess.DEVNULL)
    found = _look()
    assert found is not None
    return found


@contextmanager
def open_page(*, width: int = 1200, scheme: Literal["light", "dark"] = "light") -> Iterator[tuple[Page, list[str]]]:
    """Open an empty page; yield it with the messages of its console and its requests to other hosts."""
    messages: list[str] = []
    with _without_warnings_of_playwright(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=_ARGUMENTS)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: messages.extend([] if _is_local(request.url) else [request.url]))
        yield page, messages
        browser.close()


@contextmanager
def _without_warnings_of_playwright() -> Iterator[None]:
    """Ignore that Playwright leaves the sockets of its process to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def _is_local(address: str) -> bool:
    return urlsplit(address).hostname == "127.0.0.1"
