"""`everfold ui`: serve the pages until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping

import click

from everfold.cli.runner import open_job
from everfold.errors import UsageError
from everfold.jobs.folders import FolderName


def serve(
    folder: FolderName, *, host: str, port: int, allow_changes: bool, conf: Mapping[str, str], token: str = ""
) -> None:
    """Show the jobs in a folder on web pages.

    On another address than the loopback ones, a token is required; without one, it is made.
    port: 0 for a free one. Raises UsageError `missing-package`, `port-not-available`.
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
    is_local = host in LOOPBACK
    if not is_local and not token:
        token = secrets.token_urlsafe(24)
    base = open_job(folder, conf)
    listening = _listen(host, port)
    hosts = LOOPBACK if is_local else frozenset[str]()
    app = create_app(base, token=token, hosts=hosts, allow_changes=allow_changes)
    number = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{number}/" + (f"?token={token}" if token else "")
    click.echo(f"everfold ui: {address}", err=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError.of(
            "port-not-available",
            f"the pages cannot be served on {host}:{port}: {error.strerror}",
            help="choose another --port, or 0 for a free one",
        ) from error
