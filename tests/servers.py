"""Shared parts of the real servers of tests: free ports, and a watchdog.

The watchdog ends a server with the test process, however that ends.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

STOP_TIMEOUT_S = 10.0

# Ends the server and removes its data when our end of the pipe closes. The kernel closes it even
# after SIGKILL.
_WATCHDOG = 'read -r _; kill -9 "$1"; sleep 0.2; rm -rf "$2"'


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that no process listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def port_is_open(port: int) -> bool:
    """Return whether a process listens on the port."""
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex(("127.0.0.1", port)) == 0


def watchdog(server: subprocess.Popen[bytes], home: Path) -> subprocess.Popen[bytes]:
    """Start a process that ends the server and removes its data when this process ends."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHDOG, "sh", str(server.pid), str(home)], stdin=subprocess.PIPE, start_new_session=True
    )


def end_server(
    server: subprocess.Popen[bytes] | None, guard: subprocess.Popen[bytes] | None, how: signal.Signals
) -> None:
    """End a server and then its watchdog.

    The order matters: until the server is reaped, its pid cannot belong to another process.
    """
    if server is not None:
        end_process(server, how)
    if guard is not None:
        end_process(guard, signal.SIGKILL)
        if guard.stdin is not None:
            guard.stdin.close()


def end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Send the signal, and SIGKILL if that is not enough."""
    process.send_signal(how)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
