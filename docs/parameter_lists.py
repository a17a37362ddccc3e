"""An extension of griffe: show what a docstring writes about each parameter as a list.

Docstrings of everfold describe a parameter in a line that begins with its name and a colon, which
Markdown would join with the line before.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Extension, Function

_FIELD = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ", re.M)


class ParameterLists(Extension):
    """Turns the lines about parameters into a list."""

    def on_function(self, *, func: Function, **_: Any) -> None:
        """Rewrite the docstring of a function."""
        _rewrite(func)

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Rewrite the docstring of a class."""
        _rewrite(cls)


def _rewrite(documented: Function | Class) -> None:
    if documented.docstring is not None:
        documented.docstring.value = make_lists(documented.docstring.value)


def make_lists(docstring: str) -> str:
    """Return a docstring with a list for each run of lines about parameters."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(_make_list(each) for each in paragraphs)


def _make_list(paragraph: str) -> str:
    if not _FIELD.match(paragraph):
        return paragraph
    items = re.split(r"\n(?=[a-z_]+(?:, [a-z_]+)*: )", paragraph)
    return "\n".join(_FIELD.sub(r"- `\1`: ", " ".join(item.split("\n")), count=1) for item in items)
