"""Tables in HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from everfold.types import Field, NumericType

_NUMBER = ' style="text-align: right"'
_TEXT = ' style="text-align: left"'


def format_table(
    schema: Iterable[Field], rows: Sequence[Sequence[str | None]], *, total: int, caption: str = ""
) -> str:
    """Return rows as an HTML table, with a line below that counts them.

    rows: their cells, None for NULL. total: how many rows there are. caption: a line above.
    """
    fields = list(schema)
    lines = [f"<p>{escape(caption)}</p>"] if caption else []
    if fields:
        heads = "".join(
            f'<th{_align(each)} title="{escape(each.type.sql)}">{escape(each.name)}</th>' for each in fields
        )
        body = "\n".join(f"<tr>{_format_row(row, fields)}</tr>" for row in rows)
        lines.append(f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>")
        shown = "" if len(rows) == total else f"{len(rows)} of "
        lines.append(f"<p>{shown}{total:,} row{'' if total == 1 else 's'}</p>")
    return "\n".join(lines)


def _format_row(row: Sequence[str | None], fields: Sequence[Field]) -> str:
    cells = zip(row, fields, strict=True)
    return "".join(f"<td{_align(each)}>{'<i>NULL</i>' if cell is None else escape(cell)}</td>" for cell, each in cells)


def _align(of: Field) -> str:
    return _NUMBER if isinstance(of.type, NumericType) else _TEXT


def format_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values as an HTML table of two columns."""
    rows = "\n".join(f"<tr><th{_TEXT}>{escape(name)}</th><td{_TEXT}>{escape(value)}</td></tr>" for name, value in facts)
    return f"<table>\n<tbody>\n{rows}\n</tbody>\n</table>"
