"""`everfold ui`: serve the pages until Ctrl-C."""

from __future__ import annotations

import os
import resource
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from everfold.cli.runner import open_job
from everfold.errors import UsageError
from everfold.jobs.folders import FolderName

_OPEN_FILES = 65_536


def serve(
    folder: FolderName,
    *,
    host: str,
    port: int,
    allow_changes: bool,
    conf: Mapping[str, str],
    token: str = "",
    path: Path | None = None,
) -> None:
    """Show the jobs in a folder on web pages.

    A token is required, also on a loopback address, to which other users of the machine can
    connect; without one, it is made. path: of a Unix socket, which only this user can connect to,
    without a token. port: 0 for a free one. Raises UsageError `missing-package`,
    `port-not-available`.
    """
    try:
        import uvicorn

        from everfold.web.access import LOOPBACK
        from everfold.web.app import create_app
    except ImportError as error:
        raise UsageError.of(
            "missing-package",
            f"`everfold ui` needs the package `{error.name}`",
            help="pip install 'everfold[ui]'",
        ) from error
    base = open_job(folder, conf)
    hosts = LOOPBACK if path is not None or host in LOOPBACK else frozenset[str]()
    if path is None:
        token = token or secrets.token_urlsafe(24)
        listening = _listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/?token={token}"
    else:
        token, listening = "", _listen_on_path(path)
        address = f"unix:{path.absolute()}"
    app = create_app(base, token=token, hosts=hosts, allow_changes=allow_changes)
    _allow_open_files()
    click.echo(f"everfold ui: {address}", err=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])


def _allow_open_files() -> None:
    """Raise the limit of open files: a connection is one, also before it has sent anything."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(OSError, ValueError):  # macOS has another limit for the process
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _listen_on_path(path: Path) -> socket.socket:
    """Return a Unix socket that only this user can connect to; a left-over one is replaced."""
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        if path.is_socket():
            with suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as other:
                other.connect(str(path))
                raise OSError("another process listens on it")
            path.unlink()
        listening.bind(str(path))
        listening.listen()
    except OSError as error:
        listening.close()
        raise UsageError.of(
            "port-not-available",
            f"the pages cannot be served on `{path}`: {error.strerror or error}",
            help="choose another --socket",
        ) from error
    finally:
        os.umask(before)
    return listening


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError.of(
            "port-not-available",
            f"the pages cannot be served on {host}:{port}: {error.strerror}",
            help="choose another --port, or 0 for a free one",
        ) from error
