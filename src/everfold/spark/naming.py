"""What Spark is to call things of ours. Apart from what uses it, since the judgement of a changed job asks for it and knows nothing of Spark."""

from __future__ import annotations


def source_name(table: str) -> str:
    """A table's name as Spark lets a source be named."""
    return "".join(char if char.isalnum() and char.isascii() else "_" for char in table)
