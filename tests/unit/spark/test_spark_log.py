"""The log of Spark has a limited size, or is standard error."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from everfold.spark.spark_log import KEPT_LOGS, STDERR, redirect_output, rotate_log, write_jvm_options


def contents(log: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in log.parent.iterdir()}


def test_a_log_that_is_too_large_is_rotated(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    rotate_log(log)  # there is none
    with redirect_output(log):  # holds the file open, as the JVM does
        for number in range(KEPT_LOGS + 2):
            subprocess.run(["printf", "%s", f"<{number}>"], check=True)
            rotate_log(log, max_bytes=2)
            rotate_log(log, max_bytes=2)
        subprocess.run(["printf", "%s", "new"], check=True)
    assert contents(log) == {"job.log": "new", "job.log.1": "<3>", "job.log.2": "<2>"}
    assert {each.stat().st_mode & 0o77 for each in (tmp_path / "job.log.1", tmp_path / "job.log.2")} == {0}


def test_standard_error_is_not_opened_by_its_path() -> None:
    """It may be a socket, as under systemd."""
    program = (
        "import subprocess; from everfold.spark.spark_log import *\n"
        "prepare_log(STDERR); append_line(STDERR, 'not here')\n"
        "with redirect_output(STDERR):\n"
        "    subprocess.run(['echo', 'from the JVM'], check=True)\n"
        "print('a result')"
    )
    ours, theirs = socket.socketpair()
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs.fileno(), text=True, check=True
    )
    theirs.close()
    assert done.stdout == "a result\n"
    assert ours.recv(1000) == b"from the JVM\n"
    ours.close()


def test_the_configuration_of_the_jvm(tmp_path: Path) -> None:
    for log in (tmp_path / "job.log", STDERR):
        config, *_ = write_jvm_options(log)
        text = Path(config.partition("=file:")[2]).read_text()
        assert (f"appender.out.fileName = {log}" in text) == (log != STDERR)
        assert ("SYSTEM_ERR" in text) == (log == STDERR)


def test_a_jvm_that_exits_during_a_call_is_reported_in_the_log(tmp_path: Path) -> None:
    """By py4j, with a traceback. What others log stays where it was."""
    program = """
import logging, socket, sys, threading
from pathlib import Path
from py4j.java_gateway import GatewayClient, GatewayParameters
from everfold.spark.spark_log import divert_py4j_messages

divert_py4j_messages(Path(sys.argv[1]))
listening = socket.create_server(("127.0.0.1", 0))

def answer_nothing():
    connection, _ = listening.accept()
    connection.recv(1)
    connection.close()  # with bytes unread: a reset

threading.Thread(target=answer_nothing).start()
client = GatewayClient(gateway_parameters=GatewayParameters(port=listening.getsockname()[1]))
client.send_command("c\\nt\\nrandomMethod\\ne\\n", retry=False)
logging.warning("of the application")
"""
    log = tmp_path / "job" / "job.log"
    done = subprocess.run([sys.executable, "-c", program, str(log)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "WARNING:root:of the application\n")
    assert "Exception while sending command" in log.read_text()
    assert "Py4JNetworkError" in log.read_text()
