"""What cells show: objects that can be replaced later, and errors."""

from __future__ import annotations

from html import escape
from typing import Any, Protocol

from IPython.display import HTML, display


class Display(Protocol):
    """What a cell shows."""

    def update(self, shown: Any, *, raw: bool = False) -> None:
        """Show something else in its place; arguments as those of `show`."""


def show(shown: Any, *, raw: bool = False) -> Display:
    """Show an object in the output of the cell.

    raw: it is not an object, but its representations by MIME type.
    """
    handle: Display = display(shown, display_id=True, raw=raw)  # type: ignore[no-untyped-call]
    return handle


def html(text: str) -> Any:
    """Return HTML as an object that can be shown."""
    return HTML(text)  # type: ignore[no-untyped-call]


def show_text(text: str) -> None:
    """Show text in a fixed-width font."""
    show(html(f"<pre>{escape(text)}</pre>"))
