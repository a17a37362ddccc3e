"""Access to the flights example for tests: its scripts, its data, its reference results."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa

EXAMPLE = Path(__file__).parents[1] / "examples" / "flights"
NAMES = ("daily_by_carrier", "weekly_hop", "cumulate_day", "plane_sessions")


def module(name: str) -> ModuleType:
    """Import a script of the example as a module."""
    spec = importlib.util.spec_from_file_location(f"flights_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def script(name: str) -> str:
    """Return the content of one of the example's SQL files."""
    return (EXAMPLE / f"{name}.sql").read_text()


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    """Return the rows of a table in a canonical order."""
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def answers(name: str, days: int) -> list[tuple[object, ...]]:
    """Return what DuckDB computes from the raw table."""
    found: pa.Table = module("reference").answers(name, days)
    return rows(found)
