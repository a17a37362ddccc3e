"""The current rows of a changing result, printed as a table."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import termios

import pyarrow as pa
import pyte
import pytest

from everfold.cli.live_table import LiveTable
from everfold.cli.progress import LiveLine
from everfold.jobs.progress import Progress
from everfold.plan.changelog import KIND, RowKind
from everfold.types import BIGINT, STRING, Field, Schema

SCHEMA = Schema((Field(name="k", type=STRING), Field(name="n", type=BIGINT)))


def test_the_whole_table_is_printed_at_the_end() -> None:
    out = io.StringIO()
    table = LiveTable(out, SCHEMA)
    changes = [
        (RowKind.INSERT, "a", 1),
        (RowKind.INSERT, "b", 1),
        (RowKind.UPDATE_BEFORE, "a", 1),
        (RowKind.UPDATE_AFTER, "a", 2),
    ]
    kinds, keys, counts = zip(*changes, strict=True)
    columns = {"c0": pa.array(keys), "c1": pa.array(counts, pa.int64()), KIND: pa.array(map(int, kinds), pa.int8())}
    table.write(pa.table(columns))
    table.finish()
    assert out.getvalue().endswith("""\
+---+---+
| k | n |
+---+---+
| a | 2 |
| b | 1 |
+---+---+
2 rows in set
""")


@pytest.mark.parametrize(("count", "footer"), [(2, "2 rows in set"), (100, "17 of 100 rows")])
def test_the_progress_has_a_line_of_its_own(count: int, footer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    terminal, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)

    def show() -> list[str]:
        while select.select([terminal], [], [], 0)[0]:
            stream.feed(os.read(terminal, 1 << 16))
        return [line.rstrip() for line in screen.display]

    out = os.fdopen(program, "w")
    view, table = LiveLine(os.fdopen(os.dup(program), "w")), LiveTable(out, SCHEMA)
    keys = [f"k{number}" for number in range(count)]
    rows = pa.table({"c0": keys, "c1": pa.array(range(count), pa.int64()), KIND: pa.array([0] * count, pa.int8())})
    for batch in range(3):
        with view.hidden():
            table.write(rows if batch == 0 else rows.slice(0, 0))
        view.update(
            Progress(
                batch=batch, rows=count, rows_per_second=3.0, watermark_ms=None, late_rows=0, state_rows=1, rows_out=0
            )
        )
        shown = show()
        assert shown[0].startswith("+--")
        assert shown[shown.index(footer) + 1].startswith(f"batch {batch} · ")
    view.close()
    table.finish()
    show()
    out.close()
    os.close(terminal)
