"""Progress and activities: as lines of a log, and on the screen of a terminal."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyarrow as pa
import pyte
import pytest

from everfold.activity import listen_to_activities, report_activity
from everfold.cli.progress import LogLines, describe_progress
from everfold.connectors.contract import BatchId, OptionValues, SinkContext
from everfold.connectors.printing import PrintSink
from everfold.jobs.progress import Progress
from everfold.plan.changelog import KIND
from everfold.plan.nodes import Table, TableColumn
from everfold.types import INT

PATIENCE_S = 60
PROGRESS = Progress(
    batch=12, rows=1_200_000, rows_per_second=98_000.4, watermark_ms=1_586_938_619_000, late_rows=3, state_rows=3120, rows_out=7
)  # fmt: skip
PROGRAM = """
import time
from everfold.activity import report_activity
from everfold.cli.progress import show_activities
from everfold.jobs.progress import Progress

with show_activities() as view:
    report_activity("starting Spark")
    input()
    with view.hidden():
        print("row 1")
    view.update(Progress(
        batch=12, rows=1_200_000, rows_per_second=98_000.4, watermark_ms=int(time.time() * 1000) - 100_000,
        late_rows=3, state_rows=3120, rows_out=7,
    ))
    report_activity("waiting for records")
    input()
    with view.hidden():
        print("row 2")
print("end")
"""


class Screen:
    """The screen of a terminal in which a program runs."""

    def __init__(self, columns: int) -> None:
        self._screen = pyte.Screen(columns, 24)
        self._stream = pyte.Stream(self._screen)
        self._child = pexpect.spawn(
            sys.executable,
            ["-c", PROGRAM],
            # Where readline was imported, the environment has the size of another terminal.
            env={**os.environ, "COLUMNS": str(columns), "LINES": "24", "TERM": "xterm"},
            encoding="utf-8",
            dimensions=(24, columns),
            echo=False,
            timeout=PATIENCE_S,
        )

    def wait_until(self, is_reached: Callable[[str], bool]) -> str:
        """Wait until the screen is as expected, and return what it shows as one line."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if is_reached(self.shown):
                return self.shown
            try:
                self._stream.feed(self._child.read_nonblocking(4096, timeout=1))
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                break
        assert is_reached(self.shown), self.lines
        return self.shown

    def wait_for(self, *texts: str) -> str:
        """Wait until all texts are on the screen."""
        return self.wait_until(lambda shown: all(text in shown for text in texts))

    def press_enter(self) -> None:
        self._child.sendline()

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]

    @property
    def shown(self) -> str:
        return " ".join("".join(self._screen.display).split())


def test_a_terminal_shows_what_happens_and_keeps_rows_on_lines_of_their_own() -> None:
    screen = Screen(columns=200)
    screen.wait_for("starting Spark (1 s)")
    screen.press_enter()
    first = screen.wait_for("3 late rows", "waiting for records (1 s)")
    assert "starting Spark" not in first
    assert screen.lines[0] == "row 1"
    lag = first.partition("(lag ")[2].partition(")")[0]
    screen.wait_until(lambda shown: "(lag " in shown and f"(lag {lag})" not in shown)
    screen.press_enter()
    screen.wait_for("end")
    assert screen.lines == ["row 1", "row 2", "end"]


def test_a_narrow_terminal_shows_late_rows_too() -> None:
    screen = Screen(columns=40)
    screen.wait_for("starting Spark")
    screen.press_enter()
    screen.wait_for("3 late rows", "waiting for")
    screen.press_enter()
    screen.wait_for("end")
    assert screen.lines == ["row 1", "row 2", "end"]


def test_progress_is_one_line() -> None:
    assert describe_progress(PROGRESS, 1_586_938_621_100) == (
        "batch 12 · 1,200,000 rows · 98,000 rows/s · watermark 2020-04-15 08:16:59.000 (lag 2.1 s)"
        " · 3,120 state rows · 3 late rows"
    )


def test_log_lines_are_printed_at_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    LogLines(sys.stderr, interval_s=3600).update(PROGRESS)
    assert capsys.readouterr().err == ""
    LogLines(sys.stderr, interval_s=0).update(PROGRESS)
    assert "batch 12" in capsys.readouterr().err


def test_a_log_has_each_long_activity_once() -> None:
    out = io.StringIO()
    view = LogLines(out)
    for activity in ("a short one", "starting Spark"):
        view.say(activity)
    end = time.monotonic() + PATIENCE_S
    while "starting Spark" not in out.getvalue() and time.monotonic() < end:
        time.sleep(0.05)
    view.say("starting Spark")
    view.update(PROGRESS)
    assert [line.partition(" ")[2] for line in out.getvalue().splitlines()] == ["starting Spark"]


def test_activities_are_heard_while_someone_listens() -> None:
    heard: list[str] = []
    report_activity("before")
    with listen_to_activities(heard.append):
        report_activity("starting Spark")
    report_activity("after")
    assert heard == ["starting Spark"]


def test_the_print_connector_prints_in_the_context_of_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def printing() -> Iterator[None]:
        print("(", end="")
        yield
        print(")", end="")

    table = Table(name="t", columns=(TableColumn(name="a", type=INT),))
    context = SinkContext(name="t", base_folder=tmp_path, table=table, printing=printing)
    sink = PrintSink(context, OptionValues({"print-identifier": None, "standard-error": False}, frozenset()))
    sink.write(pa.table({"c0": [1, 2], KIND: pa.array([0, 0], pa.int8())}), BatchId("job", "t", 0, 0))
    sink.write(pa.table({"c0": pa.array([], pa.int32()), KIND: pa.array([], pa.int8())}), BatchId("job", "t", 0, 1))
    assert capsys.readouterr().out == "(+I[1]\n+I[2]\n)"
