"""Record docs/shell.svg: a real session of the shell. `make docs PICTURES=1` records it again."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from terminal import CTRL_D, TerminalScreen

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "shell.svg"
COLUMNS, LINES = 96, 40


def record() -> str:
    """Run a session in a terminal, and return its screen as SVG."""
    with tempfile.TemporaryDirectory() as cache:
        terminal = TerminalScreen(ROOT / "examples" / "bids", Path(cache), columns=COLUMNS, lines=LINES)
        terminal.type("SELECT 1 AS loaded;\r")  # colors come with the registries
        terminal.wait_for("1 row in set")
        terminal.type("\\clear\r")
        terminal.wait_for("1 row in set", absent=True)
        terminal.type(
            "CREATE TABLE Bid (bidtime TIMESTAMP(3), price DECIMAL(10, 2), supplier_id STRING,\r"
            "  WATERMARK FOR bidtime AS bidtime - INTERVAL '1' SECOND\r"
            "\x08\x08) WITH ('connector' = 'filesystem', 'path' = 'data', 'format' = 'json');\r"
        )
        terminal.wait_for("Table Bid created.")
        terminal.type("SELECT window_end, SUM(price) AS total_price\r")
        terminal.type("FROM TUMBLE(TABLE Bid, DESCRIPTOR(bidtime), INTERVAL '10' MINUTES)\r")
        terminal.type("GROUP BY window_start, window_end;\r")
        terminal.wait_for("rows in set")
        terminal.type("SELECT suplier_id FROM Bid;\r")
        terminal.wait_for("did you mean")
        terminal.type("SELECT supplier_id, FIR")
        terminal.wait_for("FIRST_VALUE(")
        picture = export(terminal)
        terminal.type(f"\x03{CTRL_D}")
        terminal.close()
    return picture


def export(terminal: TerminalScreen) -> str:
    """Return the screen of a terminal as SVG."""
    return draw(read_screen(terminal), COLUMNS, "everfold-shell")


def read_screen(terminal: TerminalScreen) -> list[Text]:
    """Return the lines of a terminal with their colors, up to the last that is not empty."""
    shown = terminal.screen
    last = max((at for at, line in enumerate(shown.display) if line.strip()), default=-1)
    lines = []
    for at in range(last + 1):
        row, text = shown.buffer[at], Text(no_wrap=True)
        cells = [row[column] for column in range(shown.columns)]
        for style, run in groupby(cells, lambda of: _style(of.fg, of.bg, bold=of.bold, reverse=of.reverse)):
            text.append("".join(cell.data for cell in run), style)
        lines.append(text)
    return lines


def draw(lines: Iterable[Text], columns: int, name: str, title: str = "everfold") -> str:
    """Return lines of a terminal as SVG. name: distinguishes its styles from those of others."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in lines:
        console.print(line, crop=False)
    console.print()  # the lower edge cuts the last line
    picture = console.export_svg(title=title, theme=MONOKAI, unique_id=name)
    # The picture names fonts of a content delivery network. Without them, the reader's are used.
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.S)


def _style(foreground: str, background: str, *, bold: bool, reverse: bool) -> str:
    colors = [_color(foreground), "on " + _color(background)]
    return " ".join([*colors, *(["bold"] if bold else []), *(["reverse"] if reverse else [])])


def _color(name: str) -> str:
    if len(name) == 6 and all(each in "0123456789abcdef" for each in name):
        return f"#{name}"
    return {"brown": "yellow"}.get(name, name)


if __name__ == "__main__":
    FILE.write_text(record(), encoding="utf-8")
    print(FILE)
